"""Figures of a trial: waits, guarantees, pauses, use, money and energy under both versions.

A difference has an interval of 19 in 20 from days drawn again, each with the mean of all seeds; what
contains zero is called no effect. Pure, in whole numbers, so the same plays have the same report.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any

from allocation.features.policy_lab.history import Names
from allocation.features.policy_lab.past_rules import Prices, Repeated
from allocation.features.policy_lab.plays.jobs import DAY
from allocation.features.policy_lab.plays.past import Fate, History, Outcome, Past
from solver.model.inputs import MILLION, UNITS_PER_GPU

HOUR = 3_600
# A booking within its guarantee that starts so late has missed it.
LATE = 900
DRAWS = 400
LEAST_DAYS = 3
EXAMPLES = 20
# A difference of less than a turn is none.
SAME = 300
Report = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sides:
    """The plays of both versions, by seed."""

    active: tuple[Outcome, ...]
    candidate: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True)
class Input:
    """What a report is made of."""

    history: History
    names: Names
    sides: Sides
    prices: Prices
    candidate_prices: Prices
    energy: Mapping[str, tuple[int, int]]
    repeated: Mapping[str, Sequence[Repeated]] = field(default_factory=dict)
    """By side, how much work pauses make runs repeat."""
    foreseen: Mapping[str, int] = field(default_factory=dict)
    """By side, the days on which peaks were foreseen at which GPUs are kept free."""
    more_gpu_seconds: int = 0
    """The time of GPUs that only the candidate has."""


def report_of(found: Input) -> Report:
    """The whole report."""
    waits = _Waits(found)
    return {
        "begins": found.history.site.now,
        "ends": found.history.ends,
        "seeds": len(found.sides.active),
        "bookings": len(waits.came),
        "repeated": {side: [asdict(each) for each in rows] for side, rows in sorted(found.repeated.items())},
        "headroom_days": dict(sorted(found.foreseen.items())),
        "totals": _totals(found),
        "tiers": waits.rows(lambda past: past.request.tier),
        "tenants": _with_money(found, waits.rows(lambda past: found.names.tenants[past.request.tenant])),
        "projects": waits.rows(lambda past: _project(found.names, past)),
        "days": waits.days(),
        "longer": waits.examples(longer=True),
        "shorter": waits.examples(longer=False),
        "differs": waits.differing(),
    }


def _project(names: Names, past: Past) -> str:
    return f"{names.tenants[past.request.tenant]}/{names.projects[past.request.project]}"


class _Waits:
    """Waits of bookings under both versions, from what they asked for to their first start. Who did not
    start by the end has waited until then, at least."""

    def __init__(self, found: Input) -> None:
        self._found = found
        self._ends = found.history.ends
        self.came = [each for each in found.history.past if any(self._fates(each))]
        self._past = [each for each in self.came if not each.is_first and not each.request.fixed]

    def _fates(self, past: Past) -> Iterator[bool]:
        """Whether it entered the queue in each play: elements of long arrays may not."""
        for side in self._sides:
            yield from (outcome.fates[past.request.booking].came is not None for outcome in side)

    def rows(self, name_of: Callable[[Past], str]) -> list[Report]:
        """A row for each name, also where only fixed windows are known, which wait for nothing."""
        groups: dict[str, list[Past]] = {name_of(past): [] for past in self.came}
        for past in self._past:
            groups[name_of(past)].append(past)
        return [{"name": name, **self._row(groups[name])} for name in sorted(groups)]

    def days(self) -> list[Report]:
        """The mean wait of the bookings of each day, for a chart."""
        by_day: dict[int, list[Past]] = {}
        for past in self._past:
            by_day.setdefault(past.request.submitted // DAY * DAY, []).append(past)
        return [
            {"day": day, "active": _mean(active), "candidate": _mean(candidate)}
            for day in sorted(by_day)
            for active, candidate in [self._both(by_day[day])]
        ]

    def examples(self, *, longer: bool) -> list[Report]:
        """The bookings whose wait differs most, in the first seed."""
        rows = [(self._change(past, 0), past) for past in self._past]
        sign = 1 if longer else -1
        rows = [row for row in rows if sign * row[0] >= SAME]
        rows.sort(key=lambda row: (-sign * row[0], row[1].request.booking))
        return [self._example(change, past) for change, past in rows[:EXAMPLES]]

    def differing(self) -> Report:
        """How many wait longer, and how many shorter, in the first seed."""
        changes = [self._change(past, 0) for past in self._past]
        return {
            "longer": sum(each >= SAME for each in changes),
            "shorter": sum(each <= -SAME for each in changes),
            "same": sum(abs(each) < SAME for each in changes),
        }

    def _example(self, change: int, past: Past) -> Report:
        request, names = past.request, self._found.names
        active, candidate = (side[0].fates[request.booking] for side in self._sides)
        return {
            "booking": request.booking,
            "label": names.bookings[request.booking],
            "tenant": names.tenants[request.tenant],
            "project": names.projects[request.project],
            "tier": request.tier,
            "active": self._wait(past, active),
            "candidate": self._wait(past, candidate),
            "change": change,
        }

    @property
    def _sides(self) -> tuple[tuple[Outcome, ...], tuple[Outcome, ...]]:
        return self._found.sides.active, self._found.sides.candidate

    def _change(self, past: Past, seed: int) -> int:
        active, candidate = (side[seed].fates[past.request.booking] for side in self._sides)
        if active.refused or candidate.refused:
            return 0
        # An element of an array that comes earlier and waits as long starts earlier.
        return self._until(past, candidate) - self._until(past, active)

    def _wait(self, past: Past, fate: Fate) -> int:
        came = past.request.submitted if fate.came is None else fate.came
        return max(0, self._until(past, fate) - max(came, past.request.earliest))

    def _until(self, past: Past, fate: Fate) -> int:
        """When it started, was cancelled, or the history ended; what was to come later, then."""
        until = self._ends if fate.started is None else fate.started
        if fate.started is None and fate.cancelled and past.cancelled is not None:
            until = past.cancelled
        return max(until, past.request.submitted, past.request.earliest)

    def _both(self, group: Sequence[Past]) -> tuple[list[int], list[int]]:
        """Waits of a group of all seeds, without who is refused."""
        active, candidate = (
            [
                self._wait(past, outcome.fates[past.request.booking])
                for outcome in side
                for past in group
                if (fate := outcome.fates[past.request.booking]).came is not None and not fate.refused
            ]
            for side in self._sides
        )
        return active, candidate

    def _row(self, group: Sequence[Past]) -> Report:
        active, candidate = self._both(group)
        by_day: dict[int, list[int]] = {}
        for past in group:
            changes = [self._change(past, seed) for seed in range(len(self._found.sides.active))]
            by_day.setdefault(past.request.submitted // DAY, []).append(_mean(changes))
        return {
            "asked": len(group),
            "active": _waits(active) | self._counts(group, self._found.sides.active),
            "candidate": _waits(candidate) | self._counts(group, self._found.sides.candidate),
            **_interval([_mean(by_day[day]) for day in sorted(by_day)]),
        }

    def _counts(self, group: Sequence[Past], side: Sequence[Outcome]) -> Report:
        """Starts, refusals and pauses of a group, by seed on average."""
        fates = [outcome.fates[past.request.booking] for outcome in side for past in group]
        return {
            "started": sum(fate.started is not None for fate in fates) // len(side),
            "refused": sum(bool(fate.refused) for fate in fates) // len(side),
            "pauses": sum(fate.pauses for fate in fates) // len(side),
        }


def _waits(waits: list[int]) -> Report:
    ordered = sorted(waits)
    return {"p50": _rank(ordered, 50), "p95": _rank(ordered, 95), "mean": _mean(ordered)}


def _interval(days: Sequence[int]) -> Report:
    """The mean change in seconds, its interval, and what that says."""
    if len(days) < LEAST_DAYS:
        return {"change": _mean(days), "low": None, "high": None, "effect": "unknown"}
    draw = Random(1)  # noqa: S311 (not a secret)
    means = sorted(_mean(draw.choices(days, k=len(days))) for _ in range(DRAWS))
    low, high = means[DRAWS * 25 // 1_000], means[DRAWS * 975 // 1_000]
    effect = "longer" if low > 0 else "shorter" if high < 0 else "none"
    return {"change": _mean(days), "low": low, "high": high, "effect": effect}


def _totals(found: Input) -> Report:
    return {
        "active": _total(found, found.sides.active, 0),
        "candidate": _total(found, found.sides.candidate, found.more_gpu_seconds),
    }


def _total(found: Input, side: Sequence[Outcome], more: int) -> Report:
    fates = [(past, outcome.fates[past.request.booking]) for outcome in side for past in found.history.past]
    used = sum(outcome.used.total() for outcome in side)
    span = found.history.ends - found.history.site.now
    room = (len(found.history.site.gpus) * span + more) * UNITS_PER_GPU * len(side)
    return {
        "started": sum(fate.started is not None for _, fate in fates) // len(side),
        "refused": sum(bool(fate.refused) for _, fate in fates) // len(side),
        "guarantees_missed": sum(_is_missed(found.history, *each) for each in fates) // len(side),
        "pauses": sum(fate.pauses for _, fate in fates) // len(side),
        "lost_gpu_seconds": sum(fate.lost for _, fate in fates) // len(side),
        "gpu_seconds": used // UNITS_PER_GPU // len(side),
        "utilisation_ppm": used * MILLION // room if room else 0,
        "watt_hours": _energy(found.energy, side),
        "turns": sum(outcome.turns for outcome in side) // len(side),
    }


def _is_missed(history: History, past: Past, fate: Fate) -> bool:
    """Whether a booking within its organisation's guarantee began late."""
    if not fate.inside or fate.refused or fate.cancelled or past.is_first or fate.came is None:
        return False
    began = history.ends if fate.started is None else fate.started
    return began - max(fate.came, past.request.earliest) > LATE


