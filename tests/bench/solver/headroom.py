"""What headroom gives and costs: `python -m tests.bench.solver.headroom`.

A class of 16 GPUs is full of work that can wait, with a queue behind it. From 9 to 17 o'clock short
bookings come that want to start at once, two an hour on average. For each number of GPUs that are kept free
in these hours: how long the short ones wait, what work that can wait loses, and what stays idle.
"""

import argparse
import json
import sys
from dataclasses import dataclass, field, replace
from random import Random
from statistics import mean, quantiles

from solver import Held, Place, PlannedStart, Policy, Request, Snapshot, solve
from solver.model.inner_limits import Peak
from tests.solver.builders import DAY, HOUR, a_request, a_snapshot, an_ask, gpus

GPUS, STEP = 16, 300
FROM, UNTIL = 9, 17
START = 1_800_014_400 // DAY * DAY
POLICY = Policy(1, headroom_for=(("flex", HOUR),))


@dataclass
class Site:
    """The class over time. Nobody is guaranteed anything, and nobody is paused."""

    kept: int
    seed: int
    days: int
    held: dict[str, Held] = field(default_factory=dict)
    waiting: dict[str, Request] = field(default_factory=dict)
    waits: dict[bool, list[int]] = field(default_factory=lambda: {True: [], False: []})
    idle_steps: int = 0
    long_gpu_seconds: int = 0

    def live(self) -> dict[str, float]:
        """Lives all days; the figures by name."""
        chance, now = Random(self.seed), START  # noqa: S311  a made-up past
        policy = replace(POLICY, headroom=(("h100", self.kept),))
        while now < START + self.days * DAY:
            self._ask(chance, now)
            self._decide(policy, now)
            busy = len(self.held)
            self.idle_steps += GPUS - busy if self._is_peak(now) else 0
            now += STEP
            self.held = {name: row for name, row in self.held.items() if row.ends > now}
        short = self.waits[True]
        return {
            "kept": self.kept,
            "short": len(short),
            "at_once_percent": round(100 * mean(wait < STEP for wait in short), 1),
            "wait_p50_minutes": round(quantiles(short, n=20)[9] / 60, 1),
            "wait_p95_minutes": round(quantiles(short, n=20)[18] / 60, 1),
            "idle_gpu_hours_a_day": round(self.idle_steps * STEP / 3600 / self.days, 1),
            "long_gpu_hours_a_day": round(self.long_gpu_seconds / 3600 / self.days, 1),
        }

    def _is_peak(self, now: int) -> bool:
        return FROM <= now % DAY // HOUR < UNTIL

    def _ask(self, chance: Random, now: int) -> None:
        name = f"{now}"
        if self._is_peak(now) and chance.random() < 2 * STEP / HOUR:
            self._add(f"short-{name}", chance.choice((0.5, 0.75, 1)), now)
        while sum(name.startswith("long") for name in self.waiting) < 6:
            self._add(f"long-{name}-{len(self.waiting)}", chance.choice((1, 2, 3, 4, 6, 8)), now)

    def _add(self, name: str, hours: float, now: int) -> None:
        request = a_request(name, an_ask(1), hours=hours, tier="flex")
        self.waiting[name] = replace(request, submitted=now, earliest=now)

    def _decide(self, policy: Policy, now: int) -> None:
        peaks = (
            Peak("h100", START + d * DAY + FROM * HOUR, START + d * DAY + UNTIL * HOUR)
            for d in range(self.days)
        )
        site = a_snapshot(*self.waiting.values(), fleet=gpus(GPUS), held=tuple(self.held.values()))
        plan = solve(self._at(site, now, tuple(each for each in peaks if each.ends > now)), policy)
        for each in plan.assigns:
            if each.starts > now + STEP:
                continue
            request = self.waiting.pop(each.booking)
            is_short = each.booking.startswith("short")
            self.waits[is_short].append(each.starts - request.submitted)
            self.long_gpu_seconds += 0 if is_short else each.ends - each.starts
            self.held[each.booking] = _held(each.booking, each.places[0], each.starts, each.ends)
        for wait in plan.waits:
            planned = PlannedStart(wait.starts, wait.ends, wait.places, wait.strength)
            self.waiting[wait.booking] = replace(self.waiting[wait.booking], planned=planned)

    def _at(self, site: Snapshot, now: int, peaks: tuple[Peak, ...]) -> Snapshot:
        return replace(site, now=now, peaks=peaks)


def _held(name: str, place: Place, starts: int, ends: int) -> Held:
    return Held(name, name, "lab", "folding", place, starts, ends, started=True, tier="flex")


def main() -> None:
    """Prints the figures for each number of GPUs that are kept free."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.solver.headroom", description=__doc__)
    parser.add_argument("--days", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for kept in (0, 1, 2, 4):
        sys.stdout.write(json.dumps(Site(kept, options.seed, options.days).live()) + "\n")


if __name__ == "__main__":
    main()
