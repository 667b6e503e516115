"""Figures over time: GPU-hours, use, energy, waits, pauses and spend by day and by a noun.

All are of UTC days, as the ledger's are. What runs now counts until now. Use and energy are those of
the hours for which nodes have sent readings, and how many hours these are is a figure of its own.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import ceil
from typing import Any
from uuid import UUID

from django.db.models import Sum

from allocation.features.insights.capacity_hours import CapacityHours, capacity_hours
from allocation.features.insights.outcomes import (
    Start,
    UnitCost,
    starts_of,
    unit_costs_by_workload,
    unit_costs_of,
)
from allocation.features.insights.readings import (
    OF_BOOKING,
    OF_PLACE,
    RUNS,
    SPEND_BY,
    WHO,
    WHOSE,
    readings_of,
    rows_read,
)
from allocation.models import ChargeSum
from allocation.queries.bookings.money.held_use import (
    DEVICES,
    MILLIJOULES_PER_KWH,
    OF_GPUS,
    WHOLE,
)
from allocation.queries.bookings.money.statements import StatementOf, spend_by_day
from billing.rules import Period

STEPS = ("day", "week", "month", "all")
# Below this part of the hours readings say nothing about all of them.
ENOUGH = Decimal("0.5")
# Below this part pages show no figure at all.
LEAST_SHOWN = Decimal("0.05")
# The price of a booking is that of all its GPUs together.
_PRICE = f"b.price_per_hour / {DEVICES}"
_HOURS = f"""
SELECT {{name}}, {{bucket}},
  coalesce(sum(extract(epoch FROM upper(d.span) - lower(d.span)) * {WHOLE}) FILTER (WHERE {OF_GPUS}), 0),
  coalesce(sum(extract(epoch FROM upper(d.span) - lower(d.span)) * {_PRICE}) FILTER (WHERE {OF_GPUS}), 0),
  coalesce(sum(extract(epoch FROM upper(d.span) - lower(d.span))) FILTER (WHERE NOT ({OF_GPUS})), 0)
FROM (SELECT tstzrange(%(starts)s, %(ends)s) AS span) w
JOIN allocation_allocation a ON {RUNS} AND NOT a.abandoned
JOIN allocation_gpu g ON g.id = a.gpu_id
{WHO.format(booking="a.booking_id")}
CROSS JOIN LATERAL generate_series(
  date_trunc('{{step}}', greatest(lower(a.period), %(starts)s) AT TIME ZONE 'UTC') AT TIME ZONE 'UTC',
  least(coalesce(upper(a.period), %(ends)s), %(ends)s), '1 {{step}}'::interval) AS s(at)
CROSS JOIN LATERAL (SELECT a.period * w.span * tstzrange(s.at, s.at + '1 {{step}}'::interval) AS span) d
WHERE NOT isempty(d.span) AND {WHOSE}
GROUP BY 1, 2
"""  # noqa: S608 (our own text)
PAUSES = f"""
SELECT {{name}}, (x.emptied_at AT TIME ZONE 'UTC')::date, count(*), sum(x.lost_seconds)
FROM allocation_pause x
{WHO.format(booking="x.booking_id")}
WHERE x.emptied_at >= %(starts)s AND x.emptied_at < %(ends)s AND {WHOSE}
GROUP BY 1, 2
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class Whose:
    """Whose figures: an organisation's, of all projects or of these; without a tenant the site's."""

    tenant_id: UUID | None = None
    of: StatementOf | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """The parameters of the statements."""
        return {"tenant": self.tenant_id, "projects": self.of.projects if self.of else None}


