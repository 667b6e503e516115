"""The utilisation of a booking: a curve with its range, and figures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from allocation.models import Booking
from allocation.points import HostSignals, host_signals
from allocation.queries.bookings.bookings import allocation_ids_of
from allocation.queries.fleet.moments import moments_of
from allocation.queries.fleet.telemetry import UseCurve, UsePoint, use_of_allocations
from allocation.rules.nodes.diagnosis import bottleneck_of, measured_mean
from allocation.web.parts.times import clock, day, length_words

WIDTH, HEIGHT = 720, 190
LEFT, RIGHT, TOP, BOTTOM = 44.0, 706.0, 12.0, 158.0
SPANS = {"hour": timedelta(hours=1), "day": timedelta(days=1), "all": timedelta(days=90)}
CHOICES = (("hour", "Last hour"), ("day", "Last day"), ("all", "All"))
TICKS, TICK_Y = 6, 180


@dataclass(frozen=True, slots=True)
class Tick:
    """A time label under the chart. Inner labels are hidden on narrow screens."""

    x: float
    text: str
    anchor: str
    is_inner: bool

    @property
    def place(self) -> SafeString:
        """Returns the position as SVG attributes."""
        return format_html('x="{}" y="{}"', f"{self.x:.1f}", TICK_Y)

    @property
    def css(self) -> str:
        """Returns the CSS classes."""
        return "ax mid" if self.is_inner else "ax"


@dataclass(frozen=True, slots=True)
class UseChart:
    """SVG path data, with gaps where nothing was measured."""

    lines: tuple[str, ...]
    bands: tuple[str, ...]
    memory: tuple[str, ...]
    grid: tuple[tuple[str, str], ...]
    ticks: tuple[Tick, ...]
    text: str
    facts: tuple[tuple[str, str], ...]


def use_card(booking: Booking, *, span: str, now: datetime, zone: tzinfo, base: str) -> dict[str, Any] | None:
    """Returns the utilisation card of a booking; None before its first run."""
    if booking.ready_at is None:
        return None
    span = span if span in SPANS else "all"
    until = booking.released_at or booking.ended_at or now
    since = max(booking.ready_at, until - SPANS[span])
    curve = use_of_allocations(allocations=allocation_ids_of(booking), since=since, until=until, now=now)
    runs = booking.released_at is None and booking.ended_at is None
    card = card_of(curve, CHOICES, span, base=base, zone=zone, now=now)
    host = host_signals([booking.id]).get(booking.id, HostSignals())
    signature = bottleneck_of(
        moments_of(curve), curve.devices, booking.planned_class, host.cpu, host.network_gib
    )
    is_weak = signature.kind in ("idle", "throttled")
    return card | {"runs": runs, "signature": signature, "is_weak": is_weak}


def card_of(
    curve: UseCurve,
    choices: Sequence[tuple[str, str]],
    chosen: str,
    *,
    base: str,
    zone: tzinfo,
    now: datetime,
) -> dict[str, Any]:
    """Returns a curve with its selectable time spans, each a key and a label."""
    return {
        "chart": use_chart(curve, zone, now),
        "measured": any(point.measured for point in curve.points),
        "spans": [
            {"label": label, "on": key == chosen, "href": f"{base}?use={key}"} for key, label in choices
        ],
        "url": f"{base}?part=use&use={chosen}",
    }


def use_chart(curve: UseCurve, zone: tzinfo, now: datetime) -> UseChart:
    """Returns the curve as coordinates of one SVG."""
    plot = _Plot(curve)
    return UseChart(
        lines=plot.lines(lambda point: point.busy),
        bands=plot.bands(),
        memory=plot.lines(_memory_percent),
        grid=tuple((f"{plot.y(value):.1f}", f"{value} %") for value in (0, 50, 100)),
        ticks=plot.ticks(zone, now),
        text=use_words(curve),
        facts=_facts(curve),
    )


def use_words(curve: UseCurve) -> str:
    """Returns the curve as a sentence, the chart's text alternative."""
    known = [point for point in curve.points if point.busy is not None]
    if not known:
        return "Utilisation was not measured."
    low = min(point.busy_min for point in known if point.busy_min is not None)
    high = max(point.busy_max for point in known if point.busy_max is not None)
    return f"{low} to {high} % busy, {_mean(curve):.0f} % on average{_watched(curve)}."


