"""Numbers of bookings, per tenant and without gaps."""

from uuid import UUID

from django.db import connection


def booking_numbers_take(tenant_id: UUID, more: int = 1) -> int:
    """Takes `more` numbers; returns the first. The counter stays locked until the commit."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE tenants_tenant SET bookings_counted = bookings_counted + %s WHERE id = %s"
            " RETURNING bookings_counted",
            [more, tenant_id],
        )
        return int(cursor.fetchone()[0]) - more + 1
