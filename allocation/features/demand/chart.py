"""The chart of demand: the past week, the coming two weeks, and their band, as SVG coordinates."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from allocation.web.parts.burndown import Mark

WIDTH, HEIGHT = 720, 220
LEFT, RIGHT, TOP, BOTTOM = 52.0, 712.0, 14.0, 184.0
GRID_LINES = 4
DAY_MARKS = 7
HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class DemandChart:
    """Points ("x,y x,y") of what was, and of what is expected; `now` is where these meet."""

    past: str
    middle: str
    band: str
    grid: tuple[Mark, ...]
    days: tuple[Mark, ...]
    now: str
    capacity: str
    text: str


def demand_chart(
    past: Sequence[float],
    low: Sequence[float],
    middle: Sequence[float],
    high: Sequence[float],
    at: datetime,
    capacity: int,
) -> DemandChart:
    """The chart of hours before and from `at` on. Its top is the capacity, or more if more is wanted."""
    hours = len(past) + len(middle)
    top = _top(max([capacity, *past, *high, 1.0]))

    def point(hour: float, value: float) -> str:
        x = LEFT + (RIGHT - LEFT) * hour / max(1, hours)
        return f"{x:.1f},{BOTTOM - (BOTTOM - TOP) * value / top:.1f}"

    here = len(past)
    ahead = [here + number + 0.5 for number in range(len(middle))]
    edges = [point(hour, value) for hour, value in zip(ahead, high, strict=True)]
    edges += [point(hour, value) for hour, value in zip(reversed(ahead), reversed(low), strict=True)]
    days = []
    first = at - here * HOUR
    for number in range(hours):
        moment = first + number * HOUR
        if moment.astimezone(UTC).hour == 0 and (moment - first).days % (hours // 24 // DAY_MARKS or 1) == 0:
            x = LEFT + (RIGHT - LEFT) * number / hours
            days.append(Mark(x, HEIGHT - 14, f"{moment.day} {moment:%b}"))
    peak = max(range(len(middle)), key=lambda number: middle[number])
    when = at + peak * HOUR
    return DemandChart(
        " ".join(point(number + 0.5, value) for number, value in enumerate(past)),
        " ".join(point(hour, value) for hour, value in zip(ahead, middle, strict=True)),
        " ".join(edges),
        _grid(top),
        tuple(days),
        point(here, 0).partition(",")[0],
        point(0, capacity).partition(",")[2],
        f"most expected {when.astimezone(UTC):%a %-d %b %H:%M} UTC: {middle[peak]:.1f} GPUs, "
        f"8 in 10 between {low[peak]:.1f} and {high[peak]:.1f}",
    )


def _top(most: float) -> float:
    unit = 1.0
    while True:
        for step in (1, 2, 4, 6, 8):
            if unit * step >= most:
                return unit * step
        unit *= 10


def _grid(top: float) -> tuple[Mark, ...]:
    return tuple(
        Mark(
            LEFT - 6,
            BOTTOM - (BOTTOM - TOP) * number / GRID_LINES,
            f"{top * number / GRID_LINES:,.4g}",
            "end",
        )
        for number in range(GRID_LINES + 1)
    )
