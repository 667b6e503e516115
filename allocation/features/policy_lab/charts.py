"""Charts of a trial, as coordinates for templates: waits by day, and changes with their intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from allocation.web.parts.burndown import Mark

LEFT, RIGHT, TOP, BOTTOM = 60.0, 700.0, 14.0, 184.0
FLOOR = 206.0
GRID_LINES = 4
DAY_LABELS = 6
MINUTE = 60
# Of the chart of changes: names stand to the left of its axis.
AXIS_LEFT, ROW_HEIGHT, MOST_ROWS = 220.0, 24.0, 24


@dataclass(frozen=True, slots=True)
class Days:
    """The mean wait of the bookings of each day under both versions, as two paths."""

    active: str
    candidate: str
    grid: tuple[Mark, ...]
    days: tuple[Mark, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Change:
    """A row: the change of the mean wait as a point on its interval."""

    name: str
    y: str
    text_y: str
    low: str
    high: str
    at: str
    words: str


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes around zero, one below the other."""

    rows: tuple[Change, ...]
    zero: str
    height: int
    marks: tuple[Mark, ...]


def days_of(rows: Sequence[Mapping[str, Any]]) -> Days | None:
    """The chart of days; None for fewer than two."""
    if len(rows) < 2:
        return None
    most = max(max(row["active"], row["candidate"]) for row in rows) or MINUTE
    step = (RIGHT - LEFT) / (len(rows) - 1)

    def path(side: str) -> str:
        points = (
            f"{LEFT + step * number:.1f} {BOTTOM - (BOTTOM - TOP) * row[side] / most:.1f}"
            for number, row in enumerate(rows)
        )
        return "M" + "L".join(points)

    grid = tuple(
        Mark(
            LEFT - 6,
            BOTTOM - (BOTTOM - TOP) * number / GRID_LINES,
            _minutes(most * number / GRID_LINES),
            "end",
        )
        for number in range(GRID_LINES + 1)
    )
    every = max(1, -(-len(rows) // DAY_LABELS))
    days = tuple(
        Mark(LEFT + step * number, FLOOR, f"{_day(row['day']):%-d %b}")
        for number, row in enumerate(rows)
        if number % every == 0
    )
    return Days(path("active"), path("candidate"), grid, days, f"at most {_minutes(most)}")


def changes_of(rows: Sequence[Mapping[str, Any]]) -> Changes | None:
    """The chart of changes of the rows that have an interval; None without any."""
    shown = [row for row in rows if row["low"] is not None][:MOST_ROWS]
    if not shown:
        return None
    most = max(MINUTE, *(max(abs(row["low"]), abs(row["high"]), abs(row["change"])) for row in shown))
    middle, scale = (AXIS_LEFT + RIGHT) / 2, (RIGHT - AXIS_LEFT) / 2 / most

    def at(seconds: int) -> str:
        return f"{middle + seconds * scale:.1f}"

    found = []
    for number, row in enumerate(shown):
        y = TOP + ROW_HEIGHT * (number + 0.5)
        words = f"{_signed(row['change'])}, 19 in 20: {_signed(row['low'])} to {_signed(row['high'])}"
        found.append(
            Change(
                row["name"],
                f"{y:.1f}",
                f"{y + 4:.1f}",
                at(row["low"]),
                at(row["high"]),
                at(row["change"]),
                words,
            )
        )
    bottom = TOP + ROW_HEIGHT * len(shown)
    marks = tuple(Mark(float(at(each)), bottom + 16, _signed(each)) for each in (-most, 0, most))
    return Changes(tuple(found), f"{middle:.1f}", round(bottom + 24), marks)


def _day(at: int) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _minutes(seconds: float) -> str:
    return f"{seconds / MINUTE:,.0f} min"


def _signed(seconds: int) -> str:
    return f"{seconds / MINUTE:+,.0f} min" if seconds else "0"
