"""Placement on the openb trace.

`python -m tests.bench.solver.openb --data DIR --pods NAME --seeds 42`.

Tasks arrive one by one and never end, until the demand is far above the capacity; a task that does
not fit is dropped. The score is the share of all GPUs that is allocated in the end. Each task is a
booking that starts now or never, decided by the cycle's own `CycleState` as `solve` would; a GPU
model is a class. JSON lines on stdout.

With `--moves PERCENT` a task that fits nowhere has others moved for it, by the code with which the
cycle moves what has not begun; here running tasks are moved. At no time have there been more moves
than so many per cent of the tasks with GPUs that run then; a task that is moved twice counts twice.
With `--growth` each seed is run again on twice the nodes. With `--peers FILE` the policies of that
simulator run on the same arrivals for comparison.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from solver import UNITS_PER_GPU, Ask, Policy, Request, Snapshot
from solver.fleet.mig_geometry import WHOLE_SHARE
from solver.model.demand import Demand, Fit, demands_of
from solver.model.ordering import in_order
from solver.rebinding.rebinding import Rebinding
from solver.state.cycle_state import CycleState
from tests.bench.solver.peers import peers_of
from tests.bench.solver.trace import (
    ORDERS,
    PLAIN,
    Row,
    arrivals,
    ask_of,
    fleet_of,
    nodes_of,
    permuted,
    pods_of,
    twice,
)
from tests.solver.builders import HOUR, a_request

PEER_COLUMNS = ("policy", "seed", "alloc_pct", "placed", "p50_ms", "p99_ms", "wall_s")


def request_of(number: int, ask: Ask) -> Request:
    """The task as a booking that starts now or never."""
    return replace(a_request(f"b{number:05}", ask), earliest=0)


class Site:
    """The trace's cluster as a cycle sees it."""

    def __init__(self, nodes: list[Row], asks: list[Ask], percent: float = 0) -> None:
        """Idle; `asks` are what has been asked for lately, `percent` of the tasks may be moved."""
        gpus, hosts = fleet_of(nodes)
        recent = tuple(request_of(n, ask) for n, ask in enumerate(asks) if ask.count)
        site = Snapshot(0, (PLAIN,), gpus, (), recent, (), (), hosts=hosts)
        self.state = CycleState(in_order(site), Policy(1, neighbourhoods=1_000_000))
        self.moves = Moves(self.state, site, percent)
        self._demands = {ask: demands_of(request_of(0, ask)) for ask in asks}

    def decide(self, ask: Ask) -> bool:
        """Places the task; returns False if it does not fit."""
        if not ask.count:
            return self._without_gpu(ask)
        demands = self._demands[ask]
        found = self.state.first_at(demands, 0) or self.moves.room(demands)
        if found is None:
            return False
        self.state.reserve(found)
        self.moves.started(found)
        return True

    def _without_gpu(self, ask: Ask) -> bool:
        """A task without GPU is no booking of the portal: it takes cores where there are many for
        each free GPU, and the product has to live with it."""
        best: tuple[int, str] | None = None
        for demand in self._demands[ask]:
            pool_state = self.state.windows.pool_state(demand, 0)
            free, nodes = pool_state.free, pool_state.pool.nodes
            if free is None:
                continue
            spare = free.cores * UNITS_PER_GPU // np.maximum(pool_state.units_left, 1)
            spare[(free.cores < ask.cores) | (free.memory < ask.memory)] = -1
            node = int(spare.argmax())
            if spare[node] >= 0 and (best is None or spare[node] > best[0]):
                best = (int(spare[node]), nodes[node])
        if best is None:
            return False
        self.state.all.hosts.take(best[1], (ask.cores, ask.memory), (0, HOUR))
        return True


class Moves:
    """Running tasks that make way, within a budget."""

    def __init__(self, state: CycleState, site: Snapshot, percent: float) -> None:
        """Nothing runs. Of the tasks that run at any time at most `percent` will have moved."""
        self._percent = percent
        self._reserved = Rebinding(state, site)
        self._running = self.made = 0

    def started(self, found: Fit) -> None:
        """It runs, and may be moved."""
        self._reserved.add(f"b{self._running:05}", found)
        self._running += 1

    def room(self, demands: tuple[Demand, ...]) -> Fit | None:
        """Room that others have made; None: there is none, or it costs too many moves."""
        left = int(self._percent * self._running) // 100 - self.made
        if left <= 0:
            return None
        mark = self._reserved.movable.mark()
        found = self._reserved.place_with_moves(demands, 0)
        if found is None:
            return None
        moved = self._reserved.movable.moved_since(mark)
        if moved > left:
            self._reserved.movable.back(mark)
            return None
        self.made += moved
        return found


