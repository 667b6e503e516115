"""The calendar for quotes: own bookings in full, those of other tenants as busy time.

Of other tenants a quote knows which slots are taken and until when. Borrowing, tier, gang and
preemptibility of their rows are not read, so no quote can reveal them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from django.db import connection

from allocation.models import Booking
from allocation.rules.states import State
from allocation.services.record.places import place_of
from allocation.services.snapshot.demands import host_resources
from allocation.services.snapshot.snapshot import (
    MOST_PENDING,
    calendar_read,
    held_until,
    places_read,
    seconds,
)
from solver import DatedGuarantee, Held, Limit, Place, Policy, Snapshot

_OTHERS = "others"
_SLICE = "busy"
_OCCUPIED = """
SELECT gpu_id, sliced, start, size, share, cores, memory, period_start, period_end
FROM portal_occupied(%s, %s)
"""
_LIMITS = "SELECT gpu_class, guaranteed, lent FROM portal_lenders()"
_KEPT = "SELECT gpu_class, starts, ends, kept FROM portal_kept_by_others(%s)"


def published_places(now: datetime, until: datetime) -> Snapshot:
    """Which places a tenant may see as taken until then, without limits and use.

    Must run inside a tenant's transaction.
    """
    own = places_read(now)
    return replace(own, held=(*own.held, *_kept_places(now), *_occupied(now, until)))


def published_snapshot(now: datetime, policy: Policy, without: Booking | None = None) -> Snapshot:
    """The snapshot that a tenant may see, leaving out the booking `without`.

    Others' time is read up to the policy's horizon. Must run inside a tenant's transaction.
    """
    gone = str(without.id) if without else None
    own, others = calendar_read(now), tuple(_others_limits())
    return replace(
        own,
        held=(
            *(row for row in own.held if row.booking != gone),
            *(row for row in _kept_places(now) if row.booking != gone),
            *_occupied(now, now + timedelta(seconds=policy.horizon)),
        ),
        requests=tuple(row for row in own.requests if row.booking != gone),
        limits=(*own.limits, *others),
        guarantees=(*own.guarantees, *_others_guarantees(others, now)),
    )


def _kept_places(now: datetime) -> Iterator[Held]:
    """The places that are kept for the tenant's own requests for approval. A new request is behind
    these; they use no quota of the tenant, so they are like others' busy time."""
    rows = Booking.objects.filter(state=State.AWAITING_APPROVAL, place_until__gt=now)
    rows = rows.exclude(planned_starts=None).exclude(planned_places=[])
    for row in rows.order_by("id")[:MOST_PENDING]:
        if row.planned_starts is None or row.planned_ends is None:
            continue
        cores, memory = host_resources(row.ask)
        for number, place in enumerate(row.planned_places):
            yield Held(
                id=f"kept-{row.id}-{number}",
                booking=str(row.id),
                tenant=_OTHERS,
                project=_OTHERS,
                place=place_of(place),
                starts=seconds(row.planned_starts),
                ends=seconds(row.planned_ends),
                started=False,
                tier="",
                cores=cores,
                memory=memory,
                owner=_OTHERS,
            )


def _others_limits() -> Iterator[Limit]:
    """The guarantees and lending of all other tenants, summed up as one."""
    with connection.cursor() as cursor:
        cursor.execute(_LIMITS)
        for gpu_class, guaranteed, lent in cursor.fetchall():
            yield Limit(_OTHERS, None, gpu_class, int(guaranteed), None, int(lent))


def _others_guarantees(limits: Iterable[Limit], now: datetime) -> Iterator[DatedGuarantee]:
    """What all others keep between dates, next to what they lend at other times: only what is not lent
    counts for a quote."""
    lent = {row.gpu_class: row.lend or 0 for row in limits}
    with connection.cursor() as cursor:
        cursor.execute(_KEPT, [now])
        for gpu_class, starts, ends, kept in cursor.fetchall():
            units = int(kept) + lent.get(gpu_class, 0)
            yield DatedGuarantee(_OTHERS, gpu_class, seconds(starts), seconds(ends), units)


def _occupied(now: datetime, until: datetime) -> Iterator[Held]:
    """Each busy row as a booking of its own, in an unknown tier: never paused."""
    with connection.cursor() as cursor:
        cursor.execute(_OCCUPIED, [now, until])
        rows = cursor.fetchall()
    for number, (gpu, sliced, start, size, share, cores, memory, starts, ends) in enumerate(rows):
        has_begun = starts <= now
        yield Held(
            id=f"busy-{number}",
            booking=f"busy-{number}",
            tenant=_OTHERS,
            project=_OTHERS,
            place=Place(str(gpu), _SLICE if sliced else None, start, size, share),
            starts=seconds(starts),
            ends=held_until(ends, now, started=has_begun),
            started=has_begun,
            tier="",
            cores=cores * 1_000,
            memory=memory * 1_024,
            owner=_OTHERS,
        )
