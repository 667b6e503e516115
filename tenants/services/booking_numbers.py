"""Numbers of bookings, unique in a tenant.

The counter of a tenant is locked until the transaction that takes numbers from it commits. A web
process takes some in advance (`booking_numbers_prepare`), so that bookings that arrive together
don't wait for each other; numbers that it has left when it ends are never used.
"""

from collections import defaultdict, deque
from threading import Lock
from uuid import UUID

from django.db import connection

from tenants.platform.wall import tenant_tx

IN_ADVANCE = 64
# With fewer left, more are taken: as many as requests that are written together.
FEW = 32

# The numbers that each tenant has left here.
_taken: defaultdict[UUID, deque[int]] = defaultdict(deque)
_taken_lock = Lock()


def booking_numbers_prepare(tenant_id: UUID) -> None:
    """Takes numbers in advance in a transaction of its own. Call it before the one that needs them.

    In an open transaction it does nothing: what is taken there is lost if it is undone.
    """
    if connection.in_atomic_block or len(_taken[tenant_id]) >= FEW:
        return
    with tenant_tx(tenant_id):
        first = _counted(tenant_id, IN_ADVANCE)
    with _taken_lock:
        _taken[tenant_id].extend(range(first, first + IN_ADVANCE))


def booking_numbers_take(tenant_id: UUID, more: int = 1) -> int:
    """Takes `more` numbers that follow each other; returns the first. Unless one is taken that was
    taken in advance, the counter stays locked until the commit."""
    if more == 1:
        with _taken_lock:
            left = _taken[tenant_id]
            if left:
                return left.popleft()
    return _counted(tenant_id, more)


def _counted(tenant_id: UUID, more: int) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE tenants_tenant SET bookings_counted = bookings_counted + %s WHERE id = %s"
            " RETURNING bookings_counted",
            [more, tenant_id],
        )
        return int(cursor.fetchone()[0]) - more + 1
