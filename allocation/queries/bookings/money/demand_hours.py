"""What each hour had: bookings and allocations of all organisations, and work outside of them."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import groupby
from operator import itemgetter
from typing import Any
from uuid import UUID

from django.db import connection

from allocation.points import DEMAND_SOURCES
from allocation.queries.bookings.money.held_use import DEVICES, WHOLE

HOUR = timedelta(hours=1)
# GPUs that a booking asks for. A slice that has not run counts by its compute slices.
ASKED = f"""{DEVICES} * coalesce((b.ask->>'share')::numeric / 1000,
  substring(b.ask->>'profile' from '^[0-9]+')::numeric / 7, 1)"""
ASKED_CLASS = "coalesce(nullif(b.planned_class, ''), b.ask->'classes'->>0)"
_REQUESTED = f"""
SELECT {ASKED_CLASS}, date_trunc('hour', b.submitted), sum({ASKED})
FROM allocation_booking b
WHERE b.submitted >= %(starts)s AND b.submitted < %(ends)s
GROUP BY 1, 2
"""  # noqa: S608 (our own text)
# Each span counts where it begins and where it ends, so a wait of weeks costs as much as one of minutes.
_EDGES = """
SELECT x.gpu_class, date_trunc('hour', e.at), sum(e.sign * x.gpus), sum(e.sign * x.gpus
  * extract(epoch FROM date_trunc('hour', e.at) + '1 hour'::interval - e.at))
FROM ({spans}) x
CROSS JOIN LATERAL (VALUES
  (greatest(x.since, %(starts)s), 1), (least(x.until, %(ends)s), -1)) e (at, sign)
WHERE x.since < least(x.until, %(ends)s) AND x.until > %(starts)s
GROUP BY 1, 2 ORDER BY 1, 2
"""
_IN_USE = f"""
SELECT g.gpu_class_id AS gpu_class, {WHOLE} AS gpus, lower(a.period) AS since,
  coalesce(upper(a.period), %(ends)s) AS until
FROM allocation_allocation a
JOIN allocation_gpu g ON g.id = a.gpu_id
WHERE a.state = ANY(%(states)s) AND NOT a.abandoned AND a.period && tstzrange(%(starts)s, %(ends)s)
"""  # noqa: S608
# A wait is from the earliest start that was requested to the first run, or to the end without one. The
# OFFSET keeps PostgreSQL from looking for the first run again at each use of `until`, and from counting the
# GPUs of bookings that did not wait in these hours.
WAITED = f"""
SELECT {ASKED_CLASS} AS gpu_class, {ASKED} AS gpus, b.since, b.until
FROM (
  SELECT b.planned_class, b.ask, greatest(b.submitted, b.not_before) AS since, coalesce(
    (SELECT min(lower(a.period)) FROM allocation_allocation a
     WHERE a.booking_id = b.id AND a.state = ANY(%(states)s)), b.ended_at, %(ends)s) AS until
  FROM allocation_booking b
  WHERE b.submitted < %(ends)s AND (b.ended_at IS NULL OR b.ended_at > %(starts)s)
    AND (%(projects)s::uuid[] IS NULL OR b.project_id = ANY(%(projects)s))
    AND (%(tenant)s::uuid IS NULL OR b.tenant_id = %(tenant)s)
  OFFSET 0) b
"""  # noqa: S608
RUNS = ["active", "releasing", "ended"]
LIVE = ["planned", "starting", "active", "releasing"]
Hours = dict[tuple[str, datetime], float]


def requested_hours(starts: datetime, ends: datetime) -> Hours:
    """The GPUs that were asked for, by class and hour."""
    return _with_sources(_hours(_REQUESTED, {"starts": starts, "ends": ends}), "requested", starts, ends)


def in_use_hours(starts: datetime, ends: datetime) -> Hours:
    """The GPUs that were in use on average, by class and hour."""
    found = levels_by_hour(_IN_USE, {"starts": starts, "ends": ends, "states": RUNS})
    return _with_sources(found, "in_use", starts, ends)


def booked_hours(starts: datetime, ends: datetime) -> Hours:
    """The GPUs that are planned already for coming hours, by class and hour."""
    return levels_by_hour(_IN_USE, {"starts": starts, "ends": ends, "states": LIVE})


def waited_hours_of(projects: Sequence[UUID], starts: datetime, ends: datetime) -> Hours:
    """The GPUs of bookings of these projects that waited, on average, by class and hour."""
    return levels_by_hour(WAITED, _waited_by([*projects], starts, ends))


def waited_hours(starts: datetime, ends: datetime) -> Hours:
    """The GPUs of what waited, on average, by class and hour."""
    found = levels_by_hour(WAITED, _waited_by(None, starts, ends))
    return _with_sources(found, "waited", starts, ends)


def _waited_by(projects: list[UUID] | None, starts: datetime, ends: datetime) -> dict[str, Any]:
    return {"starts": starts, "ends": ends, "states": RUNS, "projects": projects, "tenant": None}


def first_request() -> datetime | None:
    """When the first work was requested."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT min(submitted) FROM allocation_booking")
        found: datetime | None = cursor.fetchone()[0]
    return min(filter(None, (found, news_since(None))), default=None)


def news_since(read: datetime | None) -> datetime | None:
    """The oldest time of work outside of bookings that has become known since an instant."""
    return min(filter(None, (source.since(read) for source in DEMAND_SOURCES)), default=None)


def _with_sources(found: Hours, kind: str, starts: datetime, ends: datetime) -> Hours:
    for source in DEMAND_SOURCES:
        for key, gpus in source.hours(kind, starts, ends).items():
            found[key] += gpus
    return found


def levels_by_hour(spans: str, facts: dict[str, Any]) -> Hours:
    """The GPUs of spans on average, by class and hour; hours without any are left out.

    `spans` is SQL for rows of gpu_class, gpus, since and until; `facts` has its parameters, `starts` and
    `ends` among them.
    """
    found: Hours = defaultdict(float)
    with connection.cursor() as cursor:
        cursor.execute(_EDGES.format(spans=spans), facts)
        rows = [row for row in cursor.fetchall() if row[0]]
    for name, edges in groupby(rows, key=itemgetter(0)):
        level, at = Decimal(0), None
        for _, hour, change, part in edges:
            while level and at is not None and at < hour:
                found[name, at] += float(level)
                at += HOUR
            # Sums of products are exact, so what has ended leaves nothing.
            if seconds := level * 3600 + part:
                found[name, hour] += float(seconds) / 3600
            level, at = level + change, hour + HOUR
    return found


def _hours(sql: str, facts: dict[str, Any]) -> Hours:
    found: Hours = defaultdict(float)
    with connection.cursor() as cursor:
        cursor.execute(sql, facts)
        for name, at, gpus in cursor.fetchall():
            if name:
                found[name, at] += float(gpus)
    return found