def replay(nodes: list[Row], pods: list[Row], order: npt.NDArray[np.int64], percent: float) -> dict[str, Any]:
    """Runs the product once; times in milliseconds for a decision with its bookkeeping."""
    classes = tuple(sorted({node["model"] for node in nodes}))
    asks = [ask_of(pod, classes) for pod in pods]
    sizes = [int(pod["num_gpu"]) * int(pod["gpu_milli"]) for pod in pods]
    begun = time.perf_counter()
    site = Site(nodes, asks, percent)
    took: list[float] = []
    placed = used = 0
    for at in order.tolist():
        since = time.perf_counter()
        has_room = site.decide(asks[at])
        took.append((time.perf_counter() - since) * 1_000)
        if has_room and asks[at].count:
            placed += 1
            used += sizes[at]
    wall = time.perf_counter() - begun
    return {
        "alloc_pct": round(100 * used / capacity_of(nodes), 3),
        "placed": placed,
        **({"moves": site.moves.made, "moves_percent": percent} if percent else {}),
        "p50_ms": round(float(np.percentile(took, 50)), 3),
        "p99_ms": round(float(np.percentile(took, 99)), 3),
        "wall_s": round(wall, 2),
    }


def capacity_of(nodes: list[Row]) -> int:
    """Thousandths of all GPUs."""
    return sum(int(node["gpu"]) for node in nodes) * WHOLE_SHARE


def product_rows(pods: list[Row], nodes: list[Row], asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row per seed; with growth a second one for twice the nodes."""
    for seed in asked.seeds:
        first: dict[str, Any] | None = None
        for fleet in (nodes, twice(nodes)) if asked.growth else (nodes,):
            order = arrivals(pods, capacity_of(fleet), asked.ratio, asked.order, seed)
            row = replay(fleet, pods, order, asked.moves)
            if first is not None:
                row["p99_growth"] = round(row["p99_ms"] / first["p99_ms"], 2)
            first = row
            yield {"policy": "product", "seed": seed, "nodes": len(fleet), **row}


def peer_rows(
    peers: ModuleType, pods: list[Row], nodes: list[Row], asked: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """A row per policy and seed of the simulator."""
    for policy in asked.policies:
        for seed in asked.seeds:
            found = peers.run(nodes, pods, policy, asked.ratio, asked.order, seed)
            yield {name: found[name] for name in PEER_COLUMNS}


def arguments() -> argparse.ArgumentParser:
    """The options of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--nodes", default="openb_node_list_gpu_node")
    parser.add_argument("--pods", nargs="+", default=["openb_pod_list_default"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[42])
    parser.add_argument("--ratio", type=float, default=1.3)
    parser.add_argument("--order", default="shuffle", choices=ORDERS)
    parser.add_argument("--permute-names", type=int, metavar="SEED")
    parser.add_argument("--moves", type=float, default=0, metavar="PERCENT")
    parser.add_argument("--growth", action="store_true", help="again with twice the nodes")
    parser.add_argument("--peers", type=Path, help="openb_sim.py")
    parser.add_argument("--policies", nargs="+", default=["first-fit", "best-fit", "fgd"])
    return parser


def main() -> None:
    """Measures and prints."""
    asked = arguments().parse_args()
    nodes = nodes_of(asked.data, asked.nodes)
    if asked.permute_names is not None:
        nodes = permuted(nodes, asked.permute_names)
    lists = {name: pods_of(asked.data, name) for name in asked.pods}
    peers = peers_of(asked.peers) if asked.peers else None
    for name, pods in lists.items():
        others = peer_rows(peers, pods, nodes, asked) if peers else ()
        for row in chain(product_rows(pods, nodes, asked), others):
            sys.stdout.write(json.dumps({**row, "pods": name}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