@dataclass(slots=True)
class Figures:
    """The figures of one noun in one time. Hours are of whole GPUs; a slice counts by its size.

    `price` is the plain price of the hours, without surcharges of peak hours. `dark_gpu_hours` are those
    unused ones in which somebody of the site waited for the class. `core_hours` are of bookings without
    a GPU, and no other figure of hours has them.
    """

    gpu_hours: Decimal = Decimal(0)
    core_hours: Decimal = Decimal(0)
    price: Decimal = Decimal(0)
    measured_gpu_hours: Decimal = Decimal(0)
    unused_gpu_hours: Decimal = Decimal(0)
    dark_gpu_hours: Decimal = Decimal(0)
    rated: Decimal = Decimal(0)
    busy: Decimal = Decimal(0)
    kwh: Decimal = Decimal(0)
    energy_gpu_hours: Decimal = Decimal(0)
    with_bandwidth: Decimal = Decimal(0)
    bandwidth_sum: Decimal = Decimal(0)
    with_tensor: Decimal = Decimal(0)
    tensor_sum: Decimal = Decimal(0)
    link_kib: Decimal = Decimal(0)
    tflop: Decimal = Decimal(0)
    tflop_with_energy: Decimal = Decimal(0)
    tflop_joules: Decimal = Decimal(0)
    with_sm: Decimal = Decimal(0)
    sm_sum: Decimal = Decimal(0)
    kwh_with_grams: Decimal = Decimal(0)
    co2_sum: Decimal = Decimal(0)
    capacity: CapacityHours | None = None
    waits: list[float] = field(default_factory=list)
    starts_announced: int = 0
    starts_kept: int = 0
    by_unit: dict[str, UnitCost] = field(default_factory=dict)
    pauses: int = 0
    lost_hours: Decimal = Decimal(0)
    spend: Decimal | None = None

    @property
    def utilisation(self) -> Decimal | None:
        """Percent busy, of the hours with a utilisation; None: not measured."""
        return (self.busy / self.rated).quantize(Decimal("0.1")) if self.rated else None

    @property
    def coverage(self) -> Decimal | None:
        """Percent of the hours with readings; None: no hours."""
        if not self.gpu_hours:
            return None
        return (100 * min(self.measured_gpu_hours / self.gpu_hours, Decimal(1))).quantize(Decimal("0.1"))

    @property
    def is_enough(self) -> bool:
        """Whether so much was measured that pages show what it says of all hours."""
        return self.measured_gpu_hours >= LEAST_SHOWN * self.gpu_hours > 0

    @property
    def bandwidth(self) -> Decimal | None:
        """Percent of the memory bandwidth, of the hours with a reading of it; None: not measured."""
        return _tenth(self.bandwidth_sum, self.with_bandwidth)

    @property
    def sm(self) -> Decimal | None:
        """Percent of the time that an SM had work, on average over all SMs; None: not measured."""
        return _tenth(self.sm_sum, self.with_sm)

    @property
    def tensor(self) -> Decimal | None:
        """Percent of the time that tensor cores worked; None: not measured."""
        return _tenth(self.tensor_sum, self.with_tensor)

    @property
    def tflops_per_watt(self) -> Decimal | None:
        """An estimate from the time of tensor cores, the product's peak and the energy of the same
        readings; None: not measured."""
        if not self.tflop_joules:
            return None
        return (self.tflop_with_energy / self.tflop_joules).quantize(Decimal("0.001"))

    @property
    def link_bytes_per_kiloflop(self) -> Decimal | None:
        """Bytes over NVLink, PCIe and network for each thousand operations of tensor cores, as above:
        communication to computation; None: not measured."""
        if not self.tflop:
            return None
        return (self.link_kib * 1024 / (self.tflop * 1_000_000_000)).quantize(Decimal("0.001"))

    @property
    def co2_kg(self) -> Decimal | None:
        """Of the measured energy; None: nothing was measured, or nobody has set the grams."""
        return self.co2_sum.quantize(Decimal("0.001")) if self.kwh_with_grams else None

    @property
    def units(self) -> list[UnitCost]:
        """What units of progress cost, by unit."""
        return [self.by_unit[unit] for unit in sorted(self.by_unit)]

    @property
    def starts_kept_percent(self) -> Decimal | None:
        """Of those that were announced ahead; None: none was."""
        return _tenth(Decimal(100 * self.starts_kept), Decimal(self.starts_announced))

    @property
    def began(self) -> int:
        """Bookings that ran for the first time."""
        return len(self.waits)

    @property
    def wait_p50_seconds(self) -> int | None:
        """The median wait of those that began; None: none did."""
        return _rank(self.waits, 0.5)

    @property
    def wait_p95_seconds(self) -> int | None:
        """Nineteen in twenty waited no longer; None: none began."""
        return _rank(self.waits, 0.95)

    @property
    def price_per_busy_gpu_hour(self) -> Decimal | None:
        """The plain price of these hours for each hour of a GPU that was fully busy; None where less
        than half was measured. Spend is of runs that ended, so it is of other hours."""
        if not self.price or not self.busy or self.rated < ENOUGH * self.gpu_hours:
            return None
        return (self.price / (self.gpu_hours * self.busy / self.rated / 100)).quantize(Decimal("0.01"))

    def add_readings(self, sums: Iterable[Decimal]) -> None:
        """Adds what the statement of readings sums up."""
        for (figure, unit), value in zip(_READ.items(), sums, strict=True):
            setattr(self, figure, getattr(self, figure) + Decimal(value) / unit)

    def add_start(self, start: Start) -> None:
        """Adds a booking that began."""
        self.waits.append(start.waited)
        self.starts_announced += start.is_announced
        self.starts_kept += start.is_kept

    def add_unit(self, found: UnitCost) -> None:
        """Adds what units of a kind have cost."""
        self.by_unit[found.unit] = found.plus(self.by_unit.get(found.unit))

    def add(self, other: "Figures") -> None:
        """Adds the figures of another noun or time."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other.capacity is not None:
            self.capacity = other.capacity.plus(self.capacity)
        self.waits += other.waits
        for each in other.units:
            self.add_unit(each)
        if other.spend is not None:
            self.spend = (self.spend or Decimal(0)) + other.spend


_SUMS = (
    "gpu_hours",
    "core_hours",
    "price",
    "measured_gpu_hours",
    "unused_gpu_hours",
    "dark_gpu_hours",
    "rated",
    "busy",
    "kwh",
    "energy_gpu_hours",
    "with_bandwidth",
    "bandwidth_sum",
    "with_tensor",
    "tensor_sum",
    "link_kib",
    "tflop",
    "tflop_with_energy",
    "tflop_joules",
    "with_sm",
    "sm_sum",
    "kwh_with_grams",
    "co2_sum",
    "starts_announced",
    "starts_kept",
    "pauses",
    "lost_hours",
)
_HOUR = 3600
# What the statement of readings sums up, and the unit of each figure in that of its sum.
_READ = {
    "measured_gpu_hours": _HOUR,
    "unused_gpu_hours": _HOUR,
    "dark_gpu_hours": _HOUR,
    "rated": _HOUR,
    "busy": _HOUR,
    "kwh": MILLIJOULES_PER_KWH,
    "energy_gpu_hours": _HOUR,
    "with_bandwidth": _HOUR,
    "bandwidth_sum": _HOUR,
    "with_tensor": _HOUR,
    "tensor_sum": _HOUR,
    "link_kib": 1,
    "tflop": 1,
    "tflop_with_energy": 1,
    "tflop_joules": 1000,
    "with_sm": _HOUR,
    "sm_sum": _HOUR,
    "kwh_with_grams": MILLIJOULES_PER_KWH,
    "co2_sum": MILLIJOULES_PER_KWH * 1000,
}
Table = dict[tuple[date, str], Figures]


def figures_of(whose: Whose, days: Period, by: str, step: str, now: datetime) -> Table:
    """The figures by the first day of each step, within the days, and by the name of each noun."""
    found: Table = defaultdict(Figures)

    def at(day: date, name: str) -> Figures:
        return found[_begins(days, day, step), name or ""]

    facts = whose.facts | _window(days, now)
    # Of the site only by organisation, because each has its currency.
    has_money = whose.tenant_id is not None or by == "tenant"
    hours = _HOURS.format(name=OF_PLACE[by], step="day", bucket="(s.at AT TIME ZONE 'UTC')::date")
    for name, day, seconds, price, core_seconds in rows_read(hours, facts):
        row = at(day, name)
        row.gpu_hours += seconds / 3600
        row.core_hours += core_seconds / 3600
        row.price += price / 3600 if has_money else 0
    for noun, day, sums in readings_of(facts, OF_PLACE[by]):
        at(day, noun).add_readings(sums)
    if whose.tenant_id is None:
        _capacity_add(at, facts, by)
    _bookings_add(at, facts, by)
    for name, day, cost in unit_costs_of(facts, by) if has_money else ():
        at(day, name).add_unit(cost)
    for day, name, amount in _spend(whose, days, by):
        row = at(day, name)
        row.spend = (row.spend or Decimal(0)) + amount
    return dict(found)


def _bookings_add(at: Callable[[date, str], Figures], facts: dict[str, Any], by: str) -> None:
    """Adds how bookings began, and their pauses."""
    for each in starts_of(facts, by):
        at(each.day, each.name).add_start(each)
    for name, day, count, lost in rows_read(PAUSES.format(name=OF_BOOKING[by]), facts):
        row = at(day, name)
        row.pauses += count
        row.lost_hours += Decimal(lost) / 3600


def _capacity_add(at: Callable[[date, str], Figures], facts: dict[str, Any], by: str) -> None:
    """GPUs belong to a class, and to no organisation or tier."""
    if by != "class":
        return
    for name, day, hours in capacity_hours(facts["starts"], facts["ends"]):
        row = at(day, name)
        row.capacity = hours.plus(row.capacity)


def busy_by_hour(whose: Whose, days: Period, now: datetime) -> list[list[float | None]]:
    """GPUs that bookings had on average, by weekday (Monday first) and hour of UTC; None: not yet."""
    facts = whose.facts | _window(days, now)
    hours = _HOURS.format(name="1", step="hour", bucket="s.at")
    seconds = {at: float(found) for _, at, found, *_ in rows_read(hours, facts)}
    sums: list[list[list[float]]] = [[[] for _ in range(24)] for _ in range(7)]
    at = facts["starts"]
    while at < facts["ends"]:
        length = min(3600.0, (facts["ends"] - at).total_seconds())
        sums[at.weekday()][at.hour].append(seconds.get(at, 0.0) / length)
        at += timedelta(hours=1)
    return [[sum(each) / len(each) if each else None for each in row] for row in sums]


def waits_by_tier(whose: Whose, days: Period, now: datetime) -> list[tuple[str, Figures]]:
    """The waits of those that began, by tier; the most first."""
    found: dict[str, Figures] = defaultdict(Figures)
    for each in starts_of(whose.facts | _window(days, now), "tier"):
        found[each.name].add_start(each)
    return sorted(found.items(), key=lambda each: (-each[1].began, each[0]))


def units_by_workload(whose: Whose, days: Period, now: datetime) -> list[tuple[str, UnitCost]]:
    """What units of progress of each workload cost; the most money first."""
    return unit_costs_by_workload(whose.facts | _window(days, now))


def sum_of(rows: Iterable[Figures]) -> Figures:
    """The figures of all together."""
    total = Figures()
    for each in rows:
        total.add(each)
    return total


def steps_of(days: Period, step: str) -> list[date]:
    """The first day of each step within the days."""
    every = (days.starts + timedelta(days=number) for number in range((days.ends - days.starts).days))
    return list(dict.fromkeys(_begins(days, day, step) for day in every))


def _spend(whose: Whose, days: Period, by: str) -> Iterator[tuple[date, str, Decimal]]:
    """What was charged, with corrections. Of the site only by organisation: each has its currency."""
    if whose.tenant_id is None:
        if by == "tenant":
            sums = ChargeSum.objects.filter(day__gte=days.starts, day__lt=days.ends)
            rows = sums.values_list("day", "tenant__slug").annotate(Sum("exact")).order_by()
            yield from rows
        return
    if by not in SPEND_BY:
        return
    of = replace(whose.of, month=days) if whose.of else StatementOf(whose.tenant_id, days)
    for (day, name), amount in spend_by_day(of, SPEND_BY[by]).items():
        yield day, name, amount


def _begins(days: Period, day: date, step: str) -> date:
    first = {
        "day": day,
        "week": day - timedelta(days=day.weekday()),
        "month": day.replace(day=1),
        "all": days.starts,
    }[step]
    return max(days.starts, first)


def _window(days: Period, now: datetime) -> dict[str, datetime]:
    starts = days.first_second
    return {"starts": starts, "ends": max(starts, min(days.last_second, now.astimezone(UTC)))}


def _tenth(total: Decimal, hours: Decimal) -> Decimal | None:
    return (total / hours).quantize(Decimal("0.1")) if hours else None


def _rank(values: list[float], part: float) -> int | None:
    """The smallest value that so large a part of them does not exceed."""
    return round(sorted(values)[max(0, ceil(part * len(values)) - 1)]) if values else None
