"""Figures over time: GPU-hours, use, energy, waits, pauses and spend by day and by a noun.

All are of UTC days, as the ledger's are. What runs now counts until now. Use and energy are those of
the hours for which nodes have sent readings, and how many hours these are is a figure of its own.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import ceil
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Sum

from allocation.features.insights.capacity_hours import CapacityHours, capacity_hours
from allocation.features.insights.peaks import peak_tflops
from allocation.models import ChargeSum, GpuModel
from allocation.points import hours_waited
from allocation.queries.bookings.money.held_use import (
    DEVICES,
    IDLE_PERCENT,
    MILLIJOULES_PER_KWH,
    OF_GPUS,
    WHOLE,
)
from allocation.queries.bookings.money.statements import StatementOf, spend_by_day
from billing.rules import Period

# The nouns, as SQL of the statements below. A mixed booking waits and is paused as its first class.
_OF_PLACE = {
    "class": "g.gpu_class_id",
    "tenant": "t.slug",
    "project": "p.slug",
    "person": "u.username",
    "tier": "b.tier_id",
}
_OF_BOOKING = _OF_PLACE | {"class": "b.planned_class"}
_SPEND_BY = {"class": "gpu_class", "project": "project", "person": "person", "tier": "tier"}
NOUNS = tuple(_OF_PLACE)
STEPS = ("day", "week", "month", "all")
# Below this part of the hours readings say nothing about all of them.
ENOUGH = Decimal("0.5")
# Below this part pages show no figure at all.
LEAST_SHOWN = Decimal("0.05")
_WHO = """
JOIN allocation_booking b ON b.id = {booking}
JOIN tenants_project p ON p.id = b.project_id
JOIN tenants_user u ON u.id = b.owner_id
JOIN tenants_tenant t ON t.id = b.tenant_id
"""
_WHOSE = """(%(tenant)s::uuid IS NULL OR b.tenant_id = %(tenant)s)
  AND (%(projects)s::uuid[] IS NULL OR b.project_id = ANY(%(projects)s))"""
_RUNS = "a.state IN ('active', 'releasing', 'ended') AND a.period && w.span"
# The price of a booking is that of all its GPUs together.
_PRICE = f"b.price_per_hour / {DEVICES}"
_HOURS = f"""
SELECT {{name}}, {{bucket}},
  sum(extract(epoch FROM upper(d.span) - lower(d.span)) * {WHOLE}),
  sum(extract(epoch FROM upper(d.span) - lower(d.span)) * {_PRICE})
FROM (SELECT tstzrange(%(starts)s, %(ends)s) AS span) w
JOIN allocation_allocation a ON {_RUNS} AND NOT a.abandoned
JOIN allocation_gpu g ON g.id = a.gpu_id
{_WHO.format(booking="a.booking_id")}
CROSS JOIN LATERAL generate_series(
  date_trunc('{{step}}', greatest(lower(a.period), %(starts)s) AT TIME ZONE 'UTC') AT TIME ZONE 'UTC',
  least(coalesce(upper(a.period), %(ends)s), %(ends)s), '1 {{step}}'::interval) AS s(at)
CROSS JOIN LATERAL (SELECT a.period * w.span * tstzrange(s.at, s.at + '1 {{step}}'::interval) AS span) d
WHERE NOT isempty(d.span) AND {OF_GPUS} AND {_WHOSE}
GROUP BY 1, 2
"""  # noqa: S608 (our own text)
# Of readings with the time of tensor cores, on products with a known peak: what they computed at most.
_UNUSED = "r.processes_max = 0 OR r.busy_avg < %(idle)s"
# The network of a booking is that of its whole run, in equal parts for its GPUs of the node.
_NETWORK = """
LEFT JOIN (
  SELECT h.booking_id, h.node_id,
    (h.received_mb + h.sent_mb) * 1024 / h.network_seconds / count(DISTINCT x.gpu_id) AS kb
  FROM allocation_hostuse h
  JOIN allocation_allocation x ON x.booking_id = h.booking_id AND x.state IN ('active', 'releasing', 'ended')
  JOIN allocation_gpu y ON y.id = x.gpu_id AND y.node_id = h.node_id
  WHERE h.network_seconds > 0 AND h.at >= %(starts)s
  GROUP BY h.id) n ON n.booking_id = g.booking_id AND n.node_id = g.node_id
