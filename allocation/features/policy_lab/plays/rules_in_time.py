"""Limits that depend on the time: caps of GPU-hours, exceptions, limits at some times, and peaks."""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from allocation.services.snapshot.limits_in_time import HORIZON_DAYS, CapRule, caps_at
from solver import Cap, Override, Used
from solver.model.inner_limits import Peak

DAY = 86_400
_AHEAD = HORIZON_DAYS * DAY


@dataclass(frozen=True, slots=True)
class Granted:
    """An exception from a limit, and when it was known: [known, gone), without an end if `gone` is None."""

    known: int
    gone: int | None
    row: Override


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The peaks that a forecast foresaw, from when it was made on."""

    known: int
    peaks: tuple[Peak, ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of GPU-hour caps, exceptions, steps of limits at some times, and peaks in the order in which
    they were foreseen."""

    caps: tuple[CapRule, ...] = ()
    exceptions: tuple[Granted, ...] = ()
    steps: tuple[Override, ...] = ()
    foreseen: tuple[Foreseen, ...] = ()

    def edges(self) -> set[int]:
        """The instants at which something is known that was not before."""
        known = {each.known for each in self.exceptions} | {each.known for each in self.foreseen}
        return known | {each.gone for each in self.exceptions if each.gone is not None}


NO_RULES = Rules()


class RulesInTime:
    """The sections of snapshots that rules give, kept as long as they stay the same."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._edges = sorted(rules.edges())
        self._foreseen = [each.known for each in rules.foreseen]
        self._until, self._overrides = -1, tuple[Override, ...]()
        self._month, self._caps = (0, 0), tuple[Cap, ...]()

    def sections(self, now: int, used: Callable[[], Iterable[Used]]) -> dict[str, Any]:
        """Returns the sections at an instant that never is before the last one. `used`: the use so far."""
        if self._rules == NO_RULES:
            return {}
        return {
            "caps": self._caps_at(now, used),
            "overrides": self._overrides_at(now),
            "peaks": self._peaks_at(now),
        }

    def _caps_at(self, now: int, used: Callable[[], Iterable[Used]]) -> tuple[Cap, ...]:
        if self._rules.caps:
            at = datetime.fromtimestamp(now, UTC)
            month = (at.year, at.month)
            if month != self._month:
                self._month, self._caps = month, caps_at(self._rules.caps, tuple(used()), at)
        return self._caps

    def _overrides_at(self, now: int) -> tuple[Override, ...]:
        """Exceptions that are granted, and steps of the coming months; both change at midnight at least."""
        if now >= self._until:
            day = now // DAY * DAY
            later = self._edges[bisect_right(self._edges, now) :]
            self._until = min(later[0] if later else day + DAY, day + DAY)
            granted = (
                each.row
                for each in self._rules.exceptions
                if each.known <= now and (each.gone is None or now < each.gone)
            )
            self._overrides = (
                *(row for row in granted if row.booking or row.ends > now),
                *(row for row in self._rules.steps if row.ends > day and row.starts < day + _AHEAD),
            )
        return self._overrides

    def _peaks_at(self, now: int) -> tuple[Peak, ...]:
        at = bisect_right(self._foreseen, now)
        peaks = self._rules.foreseen[at - 1].peaks if at else ()
        return tuple(each for each in peaks if each.ends > now)
