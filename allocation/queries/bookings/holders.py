"""Who has a waiting booking's planned GPUs until it can start.

Of other tenants only the time is read, which every tenant may know.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection

from allocation.models import Allocation, Booking
from allocation.rules.states import WAITING, State

MOST = 5
_BUSY = """
SELECT gpu_id, start, size, period_end, mine FROM portal_busy(%(now)s, %(starts)s)
WHERE gpu_id = ANY(%(gpus)s)
UNION ALL
SELECT gpu_id, start, size, period_end, mine FROM portal_planned(%(now)s, %(starts)s)
WHERE gpu_id = ANY(%(gpus)s)
"""


@dataclass(frozen=True, slots=True)
class Holder:
    """A booking that has `gpus` of the planned GPUs until `until`.

    `label` is empty for another tenant's booking.
    """

    label: str
    is_own: bool
    gpus: int
    until: datetime


def holders_of(booking: Booking, now: datetime) -> list[Holder]:
    """The last to have each of the planned GPUs before the start, the latest first.

    Runs inside a transaction of the booking's tenant. Empty without a planned start to come.
    """
    starts = booking.expected_start
    if starts is None or starts <= now or not booking.planned_places:
        return []
    rows = _busy(booking, starts, now)
    last: dict[tuple[UUID, int], tuple[datetime, bool]] = {}
    for place in booking.planned_places:
        gpu, first, size = UUID(place["gpu"]), place["start"], place["size"]
        ends = [
            (until, mine)
            for at, start, length, until, mine in rows
            if at == gpu and start < first + size and first < start + length and until <= starts
        ]
        if ends:
            last[gpu, first] = max(ends)
    labels = _own_labels(booking, {until for until, mine in last.values() if mine}, now)
    # Two places in one GPU are one GPU.
    counts = Counter(
        key[1:]
        for key in {
            (gpu, labels.get((gpu, until), "") if mine else "", mine, until)
            for (gpu, _), (until, mine) in last.items()
        }
    )
    found = [Holder(label, mine, count, until) for (label, mine, until), count in counts.items()]
    return sorted(found, key=lambda each: (each.until, each.label), reverse=True)[:MOST]


def _busy(
    booking: Booking, starts: datetime, now: datetime
) -> Sequence[tuple[UUID, int, int, datetime, bool]]:
    gpus = [UUID(place["gpu"]) for place in booking.planned_places]
    with connection.cursor() as cursor:
        cursor.execute(_BUSY, {"now": now, "starts": starts, "gpus": gpus})
        return list(cursor.fetchall())


def _own_labels(
    booking: Booking, ends: Collection[datetime], now: datetime
) -> dict[tuple[UUID, datetime], str]:
    """The own bookings that have, or are planned to have, one of these GPUs until one of these
    ends."""
    if not ends:
        return {}
    places = [place["gpu"] for place in booking.planned_places]
    waiting = Booking.objects.filter(
        tenant_id=booking.tenant_id,
        state__in=(*WAITING, State.PAUSING, State.PAUSED),
        planned_ends__in=ends,
    )
    found = {
        (UUID(place["gpu"]), row.planned_ends): row.label
        for row in waiting
        for place in row.planned_places
        if row.planned_ends is not None
    }
    rows = Allocation.objects.filter(
        tenant_id=booking.tenant_id,
        state__in=Allocation.LIVE,
        gpu_id__in=places,
        period__endswith__gt=now,
    ).select_related("booking")
    return found | {(row.gpu_id, row.period.upper): row.booking.label for row in rows}