"""
# Readings are summed up by allocation and day first: what they are weighed with is that of the allocation,
# and there are hundreds of readings for each.
_READINGS = f"""
SELECT a.id, a.booking_id, g.node_id, g.gpu_class_id, g.model_id, {WHOLE} AS whole,
  (r.at AT TIME ZONE 'UTC')::date AS day, sum(r.seconds) AS seconds,
  sum(r.seconds) FILTER (WHERE {_UNUSED}) AS unused,
  sum(r.seconds) FILTER (WHERE ({_UNUSED}) AND w.at IS NOT NULL) AS dark,
  sum(r.measured) AS measured,
  sum(r.measured * r.busy_avg::numeric) AS busy,
  sum(r.energy_mj) AS energy_mj,
  sum(r.seconds) FILTER (WHERE r.energy_mj IS NOT NULL) AS with_energy,
  sum(r.seconds) FILTER (WHERE r.bandwidth_avg IS NOT NULL) AS with_bandwidth,
  sum(r.seconds * r.bandwidth_avg::numeric) AS bandwidth,
  sum(r.seconds) FILTER (WHERE r.tensor_avg IS NOT NULL) AS with_tensor,
  sum(r.seconds * r.tensor_avg::numeric) AS tensor,
  sum(r.seconds * (coalesce(r.pcie_kb, 0) + coalesce(r.nvlink_kb, 0))::numeric)
    FILTER (WHERE r.tensor_avg IS NOT NULL) AS links,
  sum(r.seconds * r.tensor_avg::numeric) FILTER (WHERE r.energy_mj > 0) AS tensor_with_energy,
  sum(r.energy_mj) FILTER (WHERE r.tensor_avg IS NOT NULL AND r.energy_mj > 0) AS tensor_mj
FROM allocation_gpuuse r
JOIN allocation_allocation a ON a.id = r.allocation_id
JOIN allocation_gpu g ON g.id = a.gpu_id
JOIN allocation_booking b ON b.id = a.booking_id
LEFT JOIN unnest(%(waited_classes)s::text[], %(waited_hours)s::timestamptz[]) AS w (gpu_class, at)
  ON w.gpu_class = g.gpu_class_id AND w.at = date_trunc('hour', r.at)
WHERE r.at >= %(starts)s AND r.at < %(ends)s AND {OF_GPUS} AND {_WHOSE}
GROUP BY a.id, g.id, day
"""  # noqa: S608
_PEAK = "(%(peaks)s::jsonb ->> g.model_id)::numeric"
_USE = f"""
SELECT {{name}}, g.day, sum(g.seconds * g.whole),
  coalesce(sum(g.unused * g.whole), 0),
  coalesce(sum(g.dark * g.whole), 0),
  coalesce(sum(g.measured * g.whole), 0),
  coalesce(sum(g.busy * g.whole), 0),
  coalesce(sum(g.energy_mj), 0),
  coalesce(sum(g.with_energy * g.whole), 0),
  coalesce(sum(g.with_bandwidth * g.whole), 0),
  coalesce(sum(g.bandwidth * g.whole), 0),
  coalesce(sum(g.with_tensor * g.whole), 0),
  coalesce(sum(g.tensor * g.whole), 0),
  coalesce(sum(g.links + g.with_tensor * coalesce(n.kb, 0)::numeric) FILTER (WHERE {_PEAK} IS NOT NULL), 0),
  coalesce(sum(g.tensor / 100 * {_PEAK} * g.whole), 0),
  coalesce(sum(g.tensor_with_energy / 100 * {_PEAK} * g.whole), 0),
  coalesce(sum(g.tensor_mj) FILTER (WHERE {_PEAK} IS NOT NULL), 0)
FROM ({_READINGS}) g
{_NETWORK}
{_WHO.format(booking="g.booking_id")}
GROUP BY 1, 2
"""  # noqa: S608
# A first start is that of the first run; the wait counts from the earliest start that was requested.
_WAITS = f"""
SELECT {{name}}, (f.at AT TIME ZONE 'UTC')::date,
  greatest(0, extract(epoch FROM f.at - greatest(b.submitted, b.not_before)))::float8
FROM (
  SELECT a.booking_id, min(lower(a.period)) AS at
  FROM (SELECT tstzrange(%(starts)s, %(ends)s) AS span) w
  JOIN allocation_allocation a ON {_RUNS}
  GROUP BY 1) f
{_WHO.format(booking="f.booking_id")}
WHERE f.at >= %(starts)s AND {_WHOSE} AND NOT EXISTS (
  SELECT FROM allocation_allocation e
  WHERE e.booking_id = b.id AND e.state IN ('releasing', 'ended') AND lower(e.period) < f.at)
