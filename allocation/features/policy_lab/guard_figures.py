"""Figures that a guard watches, as they were in a span of time and as a trial forecast them.

A version that is in force for a part of the site is judged by that part: by bookings that ask for one of
its classes, and by those of its organisations.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from django.db import connection

from allocation.features.policy_lab.results import money_of
from allocation.models import Decision

Name = Literal["wait_p95", "pauses", "guarantees_missed", "spend", "slow_decisions"]
DAY = 86_400
SLOW_MS = 5_000
# As trials count it: a booking within its guarantee that begins so late has missed it.
LATE = timedelta(minutes=15)
_SCOPE = """
  (%(tenants)s::uuid[] = '{}' OR b.tenant_id = ANY (%(tenants)s::uuid[]))
  AND (%(classes)s::text[] = '{}' OR b.ask->'classes' ?| %(classes)s::text[])
"""
_FIRST = """
LEFT JOIN LATERAL (
  SELECT min(lower(a.period)) AS at FROM allocation_allocation a
  WHERE a.booking_id = b.id AND a.state IN ('active', 'releasing', 'ended')) f ON true
"""
# Who waits still has waited until now, at least. Fixed windows wait for nothing.
_WAITS = f"""
SELECT greatest(0, extract(epoch FROM least(coalesce(f.at, %(until)s), coalesce(b.ended_at, %(until)s))
                             - greatest(b.submitted, b.not_before)))::bigint AS waited
FROM allocation_booking b {_FIRST}
WHERE b.tier_id = %(tier)s AND b.starts IS NULL
  AND greatest(b.submitted, b.not_before) < %(until)s
  AND (f.at >= %(since)s AND f.at < %(until)s
       OR f.at IS NULL AND b.state IN ('requested', 'queued', 'scheduled'))
  AND {_SCOPE}
ORDER BY waited
"""  # noqa: S608 (our own text)
_PAUSES = f"""
SELECT count(*) FROM allocation_pause p JOIN allocation_booking b ON b.id = p.booking_id
WHERE p.emptied_at >= %(since)s AND p.emptied_at < %(until)s AND {_SCOPE}
"""  # noqa: S608
# A claim counts at the instant at which it has missed its guarantee.
_MISSED = f"""
SELECT count(*) FROM allocation_booking b {_FIRST}
WHERE b.claimed_from + %(late)s >= %(since)s AND b.claimed_from + %(late)s < %(until)s
  AND (f.at IS NULL OR f.at > b.claimed_from + %(late)s)
  AND (b.ended_at IS NULL OR f.at IS NOT NULL OR b.ended_at > b.claimed_from + %(late)s)
  AND {_SCOPE}
"""  # noqa: S608
_SPEND = f"""
SELECT coalesce(sum(CASE t.kind WHEN 'reverse' THEN -t.amount ELSE t.amount END), 0)::bigint
FROM billing_transfer t JOIN allocation_booking b ON b.id = t.reference AND b.tenant_id = t.tenant_id
WHERE t.kind IN ('settle', 'charge', 'reverse') AND t.at >= %(since)s AND t.at < %(until)s AND {_SCOPE}
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class Span:
    """A span of time, and the part of the site that is judged by it."""

    since: datetime
    until: datetime
    classes: Sequence[str] = ()
    tenants: Sequence[str] = ()


def measured(figure: Mapping[str, Any], span: Span) -> int | None:
    """The figure in the span; None where nothing happened that it could be of."""
    return _MEASURES[figure["figure"]](figure, span)


def forecast(figure: Mapping[str, Any], report: Mapping[str, Any]) -> int | None:
    """The figure of a day as a trial forecast it under its candidate; None where it did not."""
    name = figure["figure"]
    if name == "wait_p95":
        rows = (row for row in report["tiers"] if row["name"] == figure["tier"])
        found: int | None = next((row["candidate"]["p95"] for row in rows), None)
        return found
    span = max(1, report["ends"] - report["begins"])
    if name == "spend":
        steps = sum(row["candidate"]["money"] for row in report["tenants"])
        spent: int = round(float(money_of(steps)) * DAY / span)
        return spent
    amount: int | None = report["totals"]["candidate"].get(name)
    return None if amount is None else -(-amount * DAY // span)


def _values(sql: str, span: Span, **more: str | timedelta) -> list[int]:
    facts: dict[str, Any] = {
        "since": span.since,
        "until": span.until,
        "classes": list(span.classes),
        "tenants": [UUID(each) for each in span.tenants],
    }
    with connection.cursor() as cursor:
        cursor.execute(sql, facts | more)
        return [int(row[0]) for row in cursor.fetchall()]


def _wait_p95(figure: Mapping[str, Any], span: Span) -> int | None:
    waits = _values(_WAITS, span, tier=figure["tier"])
    return waits[-(-len(waits) * 95 // 100) - 1] if waits else None


def _slow(figure: Mapping[str, Any], span: Span) -> int:
    return Decision.objects.filter(at__gte=span.since, at__lt=span.until, solve_ms__gt=SLOW_MS).count()


_MEASURES: Mapping[str, Callable[[Mapping[str, Any], Span], int | None]] = {
    "wait_p95": _wait_p95,
    "pauses": lambda _, span: _values(_PAUSES, span)[0],
    "guarantees_missed": lambda _, span: _values(_MISSED, span, late=LATE)[0],
    "spend": lambda _, span: _values(_SPEND, span)[0],
    "slow_decisions": _slow,
}
