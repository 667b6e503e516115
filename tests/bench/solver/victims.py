"""Cost of pauses against the minimum: `python -m tests.bench.solver.victims --cases 3000`.

Small random rooms (7 GPUs, up to ten running bookings: whole GPUs, gangs, slices) in which a gang
fits only after a preemption. Compared with ours: Kueue's way (remove in order, latest first, until
it fits, then put back in reverse what is not needed), and the exact minimum over all subsets. The
rooms are those of tests/solver/preemption/test_victims.py. For the ratios a second is added on
both sides, so that nothing is ever divided by nothing. JSON lines on stdout.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable

import numpy as np

from solver.fleet.pool import Bools
from solver.preemption.victims import VictimSearch
from solver.state.running import RunningBooking
from tests.bench.machine import spread
from tests.solver.preemption.test_victims import cases, chosen, least

Way = Callable[[VictimSearch, list[RunningBooking]], Bools]


def by_kueue(search: VictimSearch, runners: list[RunningBooking]) -> Bools:
    """Removes bookings until the gang fits, then restores in reverse order."""
    gone: Bools = np.zeros(len(runners), dtype=np.bool_)
    order = sorted(range(len(runners)), key=lambda at: runners[at].booking, reverse=True)
    for at in order:
        gone[at] = True
        if search.fits(gone):
            break
    for at in reversed(order):
        if gone[at]:
            gone[at] = False
            gone[at] = not search.fits(gone)
    return gone


WAYS: dict[str, Way] = {"product": chosen, "kueue": by_kueue}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=2)
    asked = parser.parse_args()
    ratios: dict[str, list[float]] = {name: [] for name in WAYS}
    totals = dict.fromkeys((*WAYS, "exact"), 0)
    took: dict[str, list[float]] = {name: [] for name in WAYS}
    for search, runners in cases(asked.seed, asked.cases):
        best = least(search, runners)
        totals["exact"] += best
        for name, way in WAYS.items():
            began = time.perf_counter()
            gone = way(search, runners)
            took[name].append(time.perf_counter() - began)
            lost = sum(runners[at].lost for at in np.flatnonzero(gone).tolist())
            totals[name] += lost
            ratios[name].append((lost + 1) / (best + 1))
    for name, values in ratios.items():
        values.sort()
        row = {
            "policy": name,
            "cases": asked.cases,
            "ratio_mean": round(sum(values) / len(values), 4),
            "ratio_p50": round(values[len(values) // 2], 4),
            "ratio_p99": round(values[-(-len(values) * 99 // 100) - 1], 4),
            "exact_cases": sum(value == 1 for value in values),
            "lost_gpu_hours": totals[name] // 3_600,
            "least_gpu_hours": totals["exact"] // 3_600,
            "lost_over_least": round(totals[name] / max(1, totals["exact"]), 4),
            **spread(took[name]),
        }
        sys.stdout.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