def _facts(curve: UseCurve) -> tuple[tuple[str, str], ...]:
    """Returns the measured figures; omits what was not measured."""
    points = curve.points
    found: list[tuple[str, str]] = []
    if any(point.busy is not None for point in points):
        found.append(("Busy on average", f"{_mean(curve):.0f} %{_watched(curve)}"))
    memory = _most(points, lambda point: point.memory_mb)
    total = _most(points, lambda point: point.memory_total_mb)
    if memory is not None and total:
        found.append(("Memory at most", f"{memory / 1024:.0f} of {total / 1024:.0f} GiB"))
    for name, read, unit in (
        ("Memory bandwidth", lambda point: point.bandwidth, "%"),
        ("SMs active", lambda point: point.sm, "%"),
        ("Tensor cores", lambda point: point.tensor, "%"),
    ):
        value = _average(points, read)
        if value is not None:
            found.append((name, f"{value:.0f} {unit}"))
    power = _average(points, lambda point: point.power_mw)
    if power is not None:
        found.append(("Power, each device", f"{power / 1000:.0f} W"))
    energy = [point.energy_mj for point in points if point.energy_mj is not None]
    if energy:
        found.append(("Energy", f"{sum(energy) / 3.6e9:.2f} kWh"))
    found += _links(points)
    held = sum(point.throttled or 0 for point in points)
    if held:
        found.append(("Clock throttled", f"{length_words(held)} by heat or power"))
    return tuple(found)


def _links(points: Sequence[UsePoint]) -> list[tuple[str, str]]:
    found = []
    for name, read in (
        ("PCIe", lambda point: point.pcie_kb),
        ("NVLink", lambda point: point.nvlink_kb),
    ):
        value = _average(points, read)
        if value is not None:
            found.append((name, f"{value / (1 << 20):.1f} GiB/s"))
    return found


def _mean(curve: UseCurve) -> float:
    return measured_mean([(p.busy, p.measured) for p in curve.points if p.measured]) or 0.0


def _watched(curve: UseCurve) -> str:
    asked = (curve.until - curve.since).total_seconds() * max(1, curve.devices)
    share = round(100 * sum(point.measured for point in curve.points) / asked) if asked else 100
    return "" if share >= 95 else f", measured {share} % of the time"


def _average(points: Sequence[UsePoint], read: Callable[[UsePoint], float | None]) -> float | None:
    known = [(value, point.measured) for point in points if (value := read(point)) is not None]
    if known and not any(seconds for _, seconds in known):
        # A slice has no utilisation of its own, by which seconds are counted.
        return sum(value for value, _ in known) / len(known)
    return measured_mean([(read(point), point.measured) for point in points])


def _most(points: Sequence[UsePoint], read: Callable[[UsePoint], int | None]) -> int | None:
    return max((value for point in points if (value := read(point)) is not None), default=None)


def _memory_percent(point: UsePoint) -> float | None:
    if point.memory_mb is None or not point.memory_total_mb:
        return None
    return min(100.0, 100 * point.memory_mb / point.memory_total_mb)


class _Plot:
    """Converts steps and percent to coordinates."""

    def __init__(self, curve: UseCurve) -> None:
        self.curve = curve
        self._last = max(1, len(curve.points) - 1)

    def x(self, number: int) -> float:
        return LEFT + (RIGHT - LEFT) * number / self._last

    def y(self, percent: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * percent / 100

    def lines(self, read: Callable[[UsePoint], float | None]) -> tuple[str, ...]:
        found = []
        for stretch in self._stretches(lambda point: read(point) is not None):
            points = [f"{self.x(n):.1f} {self.y(read(p) or 0):.1f}" for n, p in stretch]
            # A single reading is a dot: a zero-length path with round caps.
            found.append("M" + " L".join(points if len(points) > 1 else points * 2))
        return tuple(found)

    def bands(self) -> tuple[str, ...]:
        """Returns the bands between minimum and maximum of each step."""
        found = []
        for stretch in self._stretches(lambda point: point.busy_max is not None):
            upper = [f"{self.x(n):.1f} {self.y(p.busy_max or 0):.1f}" for n, p in stretch]
            lower = [f"{self.x(n):.1f} {self.y(p.busy_min or 0):.1f}" for n, p in stretch]
            found.append(f"M{' L'.join([*upper, *reversed(lower)])} Z")
        return tuple(found)

    def _stretches(self, is_known: Callable[[UsePoint], bool]) -> list[list[tuple[int, UsePoint]]]:
        found: list[list[tuple[int, UsePoint]]] = [[]]
        for number, point in enumerate(self.curve.points):
            if is_known(point):
                found[-1].append((number, point))
            elif found[-1]:
                found.append([])
        return [stretch for stretch in found if stretch]

    def ticks(self, zone: tzinfo, now: datetime) -> tuple[Tick, ...]:
        long = self.curve.until - self.curve.since > timedelta(days=2)
        every = max(1, self._last // TICKS)
        ticks = []
        numbers = range(0, self._last + 1, every)
        for number in numbers:
            at = self.curve.since + self.curve.step * number
            text = day(at, zone, now) if long else clock(at, zone)
            x = self.x(number)
            anchor = "start" if number == 0 else "end" if x > RIGHT - 30 else "middle"
            is_inner = number not in (numbers[0], numbers[-1])
            ticks.append(Tick(x, text, anchor, is_inner))
        return tuple(ticks)
