"""The burn-down chart: unspent money over days, as coordinates of one SVG."""

from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from itertools import accumulate

from django.utils.html import format_html
from django.utils.safestring import SafeString

from allocation.queries.bookings.money.forecasts import BudgetHistory
from allocation.queries.bookings.money.projects import Forecast
from billing.rules import money_text

WIDTH, HEIGHT = 720, 268
LEFT, RIGHT, TOP, BOTTOM = 60.0, 700.0, 24.0, 218.0
FLOOR = 238.0
GRID_LINES = 4
DAY_LABELS = 6
ROOM_LEFT = 240.0
"""From this x on, a text fits to the left of its point."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A text at a point; `anchor` is its SVG text-anchor."""

    x: float
    y: float
    text: str
    anchor: str = "middle"

    @property
    def css(self) -> str:
        """Returns the CSS classes; inner labels are hidden on narrow screens."""
        return "ax mid" if self.anchor == "middle" else "ax"

    @property
    def place(self) -> SafeString:
        """Returns the point as SVG attributes."""
        return format_html('x="{}" y="{}"', self.at_x, self.at_y)

    @property
    def at_x(self) -> str:
        """Returns the coordinate as SVG text."""
        return f"{self.x:.1f}"

    @property
    def at_y(self) -> str:
        """Returns the coordinate as SVG text."""
        return f"{self.y:.1f}"


@dataclass(frozen=True, slots=True)
class DayPoint:
    """The area of a day over the chart, in percent of its width, and the page with its bookings."""

    left: str
    width: str
    href: str
    text: str


@dataclass(frozen=True, slots=True)
class Burndown:
    """The chart's SVG points ("x,y x,y") and marks; an empty string is not drawn."""

    spent_line: str
    spent_area: str
    grid: tuple[Mark, ...]
    days: tuple[Mark, ...]
    threshold: Mark
    now: Mark
    held: Mark | None
    forecast_line: str
    forecast_band: str
    runs_out: Mark | None
    text: str
    points: tuple[DayPoint, ...] = ()

    @property
    def has_room_left(self) -> bool:
        """Returns whether the text of `now` fits to its left."""
        return self.now.x >= ROOM_LEFT


def burndown(money: BudgetHistory, days_at: str) -> Burndown:
    """Returns the chart of a budget. Its top is the amount, its right edge the period's end.

    `days_at` is the address below which each day has its page; empty: the points lead nowhere.
    """
    plot = _Plot(money)
    effect = money.effect
    unspent = [effect.amount, *(effect.amount - sum_ for sum_ in accumulate(money.days))]
    # A day's charges are drawn at its end, today's so far too.
    ends = [effect.starts + timedelta(days=number) for number in range(len(unspent))]
    points = [plot.point(day, left) for day, left in zip(ends, unspent, strict=True)]
    line = " ".join(points)
    now_x, now_y = plot.x(ends[-1]), plot.y(unspent[-1])
    return Burndown(
        spent_line=line,
        spent_area=f"{LEFT},{BOTTOM} {line} {now_x:.1f},{BOTTOM}",
        grid=plot.grid(),
        days=plot.day_marks(),
        threshold=plot.threshold(),
        now=Mark(now_x, now_y, f"{plot.money(unspent[-1])} unspent"),
        held=Mark(now_x, plot.y(effect.left), f"{plot.money(effect.left)} left") if effect.held else None,
        forecast_line=_forecast_line(plot, money.forecast, ends[-1], unspent[-1]),
        forecast_band=_forecast_band(plot, money.forecast, ends[-1], unspent[-1]),
        runs_out=_runs_out(plot, money.forecast),
        text=_text(plot, money),
        points=plot.day_points(money, days_at) if days_at else (),
    )


