"""What operators order to be moved together."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q

from allocation.models.bookings import Booking
from allocation.models.decisions import Decision


class CompactionOrder(models.Model):
    """An operator's order to pause running bookings and let them go on elsewhere, so that
    `beneficiary` can start.

    `document` has its `gpu_class`, its `places`, and the `moves`: booking, source, target. The next
    decision answers once, at `decided_at`: it is carried out by `decision`, or `declined` says why
    not. The system's and the operators' alone: it names bookings of several tenants.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    beneficiary = models.ForeignKey(Booking, on_delete=models.PROTECT, related_name="+")
    document = models.JSONField()
    created = models.DateTimeField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT)
    decided_at = models.DateTimeField(null=True, blank=True)
    decision = models.ForeignKey(
        Decision, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    declined = models.CharField(max_length=300, blank=True)

    class Meta:
        ordering = ["-created", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["beneficiary"], condition=Q(decided_at=None), name="compaction_one_open"
            ),
            models.CheckConstraint(
                condition=Q(decided_at=None, decision=None, declined="")
                | Q(decided_at__isnull=False, decision__isnull=False),
                name="compaction_answered_once",
            ),
        ]
