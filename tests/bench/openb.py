"""Placement on the openb trace: `python -m tests.bench.openb --data DIR --pods NAME --seeds 42`.

Tasks arrive one by one and never leave until far more was asked for than there is; what does not
fit is dropped. The score is the part of all GPUs that is taken in the end. Each task is a booking
that starts now or never, decided by the cycle's own `Working` as `solve` would; a GPU model is a
class. With `--peers FILE` the policies of that simulator run beside the product on the same
arrivals. JSON lines on stdout.
"""

import argparse
import csv
import gzip
import importlib.util
import json
import random
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import numpy.typing as npt

from allocation.solver import UNITS_PER_GPU, Ask, Gpu, Host, Model, Policy, Request, Snapshot
from allocation.solver.geometry import WHOLE_SHARE
from allocation.solver.ordering import in_order
from allocation.solver.want import wants_of
from allocation.solver.working import Working
from tests.solver.builders import HOUR, a_request

Row = dict[str, str]

PLAIN = Model("plain", 8, 7, "online", ())

PEER_COLUMNS = ("policy", "seed", "alloc_pct", "placed", "p50_ms", "p99_ms", "wall_s")


def read_rows(folder: Path, name: str) -> list[Row]:
    """A table of the trace. SystemExit: not there."""
    packed = folder / f"{name}.csv.gz"
    if packed.exists():
        with gzip.open(packed, "rt", newline="") as lines:
            return list(csv.DictReader(lines))
    plain = folder / f"{name}.csv"
    if not plain.exists():
        raise SystemExit(f"no such table: {name}")
    with plain.open(newline="") as lines:
        return list(csv.DictReader(lines))


def fleet_of(nodes: list[Row]) -> tuple[tuple[Gpu, ...], tuple[Host, ...]]:
    """The nodes of the trace; the model is the class, no GPU can be sliced."""
    gpus: list[Gpu] = []
    for row in nodes:
        for index in range(int(row["gpu"])):
            gpus.append(
                Gpu(
                    id=f"{row['sn']}/{index}",
                    number=len(gpus),
                    node=row["sn"],
                    rack="r",
                    index=index,
                    gpu_class=row["model"],
                    model=PLAIN.slug,
                    domain=None,
                    usable=True,
                    mode=None,
                )
            )
    hosts = (Host(row["sn"], int(row["cpu_milli"]), int(row["memory_mib"])) for row in nodes)
    return tuple(gpus), tuple(hosts)


def ask_of(row: Row, classes: tuple[str, ...]) -> Ask:
    """A task of the trace; one without a GPU has a count of 0, which no booking has."""
    count, share = int(row["num_gpu"]), int(row["gpu_milli"])
    named = tuple(sorted((row.get("gpu_spec") or "|".join(classes)).split("|")))
    each = max(count, 1)
    return Ask(
        count=count,
        classes=named,
        profile=None,
        together="node",
        required=True,
        share=share if 0 < share < WHOLE_SHARE else None,
        cores=int(row["cpu_milli"]) // each,
        memory=int(row["memory_mib"]) // each,
        any_class=True,
    )


def request_of(number: int, ask: Ask) -> Request:
    """The task as a booking that starts now or never."""
    return replace(a_request(f"b{number:05}", ask), earliest=0)


def arrivals(
    pods: list[Row], capacity: int, ratio: float, order: str, seed: int
) -> npt.NDArray[np.int64]:
    """The list of tasks, trimmed or drawn again until it asks for `ratio` × the capacity.

    The same numbers from the same seeds as the published simulators' protocol.
    """
    chance = np.random.default_rng(seed)
    weight = np.array([int(p["num_gpu"]) * int(p["gpu_milli"]) for p in pods], dtype=np.int64)
    index = np.arange(len(pods))
    if order == "shuffle":
        index = chance.permutation(index)
    else:
        times = [int(pod["creation_time"]) for pod in pods]
        index = np.array(sorted(index.tolist(), key=lambda at: (times[at], at)))
    if order == "arrival":
        return index
    chosen, most, total = index.tolist(), ratio * capacity, int(weight.sum())
    while total > most:
        total -= int(weight[chosen.pop(int(chance.integers(len(chosen))))])
    while True:
        more = int(chance.integers(len(pods)))
        if total + weight[more] > most:
            break
        chosen.append(more)
        total += int(weight[more])
    if order == "shuffle":
        chosen = [chosen[at] for at in chance.permutation(len(chosen))]
    return np.array(chosen)


def permuted(nodes: list[Row], seed: int) -> list[Row]:
    """The same nodes under each other's names."""
    names = [node["sn"] for node in nodes]
    random.Random(seed).shuffle(names)  # noqa: S311  a made-up order
    renamed = [{**node, "sn": name} for node, name in zip(nodes, names, strict=True)]
    return sorted(renamed, key=lambda node: node["sn"])


