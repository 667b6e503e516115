"""`python -m tests.simulation --schedules N --first-seed S`: seeded schedules of faults.

Ends with two JSON lines: how often each kind of event happened, and {"schedules", "violations",
"seconds"}. A schedule that broke an invariant is printed with its seed and its log; the exit
status is 1 then.
"""

import argparse
import contextlib
import gc
import json
import logging
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter

from tests.simulation.schedules.coverage import KINDS, happened
from tests.simulation.schedules.planted import FAULTS, planted
from tests.simulation.schedules.schedule import schedule_run

_BATCH = 20
_STORIES = 5


def outcome_of(seed: int) -> tuple[str | None, Counter[str]]:
    """What went wrong in one schedule, or None, and what happened."""
    logging.disable(logging.CRITICAL)
    # A schedule is over before its cycles are worth looking for.
    gc.set_threshold(200_000)
    try:
        found = schedule_run(seed)
    except Exception:  # noqa: BLE001 (whatever it was, it was this seed's)
        return f"seed {seed}\n{traceback.format_exc()}", Counter()
    story = None
    if found.world.violations:
        story = "\n  ".join([f"seed {seed}", *found.story, *found.world.violations])
    return story, happened(found)


def main(arguments: list[str] | None = None) -> int:
    """1 when an invariant was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--schedules", type=int, default=2000)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--planted", choices=FAULTS, help="with this fault in the product")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    seeds = range(options.first_seed, options.first_seed + options.schedules)
    fault = planted(options.planted) if options.planted else contextlib.nullcontext()
    # The processes are begun with the fault in place.
    with fault, multiprocessing.get_context("fork").Pool(options.processes) as pool:
        results = list(pool.imap(outcome_of, seeds, _BATCH))
    stories = [story for story, _ in results if story is not None]
    for story in stories[:_STORIES]:
        sys.stdout.write(f"{story}\n")
    result = {
        "schedules": options.schedules,
        "violations": len(stories),
        "seconds": round(time.monotonic() - began, 1),
    }
    counts = sum((counted for _, counted in results), Counter())
    sys.stdout.write(json.dumps({kind: counts[kind] for kind in KINDS}) + "\n")
    sys.stdout.write(json.dumps(result) + "\n")
    return 1 if stories else 0


if __name__ == "__main__":
    sys.exit(main())
