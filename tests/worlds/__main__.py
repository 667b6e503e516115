"""Random worlds by command: `python -m tests.worlds --worlds N --first-seed S`.

The last line is JSON. `--show` names what was found.
"""

import argparse
import gc
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial

from tests.worlds.found import Found
from tests.worlds.life import World
from tests.worlds.messages import MOST_PER_BOOKING
from tests.worlds.oracle import Oracle

REQUESTS = (
    *("changed", "kept", "waited", "soft", "offers"),
    *("orders", "released", "ordered_pauses"),
)
"""Changes that were granted, were refused, and waited; places for approvals, and offers; operators'
orders to move work, idle bookings that had to leave, and pauses that operators ordered."""


def world_check(seed: int) -> tuple[int, Found]:
    """Lives one world from its first turn to its last."""
    gc.disable()  # As a turn of the portal runs.
    world = World.of(seed)
    oracle = Oracle(world)
    for turn in world.turns():
        oracle.look(turn)
    gc.enable()
    return seed, oracle.end()


def worlds_check(seeds: range, workers: int) -> list[tuple[int, Found]]:
    """All of them, next to each other where there are cores."""
    if workers == 1:
        return [world_check(seed) for seed in seeds]
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(partial(world_check), seeds, chunksize=4))


def main() -> int:
    """Prints what was found; the status is 1 if anything was."""
    parser = argparse.ArgumentParser(prog="python -m tests.worlds", description=__doc__)
    parser.add_argument("--worlds", type=int, default=200)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--show", action="store_true", help="name each finding")
    options = parser.parse_args()
    began = time.monotonic()
    seeds = range(options.first_seed, options.first_seed + options.worlds)
    found = worlds_check(seeds, options.workers)
    rows = [asdict(each) for _, each in found]
    kinds = ("violations", "rings", "inside_guarantee", "later")
    if options.show:
        for seed, each in found:
            for kind in (*kinds, "pairs"):
                for what in asdict(each)[kind]:
                    sys.stdout.write(f"{seed} {kind}: {what}\n")
    bookings, messages = (sum(each[name] for each in rows) for name in ("bookings", "messages"))
    is_often = messages > MOST_PER_BOOKING * bookings
    sys.stdout.write(f"{messages} messages about later starts of {bookings} bookings\n")
    total = {
        "worlds": len(found),
        "cycles": sum(each.cycles for _, each in found),
        "pauses": sum(each.pauses for _, each in found),
        "mixed": sum(each.mixed for _, each in found),
        **{kind: sum(each.requests[kind] for _, each in found) for kind in REQUESTS},
        **{kind: sum(len(asdict(each)[kind]) for _, each in found) for kind in kinds},
        "seconds": round(time.monotonic() - began, 1),
    }
    sys.stdout.write(json.dumps(total) + "\n")
    return int(is_often or any(total[kind] for kind in kinds))


if __name__ == "__main__":
    sys.exit(main())
