"""Operators' compaction orders."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q

from allocation.models.bookings import Booking
from allocation.models.decisions import Decision


class CompactionOrder(models.Model):
    """An operator's order to pause running bookings and resume them elsewhere, so that
    `beneficiary` can start. The next decision carries it out or declines it.

    System and operators only: it names bookings of several tenants.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    beneficiary = models.ForeignKey(Booking, on_delete=models.PROTECT, related_name="+")
    document = models.JSONField(
        help_text="gpu_class, places of the beneficiary, and moves: booking, source, target."
    )
    created = models.DateTimeField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT)
    decided_at = models.DateTimeField(null=True, blank=True)
    decision = models.ForeignKey(Decision, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    declined = models.CharField(max_length=300, blank=True, help_text="Why it was declined.")

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