class _Plot:
    """Converts days and money to coordinates."""

    def __init__(self, money: BudgetHistory) -> None:
        self.effect = money.effect
        self._days = (money.effect.ends - money.effect.starts).days
        self._top = money.effect.amount or Decimal(1)

    def x(self, day: date) -> float:
        share = (day - self.effect.starts).days / self._days
        return LEFT + (RIGHT - LEFT) * min(1.0, max(0.0, share))

    def y(self, left: Decimal) -> float:
        share = float(left / self._top)
        return min(FLOOR, BOTTOM - (BOTTOM - TOP) * share)

    def point(self, day: date, left: Decimal) -> str:
        return f"{self.x(day):.1f},{self.y(left):.1f}"

    def money(self, amount: Decimal) -> str:
        return money_text(amount, self.effect.currency)

    def grid(self) -> tuple[Mark, ...]:
        lines = []
        for number in range(GRID_LINES + 1):
            amount = self._top * number / GRID_LINES
            text = self.money(amount.quantize(Decimal(1))).removesuffix(".00")
            lines.append(Mark(LEFT, self.y(amount), text))
        return tuple(lines)

    def day_marks(self) -> tuple[Mark, ...]:
        step = max(1, round(self._days / DAY_LABELS))
        days = [*range(0, self._days - step // 2, step), self._days]
        found = []
        for number in days:
            day = self.effect.starts + timedelta(days=number)
            anchor = "start" if number == 0 else "end" if number == self._days else "middle"
            found.append(Mark(self.x(day), HEIGHT - 10, f"{day.day} {day:%b}", anchor))
        return tuple(found)

    def day_points(self, money: BudgetHistory, days_at: str) -> tuple[DayPoint, ...]:
        width = 100 * (RIGHT - LEFT) / self._days / WIDTH
        found = []
        for number, charged in enumerate(money.days):
            day = self.effect.starts + timedelta(days=number)
            text = f"{day.day} {day:%b}: {self.money(charged)} charged"
            left = 100 * self.x(day) / WIDTH
            found.append(DayPoint(f"{left:.3f}", f"{width:.3f}", f"{days_at}{day}", text))
        return tuple(found)

    def threshold(self) -> Mark:
        percent = self.effect.warn_percent
        left = self._top * (100 - percent) / 100
        return Mark(LEFT, self.y(left), f"Alert at {percent} % spent or held")


def _forecast_line(plot: _Plot, forecast: Forecast | None, today: date, left: Decimal) -> str:
    if forecast is None:
        return ""
    end = plot.effect.amount - forecast.spend
    return f"{plot.point(today, left)} {_towards(plot, today, left, end)}"


def _forecast_band(plot: _Plot, forecast: Forecast | None, today: date, left: Decimal) -> str:
    if forecast is None or forecast.low == forecast.high:
        return ""
    amount = plot.effect.amount
    low = _towards(plot, today, left, amount - forecast.low)
    high = _towards(plot, today, left, amount - forecast.high)
    corner = f"{RIGHT:.1f},{FLOOR:.1f} " if amount < forecast.high else ""
    return f"{plot.point(today, left)} {low} {corner}{high}"


def _towards(plot: _Plot, today: date, left: Decimal, end: Decimal) -> str:
    """Returns the period's end, or the point where the line leaves the chart."""
    lowest = plot.effect.amount * Decimal(str((BOTTOM - FLOOR) / (BOTTOM - TOP)))
    if end >= lowest or left <= lowest:
        return plot.point(plot.effect.ends, end)
    share = float((left - lowest) / (left - end))
    x = plot.x(today) + (RIGHT - plot.x(today)) * share
    return f"{x:.1f},{FLOOR:.1f}"


def _runs_out(plot: _Plot, forecast: Forecast | None) -> Mark | None:
    if forecast is None or forecast.runs_out is None:
        return None
    day = forecast.runs_out
    return Mark(plot.x(day), BOTTOM, f"runs out {day.day} {day:%b}")


def _text(plot: _Plot, money: BudgetHistory) -> str:
    effect = money.effect
    parts = [
        f"Of {plot.money(effect.amount)}, {plot.money(effect.spent)} is spent,"
        f" {plot.money(effect.held)} held for bookings and {plot.money(effect.left)} left"
        f" on {money.today.day} {money.today:%B}."
    ]
    forecast = money.forecast
    if forecast is not None:
        between = ""
        if forecast.low < forecast.high:
            between = f", between {plot.money(forecast.low)} and {plot.money(forecast.high)}"
        parts.append(f"Forecast for the end of the period: {plot.money(forecast.spend)} spent{between}.")
        if forecast.runs_out:
            parts.append(f"The budget runs out around {forecast.runs_out.day} {forecast.runs_out:%B}.")
    return " ".join(parts)
