"""What a turn takes in: of many new bookings a part of each tenant's, so that nobody waits until
all that somebody else has asked for is decided."""

from collections import defaultdict
from uuid import UUID

from django.db import connection

from allocation.models import Booking
from allocation.rules.states import OPEN, State


def deferred_bookings(most: int) -> frozenset[UUID]:
    """New bookings beyond the `most` of a turn: the tenants' oldest in the highest tiers, tenant by
    tenant in turns. The dates of a series stay together."""
    rows = Booking.objects.filter(state=State.REQUESTED)
    if rows.count() <= most:
        return frozenset()
    tenants: dict[UUID, list[list[UUID]]] = defaultdict(list)
    series: dict[UUID, list[UUID]] = {}
    fields = ("id", "tenant_id", "series_id")
    for booking, tenant, of in rows.order_by("-tier__priority", "submitted", "id").values_list(
        *fields
    ):
        if of in series:
            series[of].append(booking)
            continue
        tenants[tenant].append([booking])
        if of is not None:
            series[of] = tenants[tenant][-1]
    lines = [tenants[tenant][::-1] for tenant in sorted(tenants)]
    taken = 0
    while taken < most:
        lines = [line for line in lines if line]
        for line in lines:
            if taken < most:
                taken += len(line.pop())
    return frozenset(booking for line in lines for together in line for booking in together)


def open_bookings_lock(patience_ms: int) -> None:
    """Locks every open booking until the end of the transaction, in the order of all who lock
    several. Raises OperationalError when that takes longer than `patience_ms`."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('lock_timeout')")
        (usual,) = cursor.fetchone()
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{patience_ms}ms"])
        held = Booking.objects.filter(state__in=OPEN).select_for_update(no_key=True, of=("self",))
        list(held.order_by("id").values_list("id", flat=True))
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [usual])
