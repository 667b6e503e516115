"""How held GPU time of a month was used: reserved but unused time, energy and CO2.

From the telemetry of nodes, which they report for each allocation.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import connection

from allocation.queries.bookings.money.statements import StatementOf
from allocation.queries.fleet.use_hours import USE, use_summed_until
from billing.focus import LineUse
from billing.rules import ledger_amount

# Thermal design power in watts, for time without a reading of energy; by the start of the class.
TDP_WATTS = {
    "b200": 1_000,
    "h200": 700,
    "h100": 700,
    "a100": 400,
    "l40": 350,
    "a30": 165,
    "rtx": 600,
    "v100": 300,
    "t4": 70,
}
OTHER_WATTS = 400
MILLIJOULES_PER_KWH = 3_600_000_000

WHOLE = "coalesce(a.share / 1000.0, a.size / 8.0)"
"""The whole GPUs of an allocation `a` in SQL: a slice has `size` of eight slots, a share so many
thousandths of its GPU."""
DEVICES = """greatest(1, coalesce(
  (SELECT sum((g->>'count')::int) FROM jsonb_array_elements(b.ask->'groups') g),
  (b.ask->>'count')::int))"""
"""The GPUs, slices and shares that a booking `b` asks for at once, in SQL."""
GPUS = f"""{DEVICES} * coalesce((
  SELECT avg({WHOLE}) FROM allocation_allocation a
  WHERE a.booking_id = b.id AND a.state IN ('active', 'releasing', 'ended') AND NOT a.abandoned), 1)"""  # noqa: S608 (constants)
"""The whole GPUs that a booking `b` has at once, in SQL."""

OF_GPUS = "NOT b.ask ? 'host'"
"""Whether a booking `b` has GPUs, in SQL; others have cores of hosts, which count as none."""

_USE = f"""
SELECT {{name}}, coalesce(b.planned_class, ''),
       sum(u.seconds * part.whole),
       sum(u.unused * part.whole),
       sum(u.unused * b.price_per_hour / 3600 / {DEVICES}),
       sum(u.energy_mj),
       sum((u.seconds - u.with_energy) * part.whole),
       z.grams[part.hour], z.price[part.hour]
FROM ({USE}) u
JOIN allocation_allocation a ON a.id = u.allocation_id
JOIN allocation_booking b ON b.id = a.booking_id
JOIN allocation_gpu g ON g.id = a.gpu_id
JOIN allocation_node n ON n.id = g.node_id
JOIN allocation_rack k ON k.id = n.rack_id
LEFT JOIN allocation_zone z ON z.slug = k.zone_id
CROSS JOIN LATERAL (
  SELECT {WHOLE} AS whole,
         1 + extract(hour FROM u.hour AT TIME ZONE coalesce(z.time_zone, 'UTC'))::int AS hour) part
WHERE b.tenant_id = %(tenant)s
  AND (%(projects)s::uuid[] IS NULL OR b.project_id = ANY(%(projects)s)) AND {OF_GPUS}
GROUP BY 1, 2, z.grams[part.hour], z.price[part.hour]
"""  # noqa: S608 (constants)
_LABEL = "'BK-' || b.number || coalesce('[' || b.array_index || ']', '')"


# What bookings had by the portal's own record, whether nodes sent readings of it or not.
_HELD = f"""
SELECT {{columns}}
       sum(extract(epoch FROM upper(w.span) - lower(w.span)) * part.whole)
FROM allocation_booking b
JOIN allocation_allocation a ON a.booking_id = b.id
CROSS JOIN LATERAL (SELECT {WHOLE} AS whole) part
CROSS JOIN LATERAL (SELECT a.period * tstzrange(%(starts)s, %(ends)s) AS span) w
WHERE a.state IN ('active', 'releasing', 'ended') AND NOT a.abandoned
  AND a.period && tstzrange(%(starts)s, %(ends)s)
  AND (b.ended_at IS NULL OR b.ended_at >= %(starts)s) AND {OF_GPUS} AND {{which}}
"""  # noqa: S608
_OF_DAYS = """
b.tenant_id = %(tenant)s AND (%(projects)s::uuid[] IS NULL OR b.project_id = ANY(%(projects)s))
"""
_OF_PEOPLE = """
b.owner_id = ANY(%(people)s) AND b.project_id = ANY(%(projects)s) AND b.submitted > %(starts)s
"""
_USE_OF_PEOPLE = f"""
SELECT b.project_id, b.owner_id, sum(u.seconds * part.whole),
       sum(u.unused * part.whole)
