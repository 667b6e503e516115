"""The chart of demand as SVG coordinates, and the heat map of when to book."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from allocation.features.demand.booking_times import BookingTime
from allocation.web.parts.burndown import Mark
from billing.rules import money_text

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
        _peak_words(when, low[peak], middle[peak], high[peak]),
    )


def _peak_words(when: datetime, low: float, middle: float, high: float) -> str:
    if high < LEAST_SHOWN:
        return "no use expected"
    return (
        f"most expected {when.astimezone(UTC):%a %-d %b %H:%M} UTC: {middle:.1f} GPUs, "
        f"8 in 10 hours between {low:.1f} and {high:.1f}"
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


# What is less is shown as 0.0 GPUs.
LEAST_SHOWN = 0.05
SHOWS = {"wait": "Expected wait", "price": "Price of a GPU-hour", "risk": "Risk of a pause"}
SHADES = 6
HOURS_OF_DAY = 24


@dataclass(frozen=True, slots=True)
class HeatCell:
    """An hour: its shade, and its words. Without a shade nothing is known of it."""

    css: str
    text: str

    def said(self, show: str) -> str:
        """Returns the part of its words that is about what is shown."""
        return self.text.partition(": ")[2].split(", ")[list(SHOWS).index(show)]


def heat_rows(rows: Sequence[BookingTime], show: str, zone: ZoneInfo) -> list[tuple[str, list[HeatCell]]]:
    """The hours by day and hour of the zone, from light to dark."""
    values = [_value(row, show) for row in rows]
    known = [value for value in values if value is not None]
    least, most = (min(known), max(known)) if known else (0.0, 0.0)
    days: dict[str, list[HeatCell]] = {}
    for row, value in zip(rows, values, strict=True):
        at = row.at.astimezone(zone)
        cells = days.setdefault(f"{at:%a %-d %b}", [HeatCell("", "") for _ in range(HOURS_OF_DAY)])
        shade = "" if value is None else f"q{_shade(value, least, most)}"
        cells[at.hour] = HeatCell(shade, f"{at:%a %H:%M}: {_words(row)}")
    return list(days.items())


def _value(row: BookingTime, show: str) -> float | None:
    if show == "wait":
        return float(14 * HOURS_OF_DAY if row.wait_hours is None else row.wait_hours)
    if show == "price":
        return None if row.price is None else float(row.price)
    return None if row.pause_risk is None else float(row.pause_risk)


def _shade(value: float, least: float, most: float) -> int:
    return round((SHADES - 1) * (value - least) / (most - least)) if most > least else 0


def _words(row: BookingTime) -> str:
    wait = "no wait" if row.wait_hours == 0 else f"a wait of {row.wait_hours} h"
    if row.wait_hours is None:
        wait = "a wait of more than 14 days"
    price = "no price" if row.price is None else f"{money_text(row.price, row.currency)} a GPU-hour"
    risk = "not known" if row.pause_risk is None else f"{row.pause_risk / 10:.0f} %"
    return f"{wait}, {price}, risk of a pause {risk}"
