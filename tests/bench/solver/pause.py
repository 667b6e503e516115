"""The duration of a cycle that has to pause bookings.

`python -m tests.bench.solver.pause --gpus 1000 --arrivals 200`.

Every GPU runs spot of tenants without a guarantee; guaranteed bookings arrive, for whole GPUs,
gangs on one node and slices. JSON on stdout, times in milliseconds.
"""

import argparse
import json
import random
import sys
from dataclasses import replace

from solver import Ask, Held, Limit, Place, Policy, Request, Snapshot, Tier, solve
from tests.bench.solver.cycle import decided, timed
from tests.solver.builders import HOUR, MODELS, NOON, gpus

TIERS = (
    Tier("standard", pausable=False, counts=True, priority=50),
    Tier("spot", pausable=True, counts=False, priority=10, grace=30),
)
ASKS = (
    Ask(1, ("h100",), None, "any", required=False),
    Ask(2, ("h100",), None, "node", required=True),
    Ask(4, ("h100",), None, "domain", required=True),
    Ask(1, ("h100",), "3g.40gb", "any", required=False),
)


def a_site(gpu_count: int, arrivals: int) -> Snapshot:
    """The same site for the same numbers."""
    chance = random.Random(7)  # noqa: S311  a made-up site, the same each time
    fleet = tuple(
        gpu
        for number in range(gpu_count // 8)
        for gpu in gpus(8, node=f"n{number:04}", rack=f"r{number // 4:03}")
    )
    held = tuple(
        Held(
            id=gpu.id,
            booking=f"s-{gpu.id}",
            tenant=f"t{chance.randrange(12)}",
            project="p",
            place=Place(gpu.id, None, 0, 8),
            starts=NOON - chance.randint(HOUR, 9 * HOUR),
            ends=NOON + chance.randint(HOUR, 24 * HOUR),
            started=True,
            tier="spot",
            since=NOON - HOUR,
            saved=NOON - chance.randint(0, HOUR),
        )
        for gpu in fleet
    )
    requests = tuple(
        Request(
            booking=f"b{number:04}",
            tenant="lab",
            project="lab-p",
            tier="standard",
            priority=50,
            submitted=NOON - chance.randint(0, HOUR),
            ask=chance.choice(ASKS),
            duration=HOUR * chance.choice((1, 4, 24)),
            earliest=NOON,
            latest=None,
            fixed=False,
            planned=None,
        )
        for number in range(arrivals)
    )
    limits = (Limit("lab", None, "h100", gpu_count * 56_000, 0, None),)
    return replace(Snapshot(NOON, MODELS, fleet, held, requests, (), limits), tiers=TIERS)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int, default=1000)
    parser.add_argument("--arrivals", type=int, default=200)
    asked = parser.parse_args()
    site = a_site(asked.gpus, asked.arrivals)
    solve(replace(site, requests=site.requests[:2]), Policy(1))  # tables of the models
    plan, took = timed(lambda: decided(site, Policy(1)))
    starts = [row.starts for row in plan.assigns] + [row.starts for row in plan.waits]
    result = {
        "gpus": len(site.gpus),
        "arrivals": asked.arrivals,
        "solve_ms": took,
        "paused": len(plan.pauses),
        "lost_gpu_seconds": sum(pause.lost for pause in plan.pauses),
        "started_within_the_notice": sum(start <= NOON + 30 for start in starts),
        "solve_ms_nobody_pausable": timed(lambda: decided(replace(site, tiers=()), Policy(1)))[1],
    }
    sys.stdout.write(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