FROM ({USE}) u
JOIN allocation_allocation a ON a.id = u.allocation_id
JOIN allocation_booking b ON b.id = a.booking_id
CROSS JOIN LATERAL (SELECT {WHOLE} AS whole) part
WHERE {_OF_PEOPLE}
GROUP BY 1, 2
"""  # noqa: S608 (constants)
_HELD_IN_DAYS = _HELD.format(columns="", which=_OF_DAYS)
_HELD_BY_PEOPLE = _HELD.format(columns="b.project_id, b.owner_id,", which=_OF_PEOPLE)


@dataclass(frozen=True, slots=True)
class HeldHours:
    """Hours of whole GPUs that bookings had, those with readings, and of these the unused ones."""

    hours: Decimal = Decimal(0)
    measured: Decimal = Decimal(0)
    unused: Decimal = Decimal(0)


NO_HOURS = HeldHours()


def people_use(
    projects: Collection[UUID], people: Collection[int], since: datetime, now: datetime
) -> dict[tuple[UUID, int], HeldHours]:
    """Returns what people had in projects since then, by project and person."""
    if not people:
        return {}
    facts: dict[str, Any] = {
        "starts": since,
        "ends": now,
        "summed_until": use_summed_until(),
        "people": list(people),
        "projects": list(projects),
    }
    found: dict[tuple[UUID, int], HeldHours] = {}
    with connection.cursor() as cursor:
        cursor.execute(f"{_HELD_BY_PEOPLE} GROUP BY 1, 2", facts)
        for project, person, held in cursor.fetchall():
            found[project, person] = HeldHours(_rounded(held / 3600))
        cursor.execute(_USE_OF_PEOPLE, facts)
        for project, person, measured, unused in cursor.fetchall():
            hours = found.get((project, person), NO_HOURS).hours
            seen, idle = _rounded(measured / 3600), _rounded(unused / 3600)
            found[project, person] = HeldHours(max(hours, seen), seen, idle)
    return found


@dataclass(frozen=True, slots=True)
class HeldUse:
    """The use of held GPU time in some days, in hours of whole GPUs. `held_hours` are by the
    portal's record; `hours` of them have readings, and of these some are unused.

    `unused_cost` is at the plain prices of the bookings; it is a part of what they are charged.
    `measured_kwh` are from readings, `assumed_kwh` from the thermal design power of the class.
    `co2_kg` is by the calendars of the zones as they are now, and elsewhere by the intensity of the site;
    None without either. `energy_cost` is of the energy used in zones with a price.
    """

    held_hours: Decimal
    hours: Decimal
    unused_hours: Decimal
    unused_cost: Decimal
    measured_kwh: Decimal
    assumed_kwh: Decimal
    co2_kg: Decimal | None
    energy_cost: Decimal | None

    @property
    def kwh(self) -> Decimal:
        """The energy of both sources."""
        return self.measured_kwh + self.assumed_kwh

    @property
    def coverage(self) -> str:
        """Which part of the held hours the other figures are about, in words."""
        return f"{self.hours:,.1f} of {self.held_hours:,.1f} held GPU-hours were measured"

    @property
    def unused_share(self) -> str:
        """The unused part of the measured hours, in words."""
        return f"{100 * self.unused_hours / self.hours:.0f} % of {self.hours:,.1f} measured GPU-hours"


def held_use_of(of: StatementOf, grams_per_kwh: int, now: datetime | None) -> HeldUse:
    """Reads the use of a tenant's or a project's days until now; `grams_per_kwh` 0: no CO2.

    Without `now` only what was measured is read.
    """
    found = _sum(_use_by("''", of).get("", ()), grams_per_kwh)
    if now is None or now <= of.month.first_second:
        return found
    facts = _facts(of) | {"ends": min(of.month.last_second, now)}
    with connection.cursor() as cursor:
        cursor.execute(_HELD_IN_DAYS, facts)
        (held,) = cursor.fetchone() or (None,)
    return replace(found, held_hours=max(found.hours, _rounded((held or Decimal(0)) / 3600)))


def booking_uses_of(of: StatementOf, grams_per_kwh: int) -> dict[str, LineUse]:
    """Reads the use of each booking that has readings, by its label."""
    found = {}
    for label, rows in _use_by(_LABEL, of).items():
        use = _sum(rows, grams_per_kwh)
        found[label] = LineUse(use.unused_hours, use.unused_cost, use.kwh, use.co2_kg)
    return found


def _use_by(name: str, of: StatementOf) -> dict[str, list[tuple[Any, ...]]]:
    """The sums by class, for each value of an expression of SQL."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    with connection.cursor() as cursor:
        cursor.execute(_USE.format(name=name), _facts(of))
        for value, *rest in cursor.fetchall():
            found.setdefault(value, []).append(tuple(rest))
    return found


def _facts(of: StatementOf) -> dict[str, Any]:
    return {
        "tenant": of.tenant_id,
        "starts": of.month.first_second,
        "ends": of.month.last_second,
        "projects": of.projects,
        "summed_until": use_summed_until(),
    }


def _sum(rows: Iterable[tuple[Any, ...]], grams_per_kwh: int) -> HeldUse:
    seconds = unused = cost = measured = assumed = Decimal(0)
    grams: list[Decimal] = []
    prices: list[Decimal] = []
    for name, held, idle, idle_cost, millijoules, without, zone_grams, zone_price in rows:
        seconds, unused, cost = seconds + held, unused + idle, cost + idle_cost
        read, thought = Decimal(millijoules) / MILLIJOULES_PER_KWH, without * watts_of(name) / 3_600_000
        measured, assumed = measured + read, assumed + thought
        if zone_grams is not None or grams_per_kwh:
            grams.append((read + thought) * (grams_per_kwh if zone_grams is None else zone_grams))
        if zone_price is not None:
            prices.append((read + thought) * zone_price)
    return HeldUse(
        held_hours=_rounded(seconds / 3600),
        hours=_rounded(seconds / 3600),
        unused_hours=_rounded(unused / 3600),
        unused_cost=ledger_amount(cost),
        measured_kwh=_rounded(measured),
        assumed_kwh=_rounded(assumed),
        co2_kg=_rounded(sum(grams, Decimal(0)) / 1000) if grams or grams_per_kwh else None,
        energy_cost=ledger_amount(sum(prices, Decimal(0))) if prices else None,
    )


def watts_of(gpu_class: str) -> int:
    """The power that is assumed for a whole GPU of the class without readings."""
    found = (watts for start, watts in TDP_WATTS.items() if gpu_class.lower().startswith(start))
    return next(found, OTHER_WATTS)


def _rounded(value: Decimal) -> Decimal:
    return value.quantize(Decimal("0.001"))
