"""The charges that a budget counts, by class and tier, and by booking."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from django.db import connection

from allocation.queries.bookings.money.held_use import GPUS
from allocation.queries.bookings.money.spending import CHARGED_BEFORE
from allocation.queries.bookings.timelines.timeline import bookings_visible
from allocation.rules.variance import ZERO, Cell, Metered, Spend
from billing.models import Budget
from billing.rules import midnight
from tenants.access import Actor

# Paid hours follow from the plain price of a booking, so they count all of its GPUs.
_ROWS = f"""
SELECT {{booking}}, what.kind, what.gpu_class, what.tier,
       sum(CASE WHEN what.kind = 'use' AND b.price_per_hour > 0
           THEN (x.amount - t.surcharge) / b.price_per_hour * part.gpus ELSE 0 END),
       sum(x.amount)
FROM billing_transfer t
JOIN billing_budget own
  ON own.account_id = CASE t.kind WHEN 'reverse' THEN t.credit_id ELSE t.debit_id END
LEFT JOIN allocation_booking b ON b.id = t.reference
CROSS JOIN LATERAL (
  SELECT CASE t.kind WHEN 'reverse' THEN -t.amount ELSE t.amount END AS amount) x
CROSS JOIN LATERAL (SELECT {GPUS} AS gpus) part
CROSS JOIN LATERAL (
  SELECT CASE WHEN t.kind <> 'settle' THEN 'corrections' WHEN t.fee <> '' THEN 'fees'
         ELSE 'use' END AS kind,
         coalesce(nullif(t.gpu_class, ''), b.planned_class, '') AS gpu_class,
         coalesce(nullif(t.tier, ''), b.tier_id, '') AS tier) what
WHERE (%(tenant)s::uuid IS NULL OR t.tenant_id = %(tenant)s)
  AND t.kind IN ('settle', 'charge', 'reverse')
  AND t.reference IS NOT NULL
  AND greatest((t.at AT TIME ZONE 'UTC')::date, %(starts)s::date) = ANY(%(days)s)
  AND t.at >= %(first)s AND t.at < %(last)s
  AND (%(own)s::uuid IS NULL OR own.id = %(own)s)
  AND (%(starts)s::date IS NULL OR t.day IS NULL OR (t.day >= %(starts)s AND t.day < %(ends)s))
  AND (%(project)s::uuid IS NULL OR own.project_id = %(project)s)
  AND (%(lab)s::uuid IS NULL OR %(lab)s =
       (SELECT p.lab_id FROM tenants_project p WHERE p.id = own.project_id))
  AND (%(campaign)s::uuid IS NULL OR %(campaign)s =
       CASE WHEN %(starts)s::date IS NULL THEN b.campaign_id ELSE t.campaign_id END)
  AND (%(person)s::int IS NULL OR %(person)s =
       CASE WHEN %(starts)s::date IS NULL THEN b.owner_id ELSE t.person_id END)
GROUP BY 1, 2, 3, 4
"""  # noqa: S608 (our own text)
# Each organisation numbers its own bookings.
_LABEL_OF_SITE = (
    "coalesce((SELECT o.slug FROM tenants_tenant o WHERE o.id = b.tenant_id) || '/BK-' || b.number"
    " || coalesce('[' || b.array_index || ']', ''), '')"
)
_LABEL = "coalesce('BK-' || b.number || coalesce('[' || b.array_index || ']', ''), '')"


_NUMBERED = re.compile(r"BK-(\d+)")


@dataclass(frozen=True, slots=True)
class BookingSpend:
    """What a booking was charged, for use of a class in a tier, as fees or as corrections."""

    booking: str
    kind: str
    cell: Cell
    metered: Metered


def spend_on(budget: Budget, days: Sequence[date]) -> Spend:
    """The charges of these UTC days that the budget counts."""
    return spend_sum(_rows(budget, days, "''"))


def bookings_on(budget: Budget, days: Sequence[date], *, only_own: bool = False) -> list[BookingSpend]:
    """The same by booking. `only_own`: of the charges of these days only those that are spent of this
    budget, and not of that of the month before. What was charged before its first day is of that day."""
    label = _LABEL if budget.tenant_id else _LABEL_OF_SITE
    return list(_rows(budget, days, label, only_own=only_own))


def labels_seen(actor: Actor, labels: Iterable[str]) -> frozenset[str]:
    """Those of the bookings that the actor may see; a budget counts those of other projects, too."""
    asked = frozenset(labels)
    numbers = [int(found[1]) for label in asked if (found := _NUMBERED.match(label))]
    rows = bookings_visible(actor).filter(number__in=numbers).only("number", "array_index")
    return asked & {row.label for row in rows}


def parts_seen(parts: Iterable[Mapping[str, Any]], seen: frozenset[str]) -> list[dict[str, Any]]:
    """The causes with those of their bookings that a reader may see; `count` stays that of all."""
    return [
        {**part, "bookings": [each for each in part["bookings"] if each["booking"] in seen]} for part in parts
    ]


def spend_sum(rows: Iterable[BookingSpend]) -> Spend:
    """The spend of all the rows."""
    cells: dict[Cell, Metered] = {}
    others = {"fees": ZERO, "corrections": ZERO}
    for row in rows:
        if row.kind == "use":
            before = cells.get(row.cell, Metered(ZERO, ZERO))
            cells[row.cell] = Metered(before.hours + row.metered.hours, before.amount + row.metered.amount)
        else:
            others[row.kind] += row.metered.amount
    return Spend(cells, **others)


def _rows(
    budget: Budget, days: Sequence[date], booking: str, *, only_own: bool = False
) -> Iterable[BookingSpend]:
    if not days:
        return
    first, last = min(days), max(days)
    if only_own and first == budget.starts:
        first -= CHARGED_BEFORE
    facts: dict[str, Any] = {
        "tenant": budget.tenant_id,
        "days": list(days),
        "first": midnight(first),
        "last": midnight(last + timedelta(days=1)),
        "project": budget.project_id,
        "campaign": budget.campaign_id,
        "person": budget.person_id,
        "lab": budget.lab_id,
        "own": budget.id if only_own and budget.level == Budget.Level.PROJECT else None,
        "starts": budget.starts if only_own else None,
        "ends": budget.ends,
    }
    with connection.cursor() as cursor:
        cursor.execute(_ROWS.format(booking=booking), facts)
        for label, kind, gpu_class, tier, hours, amount in cursor.fetchall():
            yield BookingSpend(label, kind, (gpu_class, tier), Metered(Decimal(hours), amount))
