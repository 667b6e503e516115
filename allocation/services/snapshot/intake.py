"""Bookings that one cycle takes: a part of each tenant's new ones, and entries of the waiting list.

No tenant waits until all bookings of another are decided.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID

from django.db import connection
from django.db.models import Q

from allocation.models import Booking, WaitEntry, WaitMode, WaitOffer
from allocation.rules.states import OPEN, State
from allocation.rules.waiting import MOST_EXPIRED
from solver.model.inputs import Entry, Request


def deferred_bookings(most: int) -> frozenset[UUID]:
    """New bookings beyond the `most` of a cycle. A cycle takes the tenants' bookings in turns, by
    tier and age. The dates of a series stay together."""
    rows = Booking.objects.filter(state=State.REQUESTED, is_drained=False)
    if rows.count() <= most:
        return frozenset()
    tenants: dict[UUID, list[list[UUID]]] = defaultdict(list)
    series: dict[UUID, list[UUID]] = {}
    fields = ("id", "tenant_id", "series_id")
    for booking, tenant, of in rows.order_by("-tier__priority", "submitted", "id").values_list(*fields):
        if of in series:
            series[of].append(booking)
            continue
        tenants[tenant].append([booking])
        if of is not None:
            series[of] = tenants[tenant][-1]
    queues = [tenants[tenant][::-1] for tenant in sorted(tenants)]
    taken = 0
    while taken < most:
        queues = [queue for queue in queues if queue]
        for queue in queues:
            if taken < most:
                taken += len(queue.pop())
    return frozenset(booking for queue in queues for together in queue for booking in together)


def open_bookings_lock(patience_ms: int) -> None:
    """Locks every open booking until the end of the transaction, in the common lock order. Raises
    OperationalError if that takes longer than `patience_ms`."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('lock_timeout')")
        (usual,) = cursor.fetchone()
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{patience_ms}ms"])
        held = Booking.objects.filter(state__in=OPEN).select_for_update(no_key=True, of=("self",))
        list(held.order_by("id").values_list("id", flat=True))
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [usual])


def entries_waiting(now: datetime) -> list[WaitEntry]:
    """Every entry that waits for an offer, except in its owner's night or after two offers that had
    no answer."""
    rows = WaitEntry.objects.filter(
        Q(quiet_until=None) | Q(quiet_until__lte=now),
        slot__isnull=False,
        mode=WaitMode.OFFER,
        expired_count__lt=MOST_EXPIRED,
        booking__state=State.WAITLISTED,
        booking__is_drained=False,
    ).select_related("booking__tier", "booking__series")
    return list(rows.order_by("booking_id"))


def entries_of(rows: Sequence[WaitEntry], requests: Iterable[Request]) -> tuple[Entry, ...]:
    """The entries of these rows, whose bookings have these requests."""
    barred = _barred() if rows else {}
    return tuple(
        Entry(
            request.booking,
            request,
            tuple((_seconds(since), _seconds(until)) for since, until in row.times),
            row.expired_count,
            tuple(sorted(barred.get((str(row.tenant_id), str(row.owner_id)), ()))),
        )
        for row, request in zip(rows, requests, strict=True)
    )


def _seconds(moment: datetime) -> int:
    return int(moment.timestamp())


def _barred() -> dict[tuple[str, str], set[str]]:
    """By person, the classes in which they have an open offer."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    rows = WaitOffer.objects.filter(state=WaitOffer.State.OPEN)
    for tenant, owner, name in rows.values_list("tenant_id", "owner_id", "gpu_class"):
        found[str(tenant), str(owner)].add(name)
    return found
