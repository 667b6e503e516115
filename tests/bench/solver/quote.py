"""The duration of a quote: `python -m tests.bench.solver.quote --gpus 6212 --allocations 100000`.

Every GPU is booked ahead for windows on the grid over four weeks, one after the other with gaps,
and each of them may be rebound at its time; the questions are the mix of
`tests.bench.solver.cycle`, half of them for a fixed window. In process, on an
`Availability` that is kept. A JSON line on stdout, milliseconds.
"""

import argparse
import json
import random
import sys
import time
from dataclasses import replace

from solver import Ask, Gpu, Held, Place, Policy, QuoteRequest, Snapshot
from solver.cycle.quote import Availability
from tests.bench.machine import machine, spread
from tests.bench.solver.cycle import CLASSES, a_fleet, a_request_of, timed
from tests.solver.builders import DAY, HOUR, MODELS, NOON

GRID = 300


def booked(fleet: tuple[Gpu, ...], count: int, days: int, chance: random.Random) -> list[Held]:
    """`count` windows in the future, equally many on each GPU."""
    found: list[Held] = []
    each, rest = divmod(count, len(fleet))
    for number, gpu in enumerate(fleet):
        windows = each + (number < rest)
        length = days * DAY // GRID // max(1, windows)
        for window in range(windows):
            first = window * length + chance.randrange(1, max(2, length // 2))
            last = min((window + 1) * length, first + max(1, chance.randrange(length)))
            found.append(
                Held(
                    id=f"{gpu.id}/{window}",
                    booking=f"h-{gpu.id}-{window}",
                    tenant=f"t{number % 12}",
                    project=f"p{number % 40}",
                    place=Place(gpu.id, None, 0, 8),
                    starts=NOON + first * GRID,
                    ends=NOON + last * GRID,
                    started=False,
                    tier="standard",
                    level="any",
                )
            )
    return found


def first_question(count: int) -> QuoteRequest:
    """A window for so many GPUs that other bookings have to move."""
    ask = Ask(count, ("h100",), None, "any", required=False)
    return QuoteRequest(ask, 6 * HOUR, NOON, None, fixed=True, tenant="t1", project="p1")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=6212)
    parser.add_argument("--allocations", type=int, default=100_000)
    parser.add_argument("--days", type=int, default=28)
    parser.add_argument("--quotes", type=int, default=400)
    asked = parser.parse_args()
    chance = random.Random(7)  # noqa: S311  a made-up site, the same each time
    # Nodes of eight; the last one has fewer.
    fleet = a_fleet(-(-asked.gpus // (8 * len(CLASSES))) * 8 * len(CLASSES))[: asked.gpus]
    # The mode of a GPU that is booked whole is irrelevant here.
    fleet = tuple(replace(gpu, mode=None) for gpu in fleet)
    held = tuple(booked(fleet, asked.allocations, asked.days, chance))
    site = Snapshot(NOON, MODELS, fleet, held, (), (), ())
    policy = Policy(1, horizon=asked.days * DAY)
    availability, build = timed(lambda: Availability(site, policy))
    # The first search that looks for moves reads what may move: measured separately.
    _, first_ms = timed(lambda: availability.quote(first_question(asked.gpus // 5)))
    found: dict[bool, list[float]] = {True: [], False: []}
    cpu: list[float] = []
    options = 0
    for number in range(asked.quotes):
        request = a_request_of(number, chance)
        fixed = number % 2 == 0
        earliest = NOON + GRID * chance.randrange(asked.days * DAY // GRID) if fixed else NOON
        question = QuoteRequest(
            request.ask, request.duration, earliest, None, fixed, request.tenant, request.project
        )
        began, began_cpu = time.perf_counter(), time.process_time()
        answer = availability.quote(question)
        found[fixed].append(time.perf_counter() - began)
        cpu.append(time.process_time() - began_cpu)
        options += len(answer.options)
    result = {
        "gpus": len(fleet),
        "allocations": len(held),
        "quotes": asked.quotes,
        "options_mean": round(options / asked.quotes, 2),
        "build_ms": build,
        "first_ms": first_ms,
        "all": spread(found[True] + found[False]),
        "cpu": spread(cpu),
        "fixed": spread(found[True]),
        "flexible": spread(found[False]),
        "machine": machine(),
    }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
