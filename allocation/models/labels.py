"""The index of bookings' labels."""

from django.db import models

from allocation.models.bookings import Booking
from tenants.models import Tenant


class BookingLabel(models.Model):
    """A label of a booking, for filters. Triggers of the table of bookings write it."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False)
    booking = models.ForeignKey(
        Booking, on_delete=models.CASCADE, related_name="+", db_constraint=False, db_index=False
    )
    key = models.CharField(max_length=63)
    value = models.CharField(max_length=100)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "booking", "key"], name="booking_label_once")
        ]
        indexes = [models.Index(fields=["tenant", "key", "value", "booking"], name="booking_by_label")]

    def __str__(self) -> str:
        return f"{self.key}={self.value}"
