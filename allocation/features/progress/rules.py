"""Rates and ends of runs from what their programs report: pure code."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import isfinite

# A rate covers the last one to two of these.
WINDOW = timedelta(minutes=15)
# A shorter time says nothing about a rate.
LEAST = timedelta(seconds=20)
MOST_METRICS, MOST_STEPS = 16, 1e15
LONGEST = timedelta(days=3_650)
# An end is worth a word when it misses the booked one by this, and by a twentieth of what is left.
WORTH = timedelta(minutes=5)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./@-]{0,39}")


@dataclass(frozen=True, slots=True)
class Pace:
    """The last report, and the two earlier points from which its rate is measured."""

    at: datetime
    step: float
    anchor_at: datetime
    anchor_step: float
    mark_at: datetime
    mark_step: float

    @classmethod
    def begun(cls, at: datetime, step: float) -> "Pace":
        """The pace at the first report of a run."""
        return cls(at, step, at, step, at, step)

    def moved(self, at: datetime, step: float) -> "Pace":
        """The pace after one more report."""
        if self.at - self.mark_at < WINDOW:
            return replace(self, at=at, step=step)
        return Pace(at, step, self.mark_at, self.mark_step, self.at, self.step)

    @property
    def per_second(self) -> float | None:
        """Steps in a second; None while that is not known, or nothing moves."""
        length = self.at - self.anchor_at
        if length < LEAST or self.step <= self.anchor_step:
            return None
        return (self.step - self.anchor_step) / length.total_seconds()

    def ends(self, of: float | None) -> datetime | None:
        """When the last step is done at this rate; None if that is not known."""
        if of is None or self.per_second is None:
            return None
        left = (of - self.step) / self.per_second
        return self.at + timedelta(seconds=left) if left <= LONGEST.total_seconds() else None


def metrics_fault(metrics: Mapping[str, object]) -> str:
    """The first name that can't be kept; empty if all can."""
    names = list(metrics)
    if len(names) > MOST_METRICS:
        return names[MOST_METRICS][:40]
    numbers = {name for name, value in metrics.items() if isinstance(value, float) and isfinite(value)}
    return next((name[:40] for name in names if not _NAME.fullmatch(name) or name not in numbers), "")


def is_name(text: str) -> bool:
    """Whether a metric can have the name."""
    return bool(_NAME.fullmatch(text))


def is_number_of_steps(value: float) -> bool:
    """Whether a program can have done so many steps."""
    return isfinite(value) and 0 <= value <= MOST_STEPS


def misses_by(ends: datetime, booked: datetime, now: datetime) -> timedelta:
    """By how much a run ends after the booked end; negative: before it; zero: not worth a word."""
    apart, left = ends - booked, max(booked - now, timedelta())
    return apart if abs(apart) >= max(WORTH, left / 20) else timedelta()
