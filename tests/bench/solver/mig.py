"""Placement of slices: `python -m tests.bench.solver.mig saturate --gpus 100 --seeds 20`.

saturate: no departures, 130 % of the slots asked for; churn: arrivals and departures at load 1,
few moves allowed; pack: a list of asks on the fewest GPUs. With `--peers FILE` the policies and
the oracle of that simulator run on the same arrivals. JSON lines on stdout.
"""

import argparse
import heapq
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from solver.fleet.demand_mix import Mix
from solver.fleet.pool import Pool, pools_of
from solver.model.demand import Demand
from solver.model.inputs import Place
from solver.placement.gang import place
from solver.placement.repack import make_room, pack
from tests.bench.solver.peers import peers_of
from tests.solver.builders import H100, gpus

PROFILES = ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
SIZES = np.array([1, 2, 2, 4, 4, 8])
MIXES = {
    "uniform": (1 / 6,) * 6,
    "small-heavy": (0.30, 0.25, 0.20, 0.10, 0.10, 0.05),
    "large-heavy": (0.05, 0.10, 0.10, 0.20, 0.25, 0.30),
    "bimodal": (0.30, 0.15, 0.05, 0.05, 0.15, 0.30),
}
Numbers = npt.NDArray[np.int64]


def pool_of(count: int, mix: tuple[float, ...]) -> Pool:
    """A pool of sliced H100, one per node; the mix is the recent demand."""
    fleet = [gpu for n in range(count) for gpu in gpus(1, node=f"n{n:04}", mode="sliced")]
    lines = sorted((name, 1, 0, round(64 * part)) for name, part in zip(PROFILES, mix, strict=True))
    return pools_of(fleet, [H100], {"h100": Mix(tuple(lines))})["h100"]


@dataclass(slots=True)
class Site:
    """A pool with its occupancy and its running slices."""

    pool: Pool
    busy: npt.NDArray[np.uint16] = field(init=False)
    live: dict[int, Place] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Starts with an empty pool."""
        self.busy = np.zeros(len(self.pool), dtype=np.uint16)

    def demand(self, profile: str) -> Demand:
        """One slice."""
        return Demand("h100", profile, 1, "any", 3_600, ("t", "p"))

    def start(self, number: int, profile: str) -> bool:
        """Places a slice as the product does."""
        found = place(self.pool, self.demand(profile), self.busy)
        if found is not None:
            self.put(number, found[0])
        return found is not None

    def start_by_moving(self, number: int, profile: str, most: int) -> int | None:
        """Places a slice after at most `most` moves; returns the number of moves."""
        room = make_room(self.pool, self.demand(profile), self.busy, tuple(self.live.values()), most)
        if room is None:
            return None
        owners = {each: owner for owner, each in self.live.items()}
        moved = [(owners[old], new) for old, new in room.moves]
        for owner, _ in moved:
            self.end(owner)
        for owner, new in (*moved, (number, room.place)):
            self.put(owner, new)
        return len(moved)

    def put(self, number: int, spot: Place) -> None:
        """Occupies the slots. Raises ValueError if they are illegal or occupied."""
        mask, column = self.pool.mask_of(spot), self.pool.column[spot.gpu]
        if int(self.busy[column]) & mask or not self.pool.geometry(spot.gpu).is_legal(spot):
            raise ValueError(f"{spot} cannot be made")
        self.busy[column] |= mask
        self.live[number] = spot

    def end(self, number: int) -> None:
        """Frees the slots."""
        spot = self.live.pop(number)
        self.busy[self.pool.column[spot.gpu]] &= ~self.pool.mask_of(spot) & 0xFFFF


def saturated(gpu_count: int, mix: tuple[float, ...], asks: Numbers) -> tuple[int, float]:
    """The occupied slots in the end, and microseconds per decision."""
    site = Site(pool_of(gpu_count, mix))
    since = time.perf_counter()
    for number, profile in enumerate(asks.tolist()):
        site.start(number, PROFILES[profile])
    spent = (time.perf_counter() - since) * 1e6 / len(asks)
    return sum(spot.size for spot in site.live.values()), spent


def arrivals(mix: tuple[float, ...], gpu_count: int, chance: np.random.Generator) -> Numbers:
    """Requests 130 % of the slots."""
    mean = float(np.array(mix) @ SIZES)
    many = int(np.ceil(2 * 1.3 * 8 * gpu_count / mean)) + 50
    asks = chance.choice(len(PROFILES), size=many, p=mix)
    return asks[: int(np.searchsorted(np.cumsum(SIZES[asks]), 1.3 * 8 * gpu_count)) + 1]


@dataclass(frozen=True, slots=True)
class Stream:
    """Arrivals over time with their stays, in units of a mean stay."""

    times: npt.NDArray[np.float64]
    asks: Numbers
    stays: npt.NDArray[np.float64]


def stream(mix: tuple[float, ...], gpu_count: int, load: float, count: int, seed: int) -> Stream:
    """The same numbers as the simulator's for the same seed."""
    chance = np.random.default_rng(1_000 + seed)
    rate = load * 8 * gpu_count / float(np.array(mix) @ SIZES)
    times = np.cumsum(chance.exponential(1 / rate, count))
    asks = chance.choice(len(PROFILES), size=count, p=mix)
    return Stream(times, asks, chance.exponential(1.0, count))


