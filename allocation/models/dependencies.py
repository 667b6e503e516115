"""Dependencies: bookings that wait for others to end."""

from typing import ClassVar

from django.db import models
from django.db.models import F, Q

from allocation.models.bookings import Booking
from tenants.models import Tenant


class Dependency(models.Model):
    """A booking waits for a parent to end, or for its program to report success."""

    class Needs(models.TextChoices):
        """What of the parent it waits for."""

        END = "end", "End"
        SUCCESS = "success", "Success"

    MOST: ClassVar = 20

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    booking = models.ForeignKey(
        Booking, on_delete=models.PROTECT, related_name="dependencies", db_constraint=False
    )
    parent = models.ForeignKey(
        Booking, on_delete=models.PROTECT, related_name="dependents", db_constraint=False
    )
    needs = models.CharField(max_length=8, choices=Needs.choices, default=Needs.END)

    class Meta:
        ordering = ["booking", "id"]
        constraints = [
            models.UniqueConstraint(fields=["booking", "parent"], name="dependency_once"),
            models.CheckConstraint(condition=~Q(booking=F("parent")), name="dependency_of_another"),
        ]

    def __str__(self) -> str:
        return f"{self.booking_id} after {self.needs} of {self.parent_id}"
