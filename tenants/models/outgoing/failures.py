"""Messages, and other entries of queues, on which a program failed."""

from django.db import models
from django.db.models import Q

from tenants.models.organisations import Tenant


class FailedMessage(models.Model):
    """An entry of a queue that a program could not handle. Others are handled; it is tried again,
    and after some tries it is parked until an operator decides.
    """

    id = models.BigAutoField(primary_key=True)
    queue = models.CharField(max_length=40)
    key = models.CharField(max_length=120, help_text="Names the entry within its queue.")
    tenant = models.ForeignKey(
        Tenant,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        help_text="Null: it belongs to the platform or to several tenants.",
    )
    error = models.CharField(max_length=300, help_text="What went wrong.")
    tries = models.PositiveSmallIntegerField(default=1)
    first_failed = models.DateTimeField()
    last_failed = models.DateTimeField()
    next_try = models.DateTimeField(null=True, blank=True, help_text="Null: it is parked.")
    dismissed = models.DateTimeField(
        null=True, blank=True, help_text="An operator has decided that it is not tried again."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["queue", "key"], name="failed_message_once"),
            models.CheckConstraint(
                condition=Q(dismissed=None) | Q(next_try=None), name="failed_message_dismissed"
            ),
        ]