"""  # noqa: S608
_PAUSES = f"""
SELECT {{name}}, (x.emptied_at AT TIME ZONE 'UTC')::date, count(*), sum(x.lost_seconds)
FROM allocation_pause x
{_WHO.format(booking="x.booking_id")}
WHERE x.emptied_at >= %(starts)s AND x.emptied_at < %(ends)s AND {_WHOSE}
GROUP BY 1, 2
"""  # noqa: S608
PAUSES, READINGS, OF_BOOKING = _PAUSES, _READINGS, _OF_BOOKING  # charts over time count the same


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
    unused ones in which somebody of the site waited for the class.
    """

    gpu_hours: Decimal = Decimal(0)
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
    capacity: CapacityHours | None = None
    waits: list[float] = field(default_factory=list)
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

    def add(self, other: "Figures") -> None:
        """Adds the figures of another noun or time."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other.capacity is not None:
            self.capacity = other.capacity.plus(self.capacity)
        self.waits += other.waits
        if other.spend is not None:
            self.spend = (self.spend or Decimal(0)) + other.spend


_SUMS = (
    "gpu_hours",
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
}
Table = dict[tuple[date, str], Figures]


def figures_of(whose: Whose, days: Period, by: str, step: str, now: datetime) -> Table:
    """The figures by the first day of each step, within the days, and by the name of each noun."""
    found: Table = defaultdict(Figures)

    def at(day: date, name: str) -> Figures:
        return found[_begins(days, day, step), name or ""]

    facts = whose.facts | _window(days, now) | {"idle": IDLE_PERCENT, "peaks": _peaks()}
    place, booking = _OF_PLACE[by], _OF_BOOKING[by]
    hours = _HOURS.format(name=place, step="day", bucket="(s.at AT TIME ZONE 'UTC')::date")
    for name, day, seconds, price in _rows(hours, facts):
        row = at(day, name)
        row.gpu_hours += seconds / 3600
        if whose.tenant_id is not None or by == "tenant":
            # Organisations have currencies of their own.
            row.price += price / 3600
    _readings_add(at, facts, place)
    if whose.tenant_id is None:
        _capacity_add(at, facts, by)
    for name, day, seconds in _rows(_WAITS.format(name=booking), facts):
        at(day, name).waits.append(seconds)
    for name, day, count, lost in _rows(_PAUSES.format(name=booking), facts):
        row = at(day, name)
        row.pauses += count
        row.lost_hours += Decimal(lost) / 3600
    for day, name, amount in _spend(whose, days, by):
        row = at(day, name)
        row.spend = (row.spend or Decimal(0)) + amount
    return dict(found)


def _readings_add(at: Callable[[date, str], Figures], facts: dict[str, Any], name: str) -> None:
    waited = sorted(hours_waited(facts["starts"], facts["ends"]))
    facts = facts | {
        "waited_classes": [gpu_class for gpu_class, _ in waited],
        "waited_hours": [hour for _, hour in waited],
    }
    for noun, day, *sums in _rows(_USE.format(name=name), facts):
        at(day, noun).add_readings(sums)


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
    seconds = {at: float(found) for _, at, found, _ in _rows(hours, facts)}
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
    for tier, _, seconds in _rows(_WAITS.format(name="b.tier_id"), whose.facts | _window(days, now)):
        found[tier].waits.append(seconds)
    return sorted(found.items(), key=lambda each: (-each[1].began, each[0]))


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
    if by not in _SPEND_BY:
        return
    of = StatementOf(
        whose.tenant_id,
        days,
        whose.of.project if whose.of else None,
        whose.of.lab if whose.of else None,
    )
    for (day, name), amount in spend_by_day(of, _SPEND_BY[by]).items():
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


def _rows(statement: str, facts: dict[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, facts)
        return list(cursor.fetchall())


def _peaks() -> str:
    """The peaks of models that have one, as JSON."""
    rows = GpuModel.objects.values_list("slug", "product_name")
    return json.dumps({slug: peak for slug, name in rows if (peak := peak_tflops(name)) is not None})


def _tenth(total: Decimal, hours: Decimal) -> Decimal | None:
    return (total / hours).quantize(Decimal("0.1")) if hours else None


def _rank(values: list[float], part: float) -> int | None:
    """The smallest value that so large a part of them does not exceed."""
    return round(sorted(values)[max(0, ceil(part * len(values)) - 1)]) if values else None
