"""When running bookings are to be paused, because a waiting booking is planned on their GPUs.

The timeline cuts its bars at the same times.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection

from allocation.models import Booking
from allocation.rules.states import State

_FIRST = """
SELECT DISTINCT ON (a.booking_id) a.booking_id, p.gpu_id, p.period_start, p.mine
  FROM allocation_allocation a
  JOIN portal_planned(%(now)s, %(until)s) p ON p.gpu_id = a.gpu_id
   AND p.start < a.start + a.size AND a.start < p.start + p.size
   AND NOT (p.mode = 'shared' AND a.mode = 'shared')
   AND p.period_start > %(now)s AND p.period_start < upper(a.period)
 WHERE a.booking_id = ANY(%(ids)s) AND a.state = 'active'
 ORDER BY a.booking_id, p.period_start, p.mine DESC, p.gpu_id
"""
_PLANS = (State.QUEUED, State.PAUSING, State.PAUSED)


@dataclass(frozen=True, slots=True)
class PlannedPause:
    """A pause at `at`; `label` is the booking that needs the GPUs, empty if the reader may not see it."""

    at: datetime
    label: str = ""


def planned_pauses(
    bookings: Iterable[Booking], now: datetime, *, is_site: bool = False
) -> Mapping[UUID, PlannedPause]:
    """Returns the planned pauses of those that run, by id. Run inside the tenant's transaction, or with
    `is_site` inside one of operators, who may see the bookings of all organisations."""
    running = [each for each in bookings if each.state == State.ACTIVE and each.planned_ends]
    if not running:
        return {}
    until = max(each.planned_ends for each in running if each.planned_ends)
    ids = [each.id for each in running]
    with connection.cursor() as cursor:
        cursor.execute(_FIRST, {"now": now, "until": until, "ids": ids})
        rows = list(cursor.fetchall())
    tenant = None if is_site else running[0].tenant_id
    labels = _labels(tenant, {at for _, _, at, mine in rows if mine or is_site})
    return {
        booking: PlannedPause(at, labels.get((gpu, at), "") if mine or is_site else "")
        for booking, gpu, at, mine in rows
    }


def _labels(tenant: UUID | None, starts: Collection[datetime]) -> dict[tuple[UUID, datetime], str]:
    """The bookings of a tenant, or of all, that are planned for these starts, by GPU and start."""
    if not starts:
        return {}
    rows = Booking.objects.filter(state__in=_PLANS, planned_starts__in=starts)
    if tenant is not None:
        rows = rows.filter(tenant_id=tenant)
    return {
        (UUID(place["gpu"]), row.planned_starts): row.label
        for row in rows
        for place in row.planned_places
        if row.planned_starts is not None
    }
