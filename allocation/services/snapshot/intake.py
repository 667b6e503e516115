"""Bookings that one cycle takes: a part of each tenant's new ones.

No tenant waits until all bookings of another are decided.
"""

from collections import defaultdict
from uuid import UUID

from django.db import connection

from allocation.models import Booking
from allocation.rules.states import OPEN, State


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