def churned(gpu_count: int, mix: tuple[float, ...], come: Stream, budget: float) -> tuple[float, float]:
    """The share of requested slots that was allocated, after a warm-up, and moves per arrival."""
    site, moves, asked, given = Site(pool_of(gpu_count, mix)), 0, 0, 0
    ends: list[tuple[float, int]] = []
    for number, profile in enumerate(come.asks.tolist()):
        while ends and ends[0][0] <= come.times[number]:
            site.end(heapq.heappop(ends)[1])
        most = min(3, int(budget * (number + 1)) - moves)
        done = site.start_by_moving(number, PROFILES[profile], most)
        moves += done or 0
        if done is not None:
            heapq.heappush(ends, (come.times[number] + come.stays[number], number))
        if number >= len(come.asks) // 5:
            asked += int(SIZES[profile])
            given += int(SIZES[profile]) if done is not None else 0
    return given / asked, moves / len(come.asks)


PARTS = (7, 8)


def shares_of_a_gpu(pool: Pool, parts: int) -> Numbers:
    """Weights of the profiles in so many parts of a GPU, such that no GPU holds more than it has.

    Rows are all such weights that cannot be raised: each proves a bound on what fits.
    """
    geometry = pool.geometries[0]
    sets: set[tuple[int, ...]] = set()
    front = {(0, (0,) * len(PROFILES))}
    while front:
        sets |= {counts for _, counts in front}
        front = {
            (mask | pool.mask_of(Place(pool.gpus[0].id, name, spot.start, spot.size)), more)
            for mask, counts in front
            for at, name in enumerate(PROFILES)
            for more in [(*counts[:at], counts[at] + 1, *counts[at + 1 :])]
            for spot in geometry.places(name)
            if not mask & pool.mask_of(Place(pool.gpus[0].id, name, spot.start, spot.size))
        }
    layouts = np.array(sorted(sets))
    grid = np.indices((parts + 1,) * len(PROFILES), dtype=np.int8).reshape(len(PROFILES), -1).T
    for layout in layouts:
        grid = grid[grid @ layout.astype(np.int8) <= parts]
    kept = {tuple(row) for row in grid.tolist()}
    tight = [
        row
        for row in kept
        if not any((*row[:at], row[at] + 1, *row[at + 1 :]) in kept for at in range(len(row)))
    ]
    return np.array(sorted(tight), dtype=np.int64)