def _energy(energy: Mapping[str, tuple[int, int]], side: Sequence[Outcome]) -> int | None:
    """Watt-hours at the power that each class was measured with; None if one in use was not measured."""
    total = 0
    for outcome in side:
        for (_, _, gpu_class, *_), units in outcome.used.items():
            if gpu_class not in energy:
                return None
            millijoules, measured = energy[gpu_class]
            total += units * millijoules // measured
    return total // 3_600_000 // len(side)


def _with_money(found: Input, rows: list[Report]) -> list[Report]:
    """Adds to each organisation its GPU-hours, and what they cost at present prices."""
    sides = (
        ("active", found.sides.active, found.prices),
        ("candidate", found.sides.candidate, found.candidate_prices),
    )
    for row in rows:
        for name, side, prices in sides:
            row[name] |= _spent(found, row["name"], side, prices)
    return rows


def _spent(found: Input, tenant: str, side: Sequence[Outcome], prices: Prices) -> Report:
    """Unit-seconds as GPU-seconds, and their price, in peak hours and at first starts, in steps of the
    ledger."""
    used = money = setup = 0
    for outcome in side:
        for use, units in outcome.used.items():
            if found.names.tenants.get(use[0]) != tenant:
                continue
            usual, peak = prices.rate(use[2:])
            used += units
            money += units * usual + outcome.peak[use] * (peak - usual)
        for past in found.history.past:
            is_begun = outcome.fates[past.request.booking].started is not None and not past.is_first
            if is_begun and found.names.tenants[past.request.tenant] == tenant:
                setup += prices.setups.get(past.request.tier, 0)
    whole = UNITS_PER_GPU * len(side)
    return {"gpu_seconds": used // whole, "money": money // (whole * HOUR) + setup // len(side)}


def _rank(ordered: Sequence[int], percent: int) -> int | None:
    """Nearest rank, so that the value has occurred; None for no values."""
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else None


def _mean(values: Iterable[int]) -> int:
    """Rounded towards zero, so that a change and its opposite are alike."""
    found = list(values)
    return int(sum(found) / len(found)) if found else 0
