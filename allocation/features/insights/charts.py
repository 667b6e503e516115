"""Bars over time and a heat map of the week, as coordinates and classes for templates."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from urllib.parse import urlencode

from django.utils.html import format_html
from django.utils.safestring import SafeString

from allocation.features.insights.rule_changes import StepChanges
from allocation.web.parts.burndown import Mark

WIDTH, HEIGHT = 720, 220
LEFT, RIGHT, TOP, BOTTOM = 52.0, 712.0, 12.0, 184.0
LABELS = 6
LEAST_STEPS = 7
GRID_LINES = 4
SHADES = 6
TOPS = tuple(map(Decimal, ("1", "1.2", "1.6", "2", "2.4", "3.2", "4", "5", "6", "8", "10")))
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a bar; `css` is its colour."""

    y: str
    height: str
    css: str

    @property
    def place(self) -> SafeString:
        """Returns where it is, as SVG attributes."""
        return format_html('y="{}" height="{}"', self.y, self.height)


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar from bottom to top, its words, and its days as parameters of a list of bookings."""

    x: str
    width: str
    parts: tuple[Part, ...]
    text: str
    days: str


@dataclass(frozen=True, slots=True)
class Flag:
    """A line over a step in which something else changed, with its number in the list below."""

    x: str
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Bars:
    """A chart of stacked bars."""

    bars: tuple[Bar, ...]
    grid: tuple[Mark, ...]
    days: tuple[Mark, ...]
    keys: tuple[tuple[str, str], ...]
    text: str
    flags: tuple[Flag, ...] = ()


@dataclass(frozen=True, slots=True)
class HeatCell:
    """An hour of the week: its shade, and its words."""

    css: str
    text: str


def bars_of(
    keys: Sequence[tuple[str, str]],
    columns: Sequence[tuple[date, Sequence[Decimal]]],
    unit: str,
    changed: Sequence[StepChanges] = (),
    places: int = 1,
    *,
    is_cut: bool = True,
) -> Bars:
    """Stacked bars, one for each step, if `is_cut` from the first with a value on. `keys` are the name and
    the colour of each part; `changed`: what else changed in which step; `places`: decimals of the values
    in words."""
    first = next((at for at, (_, values) in enumerate(columns) if any(values)), 0)
    if is_cut:
        columns = columns[min(first, max(0, len(columns) - LEAST_STEPS)) :]
    most = max((sum(values, Decimal(0)) for _, values in columns), default=Decimal(0))
    top = _round_up(most)
    room = (RIGHT - LEFT) / max(1, len(columns))
    scale = (BOTTOM - TOP) / float(top)
    bars = []
    spans = days_of([day for day, _ in columns])
    for number, (day, values) in enumerate(columns):
        parts, y = [], BOTTOM
        for (_, css), value in zip(keys, values, strict=True):
            height = float(value) * scale
            y -= height
            if height:
                parts.append(Part(f"{y:.1f}", f"{height:.1f}", css))
        words = ", ".join(
            f"{name} {value:,.{places}f}" for (name, _), value in zip(keys, values, strict=True) if value
        )
        text = f"{day.day} {day:%b}: {words or 'nothing'} {unit if words else ''}".strip()
        x, width = f"{LEFT + room * (number + 0.1):.1f}", f"{room * 0.8:.1f}"
        bars.append(Bar(x, width, tuple(parts), text, spans[day]))
    total = sum((sum(values, Decimal(0)) for _, values in columns), Decimal(0))
    days = [day for day, _ in columns]
    return Bars(
        tuple(bars),
        _grid(top),
        _days(days, room),
        tuple(keys),
        f"{total:,.{places}f} {unit}",
        tuple(_flag(each, days, room) for each in changed if each.begins in days),
    )


def days_of(begins: Sequence[date]) -> dict[date, str]:
    """The days of steps as parameters of a list of bookings. The last step is as long as the one before."""
    if not begins:
        return {}
    length = begins[-1] - begins[-2] if len(begins) > 1 else timedelta(days=1)
    ends = [*begins[1:], begins[-1] + length]
    return {
        day: urlencode({"from": day, "to": after - timedelta(days=1)})
        for day, after in zip(begins, ends, strict=True)
    }


def _flag(changed: StepChanges, days: Sequence[date], room: float) -> Flag:
    """The line of a step, and the first of its changes in words."""
    more = len(changed.rows) - 1
    first = f"{changed.rows[0].who} {changed.rows[0].sentence}"
    text = f"{first} and {more} more" if more else first
    return Flag(f"{LEFT + room * (days.index(changed.begins) + 0.5):.1f}", changed.number, text)


def heat_of(rows: Sequence[Sequence[float | None]]) -> list[tuple[str, list[HeatCell]]]:
    """The week by day and hour, from light to dark; an hour that has not been is empty."""
    most = max((value for row in rows for value in row if value is not None), default=0.0)
    return [
        (day, [_cell(day, hour, value, most) for hour, value in enumerate(row)])
        for day, row in zip(DAYS, rows, strict=True)
    ]


def _cell(day: str, hour: int, value: float | None, most: float) -> HeatCell:
    if value is None:
        return HeatCell("", f"{day} {hour:02}:00: not yet")
    shade = min(SHADES - 1, int(SHADES * value / most)) if most else 0
    return HeatCell(f"q{shade}", f"{day} {hour:02}:00: {value:.1f} GPUs")


def _round_up(value: Decimal) -> Decimal:
    """The next number whose quarters are round, such as 120 or 0.5: bars use most of the chart's height."""
    if value <= 0:
        return Decimal(1)
    unit = Decimal(10) ** value.adjusted()
    return next(unit * step for step in TOPS if unit * step >= value)


def _grid(top: Decimal) -> tuple[Mark, ...]:
    return tuple(
        Mark(
            LEFT - 6,
            BOTTOM - (BOTTOM - TOP) * number / GRID_LINES,
            f"{float(top) * number / GRID_LINES:,.4g}",
            "end",
        )
        for number in range(GRID_LINES + 1)
    )


def _days(days: Sequence[date], room: float) -> tuple[Mark, ...]:
    every = max(1, -(-len(days) // LABELS))
    return tuple(
        Mark(LEFT + room * (number + 0.5), HEIGHT - 14, f"{day.day} {day:%b}")
        for number, day in enumerate(days)
        if number % every == 0
    )