class Bound:
    """The proven minimum number of GPUs for some requests."""

    def __init__(self) -> None:
        pool = pool_of(1, MIXES["uniform"])
        self._weights = [(parts, shares_of_a_gpu(pool, parts)) for parts in PARTS]

    def fewest(self, asks: Numbers) -> int:
        """For so many asks of each profile."""
        return max(-(-int((rows @ asks).max()) // parts) for parts, rows in self._weights)


def oracle(bound: Bound, gpu_count: int, come: Stream) -> float:
    """As `churned` if all could be placed again at each arrival, whenever the bound allows it."""
    live, asked, given = np.zeros(len(PROFILES), dtype=np.int64), 0, 0
    ends: list[tuple[float, int]] = []
    for number, profile in enumerate(come.asks.tolist()):
        while ends and ends[0][0] <= come.times[number]:
            live[heapq.heappop(ends)[1]] -= 1
        live[profile] += 1
        fits = bound.fewest(live) <= gpu_count
        if fits:
            heapq.heappush(ends, (come.times[number] + come.stays[number], profile))
        else:
            live[profile] -= 1
        if number >= len(come.asks) // 5:
            asked += int(SIZES[profile])
            given += int(SIZES[profile]) if fits else 0
    return given / asked


def saturate(asked: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Occupied slots divided by all slots, which no optimum exceeds."""
    for gpu_count, name in product(asked.gpus, asked.mix):
        runs = [
            saturated(gpu_count, MIXES[name], arrivals(MIXES[name], gpu_count, rng(seed)))
            for seed in range(asked.seeds)
        ]
        parts = [slots / (8 * gpu_count) for slots, _ in runs]
        yield {
            "gpus": gpu_count,
            "mix": name,
            "vs_bound_slots": mean(parts),
            "worst": round(min(parts), 4),
            "us_per_decision": mean([spent for _, spent in runs]),
        }


def churn(asked: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Allocated slots divided by those of an oracle that may repack at any time."""
    bound = Bound()
    for gpu_count, name in product(asked.gpus, asked.mix):
        runs = []
        for seed in range(asked.seeds):
            come = stream(MIXES[name], gpu_count, asked.load, asked.arrivals, seed)
            best = oracle(bound, gpu_count, come)
            runs.append((*churned(gpu_count, MIXES[name], come, asked.moves), best))
        ratios = [given / best for given, _, best in runs]
        yield {
            "gpus": gpu_count,
            "mix": name,
            "accepted_slots_pct": mean([100 * given for given, _, _ in runs]),
            "vs_oracle": mean(ratios),
            "worst": round(min(ratios), 4),
            "moves_per_arrival": mean([moves for _, moves, _ in runs]),
        }


def pack_asks(asked: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Used GPUs divided by the proven minimum."""
    bound = Bound()
    for count, name in product(asked.requests, asked.mix):
        ratios, took = [], []
        pool = pool_of(count, MIXES["uniform"])
        for seed in range(asked.seeds):
            asks = rng(5_000 + seed).choice(len(PROFILES), size=count, p=MIXES[name])
            since = time.perf_counter()
            places = pack(pool, [PROFILES[ask] for ask in asks.tolist()])
            took.append((time.perf_counter() - since) * 1_000)
            if places is None:
                raise SystemExit("a GPU for each ask is always enough")
            needed = bound.fewest(np.bincount(asks, minlength=len(PROFILES)))
            ratios.append(len({spot.gpu for spot in places}) / needed)
        yield {
            "requests": count,
            "mix": name,
            "vs_bound_gpus": mean(ratios),
            "worst": round(max(ratios), 4),
            "proven_optimal": sum(ratio == 1 for ratio in ratios),
            "ms_worst": round(max(took), 1),
        }


def peers_rows(asked: argparse.Namespace) -> list[dict[str, object]]:
    """The same experiment by the simulator's policies; its optimum and oracle need ortools."""
    peers: Any = peers_of(asked.peers)
    peers.MIXES = {name: list(MIXES[name]) for name in asked.mix}
    rows = argparse.Namespace(
        gpus=asked.gpus,
        seeds=asked.seeds,
        demand=1.3,
        load=[asked.load],
        arrivals=asked.arrivals,
        requests=asked.requests,
        no_oracle=True,
    )
    found: list[dict[str, object]] = getattr(peers, asked.experiment)(rows)
    return found


def rng(seed: int) -> np.random.Generator:
    """The simulator's chance."""
    return np.random.default_rng(seed)


def mean(values: list[float]) -> float:
    """Rounded."""
    return round(float(np.mean(values)), 4)


EXPERIMENTS = {"saturate": saturate, "churn": churn, "pack": pack_asks}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("--gpus", type=int, nargs="+", default=[100])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--mix", nargs="+", choices=MIXES, default=list(MIXES))
    parser.add_argument("--load", type=float, default=1.0)
    parser.add_argument("--arrivals", type=int, default=4_000)
    parser.add_argument("--moves", type=float, default=0.2, help="per arrival, churn only")
    parser.add_argument("--requests", type=int, nargs="+", default=[50, 200])
    parser.add_argument("--peers", type=Path, help="mig_sim.py")
    asked = parser.parse_args()
    for row in EXPERIMENTS[asked.experiment](asked):
        line = {"experiment": asked.experiment, "policy": "product", "seeds": asked.seeds, **row}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    if asked.peers:
        peers_rows(asked)


if __name__ == "__main__":
    main()
