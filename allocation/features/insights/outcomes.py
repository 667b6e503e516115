"""What came of bookings: how long those that began waited, whether they began as announced, and what the
units of progress cost that their programs have reported.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from allocation.features.insights.readings import OF_BOOKING, RUNS, WHO, WHOSE, rows_read

# A first start is that of the first run; the wait counts from the earliest start that was requested. A
# start was announced if it was planned ahead. It is kept if no later one was announced, and the first run
# began at most a minute after the latest one.
_STARTS = f"""
SELECT {{name}}, (f.at AT TIME ZONE 'UTC')::date,
  greatest(0, extract(epoch FROM f.at - greatest(b.submitted, b.not_before)))::float8,
  coalesce(b.first_planned_start > b.first_planned_at, false),
  f.at <= coalesce(b.announced_until, b.first_planned_start) + '1 minute'::interval AND NOT EXISTS (
    SELECT FROM allocation_bookingevent v
    WHERE v.booking_id = b.id AND v.kind = 'delayed' AND v.at <= f.at)
FROM (
  SELECT a.booking_id, min(lower(a.period)) AS at
  FROM (SELECT tstzrange(%(starts)s, %(ends)s) AS span) w
  JOIN allocation_allocation a ON {RUNS}
  GROUP BY 1) f
{WHO.format(booking="f.booking_id")}
WHERE f.at >= %(starts)s AND {WHOSE} AND NOT EXISTS (
  SELECT FROM allocation_allocation e
  WHERE e.booking_id = b.id AND e.state IN ('releasing', 'ended') AND lower(e.period) < f.at)
"""  # noqa: S608 (our own text)
# Each booking counts with the rate of its last 15 to 30 minutes for the time of its present run, as the
# figures of campaigns do: a program that reports late does not seem more expensive than it is. A rate of
# less than 20 s says nothing.
_UNITS = f"""
SELECT {{name}}, (x.at AT TIME ZONE 'UTC')::date, x.unit, count(*),
  sum(d.seconds * b.price_per_hour) / 3600,
  sum(d.seconds * greatest(0, x.step - x.anchor_step) / extract(epoch FROM x.at - x.anchor_at))::float8
FROM allocation_progress x
{WHO.format(booking="x.booking_id")}
CROSS JOIN LATERAL (SELECT extract(epoch FROM x.at - b.ready_at) AS seconds) d
WHERE x.at >= %(starts)s AND x.at < %(ends)s AND d.seconds > 0
  AND x.at - x.anchor_at >= '20 seconds'::interval AND {WHOSE}
GROUP BY 1, 2, 3
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class Start:
    """A booking that began: its name as a noun, and whether its start was announced ahead and kept."""

    name: str
    day: date
    waited: float
    is_announced: bool
    is_kept: bool


@dataclass(frozen=True, slots=True)
class UnitCost:
    """What units of progress have cost at plain prices, by the runs that have reported them."""

    unit: str
    spend: Decimal
    units: float
    runs: int

    @property
    def cost(self) -> Decimal | None:
        """The cost of one unit; None: none was done."""
        return round(self.spend / Decimal(self.units), 9) if self.units > 0 else None

    def plus(self, other: "UnitCost | None") -> "UnitCost":
        """Returns both together."""
        if other is None:
            return self
        return UnitCost(self.unit, self.spend + other.spend, self.units + other.units, self.runs + other.runs)


def starts_of(facts: dict[str, Any], by: str) -> Iterator[Start]:
    """Yields the bookings that began, by a noun."""
    for name, day, waited, is_announced, is_kept in rows_read(_STARTS.format(name=OF_BOOKING[by]), facts):
        yield Start(name, day, waited, is_announced, bool(is_announced and is_kept))


def unit_costs_by_workload(facts: dict[str, Any]) -> list[tuple[str, UnitCost]]:
    """Returns what units of each workload cost in the whole time, the most money first: steps of different
    programs are different work."""
    found: dict[tuple[str, str], UnitCost] = {}
    for name, _, unit, runs, spend, units in rows_read(_UNITS.format(name="b.workload"), facts):
        found[name, unit] = UnitCost(unit, spend, units, runs).plus(found.get((name, unit)))
    rows = [(name, cost) for (name, _), cost in found.items()]
    return sorted(rows, key=lambda row: (-row[1].spend, row[0], row[1].unit))


def unit_costs_of(facts: dict[str, Any], by: str) -> Iterator[tuple[str, date, UnitCost]]:
    """Yields what units cost in the runs that have reported last on a day, by a noun."""
    for name, day, unit, runs, spend, units in rows_read(_UNITS.format(name=OF_BOOKING[by]), facts):
        yield name, day, UnitCost(unit, spend, units, runs)
