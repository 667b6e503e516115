"""The gain of late binding.

`python -m tests.bench.solver.moves --gpus 16 --bookings 400 --seeds 5`.

Windows are requested one by one, hours to days ahead, each decided by a separate cycle; some are
cancelled before they start. The same arrivals run with rows that may move and with rows that keep
their first place. JSON lines on stdout.
"""

import argparse
import json
import sys
import time
from dataclasses import dataclass, field, replace
from random import Random

from solver import Assign, Held, Policy, Request, Snapshot
from tests.bench.solver.cycle import decided
from tests.solver.builders import HOUR, a_request, a_snapshot, an_ask, gpus
from tests.solver.world import level_of, moved

POLICY = Policy(1)
SHAPES = ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", None, None, None)
SLOTS = {"1g.10gb": 1, "1g.20gb": 2, "2g.20gb": 2, "3g.40gb": 4, "4g.40gb": 4, None: 8}


def requests(count: int, hours: int, chance: Random) -> list[Request]:
    """Fixed windows in the next so many hours."""
    found = []
    for number in range(count):
        shape = chance.choice(SHAPES)
        many = chance.choice((1, 1, 1, 2, 4)) if shape is None else 1
        ask = an_ask(many, profile=shape, together="node", required=many > 1)
        length, starts = chance.choice((1, 2, 4, 8)), chance.randint(1, hours)
        found.append(a_request(f"b{number:05}", ask, hours=length, earliest=starts * HOUR, fixed=True))
    return found


@dataclass
class Site:
    """A fleet with its calendar; with `may_move` its rows may be rebound."""

    calendar: Snapshot
    may_move: bool
    let_in: int = 0
    slot_hours: int = 0
    moves: int = 0
    times: list[float] = field(default_factory=list)

    def decide(self, request: Request) -> None:
        """One cycle for one booking."""
        began = time.perf_counter()
        plan = decided(replace(self.calendar, requests=(request,)), POLICY)
        self.times.append((time.perf_counter() - began) * 1_000)
        rows = [row for given in plan.assigns for row in self._rows(request, given)]
        self.let_in += len(plan.assigns)
        self.slot_hours += sum(SLOTS[request.ask.profile] * request.duration // HOUR for _ in rows)
        self.moves += len(plan.moves)
        self.calendar = replace(self.calendar, held=(*moved(self.calendar.held, plan), *rows))

    def cancel(self, booking: str) -> None:
        """Cancels a booking before it starts, if it was accepted."""
        held = tuple(row for row in self.calendar.held if row.booking != booking)
        self.calendar = replace(self.calendar, held=held)

    def _rows(self, request: Request, given: Assign) -> list[Held]:
        people = (request.booking, request.tenant, request.project)
        level = level_of(request) if self.may_move else None
        return [
            Held(
                f"{request.booking}/{n}",
                *people,
                place,
                given.starts,
                given.ends,
                started=False,
                level=level,
            )
            for n, place in enumerate(given.places)
        ]


def run(asked: argparse.Namespace, seed: int, *, may_move: bool) -> Site:
    """All arrivals of a seed."""
    chance = Random(seed)  # noqa: S311  made-up work, the same each time
    fleet = tuple(gpu for n in range(asked.gpus // 8) for gpu in gpus(8, node=f"n{n:03}"))
    site = Site(a_snapshot(fleet=fleet), may_move)
    for number, request in enumerate(requests(asked.bookings, asked.hours, chance)):
        site.decide(request)
        if chance.random() < asked.cancelled:
            site.cancel(f"b{chance.randint(0, number):05}")
    return site


def measured(asked: argparse.Namespace, seed: int) -> dict[str, object]:
    """Both ways of one seed."""
    stays, goes = (run(asked, seed, may_move=flag) for flag in (False, True))
    at = len(goes.times) * 99 // 100
    return {
        "seed": seed,
        "asked": asked.bookings,
        "let_in": goes.let_in,
        "let_in_without": stays.let_in,
        "slot_hours": goes.slot_hours,
        "slot_hours_without": stays.slot_hours,
        "gain_pct": round(100 * goes.slot_hours / stays.slot_hours - 100, 2),
        "moves_per_booking": round(goes.moves / asked.bookings, 3),
        "ms_mean": round(sum(goes.times) / len(goes.times), 1),
        "ms_mean_without": round(sum(stays.times) / len(stays.times), 1),
        "ms_p99": round(sorted(goes.times)[at], 1),
    }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int, default=16, help="a multiple of eight")
    parser.add_argument("--bookings", type=int, default=400)
    parser.add_argument("--hours", type=int, default=72)
    parser.add_argument("--cancelled", type=float, default=0.2, help="chance after each arrival")
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args()
    for seed in range(asked.seeds):
        sys.stdout.write(json.dumps(measured(asked, seed)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