class Site:
    """The trace's cluster as a cycle sees it."""

    def __init__(self, nodes: list[Row], asks: list[Ask]) -> None:
        """Idle; `asks` are what has been asked for lately."""
        gpus, hosts = fleet_of(nodes)
        recent = tuple(request_of(n, ask) for n, ask in enumerate(asks) if ask.count)
        site = Snapshot(0, (PLAIN,), gpus, (), recent, (), (), hosts=hosts)
        self.working = Working(in_order(site), Policy(1))
        self._wants = {ask: wants_of(request_of(0, ask)) for ask in asks}

    def decide(self, ask: Ask) -> int:
        """Give the task its room, or not; thousandths of GPUs that it got."""
        if not ask.count:
            self._without_gpu(ask)
            return 0
        found = self.working.first_at(self._wants[ask], 0)
        if found is None:
            return 0
        self.working.reserve(found)
        return ask.count * (ask.share or WHOLE_SHARE)

    def _without_gpu(self, ask: Ask) -> None:
        """What needs no GPU is no booking of the portal's: it takes cores where there are many for
        each free GPU, and the product has to live with it."""
        best: tuple[int, str] | None = None
        for want in self._wants[ask]:
            ground = self.working.ground(want, 0)
            free, nodes = ground.free, ground.pool.nodes
            if free is None:
                continue
            spare = free.cores * UNITS_PER_GPU // np.maximum(ground.units_left, 1)
            spare[(free.cores < ask.cores) | (free.memory < ask.memory)] = -1
            node = int(spare.argmax())
            if spare[node] >= 0 and (best is None or spare[node] > best[0]):
                best = (int(spare[node]), nodes[node])
        if best is not None:
            self.working.hosts.take(best[1], (ask.cores, ask.memory), (0, HOUR))


def replay(nodes: list[Row], asks: list[Ask], order: npt.NDArray[np.int64]) -> dict[str, object]:
    """One run of the product; times in milliseconds for a decision with its bookkeeping."""
    begun = time.perf_counter()
    site = Site(nodes, asks)
    took: list[float] = []
    placed = used = 0
    for at in order.tolist():
        since = time.perf_counter()
        got = site.decide(asks[at])
        took.append((time.perf_counter() - since) * 1_000)
        placed += got > 0
        used += got
    wall = time.perf_counter() - begun
    total = sum(int(node["gpu"]) for node in nodes) * WHOLE_SHARE
    return {
        "alloc_pct": round(100 * used / total, 3),
        "placed": placed,
        "p50_ms": round(float(np.percentile(took, 50)), 3),
        "p99_ms": round(float(np.percentile(took, 99)), 3),
        "wall_s": round(wall, 2),
    }


def peers_of(path: Path) -> ModuleType:
    """The simulator with the other policies."""
    spec = importlib.util.spec_from_file_location("openb_peers", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"cannot be imported: {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows_of(
    pods: list[Row], nodes: list[Row], asked: argparse.Namespace
) -> list[dict[str, object]]:
    """A row per seed of the product, then of each peer."""
    classes = tuple(sorted({node["model"] for node in nodes}))
    asks = [ask_of(pod, classes) for pod in pods]
    capacity = sum(int(node["gpu"]) for node in nodes) * 1_000
    rows: list[dict[str, object]] = []
    for seed in asked.seeds:
        order = arrivals(pods, capacity, asked.ratio, asked.order, seed)
        rows.append({"policy": "product", "seed": seed, **replay(nodes, asks, order)})
    peers = peers_of(asked.peers) if asked.peers else None
    for policy in asked.policies if peers else ():
        for seed in asked.seeds:
            found = peers.run(nodes, pods, policy, asked.ratio, asked.order, seed)  # type: ignore[union-attr]  # asked above
            rows.append({name: found[name] for name in PEER_COLUMNS})
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--nodes", default="openb_node_list_gpu_node")
    parser.add_argument("--pods", nargs="+", default=["openb_pod_list_default"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[42])
    parser.add_argument("--ratio", type=float, default=1.3)
    orders = ["shuffle", "arrival", "arrival-inflated", "sorted"]
    parser.add_argument("--order", default="shuffle", choices=orders)
    parser.add_argument("--permute-names", type=int, metavar="SEED")
    parser.add_argument("--peers", type=Path, help="openb_sim.py")
    parser.add_argument("--policies", nargs="+", default=["first-fit", "best-fit", "fgd"])
    asked = parser.parse_args()
    nodes = read_rows(asked.data, asked.nodes)
    if asked.permute_names is not None:
        nodes = permuted(nodes, asked.permute_names)
    for name in asked.pods:
        for row in rows_of(read_rows(asked.data, name), nodes, asked):
            sys.stdout.write(json.dumps({**row, "pods": name}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
