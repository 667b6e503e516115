"""How long people waited lately: for decisions, for starts, and beyond what was promised."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from django.db import connection

from allocation.wire.exposition import Metric, Value

WINDOW = timedelta(minutes=15)
# Of the newest lines of histories: what a busy quarter of an hour has at most.
MAX_EVENTS_READ = 50_000
QUANTILES = (0.5, 0.9, 0.99)

# A booking is decided with the first line after the request that its owner did not write.
_DELAYS = """
WITH recent AS (
  SELECT id, booking_id, at, kind FROM allocation_bookingevent
  WHERE id > (SELECT coalesce(max(id), 0) FROM allocation_bookingevent) - %(most)s
    AND at > %(since)s AND at <= %(now)s),
decided AS (
  SELECT extract(epoch FROM min(later.at) - asked.at) AS seconds
  FROM recent asked JOIN recent later ON later.booking_id = asked.booking_id
    AND later.id > asked.id AND later.kind IN ('queued', 'scheduled', 'refused', 'starting')
  WHERE asked.kind = 'requested' GROUP BY asked.id, asked.at),
started AS (
  SELECT extract(epoch FROM recent.at - booking.submitted) AS waited,
         extract(epoch FROM recent.at - greatest(booking.first_planned_start, booking.submitted)) AS
         late
  FROM recent JOIN allocation_booking booking ON booking.id = recent.booking_id
  WHERE recent.kind = 'started')
SELECT 'decision', count(*), percentile_cont(%(quantiles)s::float8[])
    WITHIN GROUP (ORDER BY seconds) FROM decided
UNION ALL
SELECT 'start', count(*), percentile_cont(%(quantiles)s::float8[])
    WITHIN GROUP (ORDER BY waited) FROM started
UNION ALL
SELECT 'late', count(*), percentile_cont(%(quantiles)s::float8[])
    WITHIN GROUP (ORDER BY greatest(late, 0)) FROM started
"""
_NAMES = {
    "decision": (
        "gpu_portal_request_to_decision_seconds",
        "From a request to its decision, of the decisions of the last 15 minutes.",
    ),
    "start": (
        "gpu_portal_request_to_start_seconds",
        "From a request to the hand-over, of the starts of the last 15 minutes.",
    ),
    "late": (
        "gpu_portal_start_lateness_seconds",
        "From the first promised start to the hand-over, of the starts of the last 15 minutes.",
    ),
}


def delay_metrics(now: datetime) -> Iterator[Metric]:
    """Inside `operator_tx`: quantiles and how many bookings they are of."""
    with connection.cursor() as cursor:
        cursor.execute(
            _DELAYS,
            {
                "most": MAX_EVENTS_READ,
                "since": now - WINDOW,
                "now": now,
                "quantiles": list(QUANTILES),
            },
        )
        rows = cursor.fetchall()
    for key, count, found in rows:
        name, help_ = _NAMES[key]
        values = tuple(
            Value(seconds, {"quantile": str(quantile)})
            for quantile, seconds in zip(QUANTILES, found or (), strict=False)
        )
        yield Metric(name, "gauge", help_, values)
        yield Metric(f"{name}_bookings", "gauge", "Of how many bookings.", (Value(count),))


def database_size_metrics() -> Iterator[Metric]:
    """Inside `operator_tx`: what the database takes on disk, in all and by its largest tables."""
    with connection.cursor() as cursor:
        # pg_database_size asks for the right to connect, which the role of operators has not.
        cursor.execute(
            "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class"
            " WHERE relkind IN ('r', 'm')"
        )
        (whole,) = cursor.fetchone()
        cursor.execute(
            "SELECT relname, pg_total_relation_size(oid) FROM pg_class"
            " WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'm')"
            " ORDER BY 2 DESC, 1 LIMIT 12"
        )
        tables = cursor.fetchall()
    yield Metric("gpu_portal_database_bytes", "gauge", "Size of the database.", (Value(whole),))
    yield Metric(
        "gpu_portal_table_bytes",
        "gauge",
        "Size of the twelve largest tables, with their indexes.",
        tuple(Value(size, {"table": table}) for table, size in tables),
    )
