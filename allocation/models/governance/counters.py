"""Other requests that approvers would approve."""

import uuid
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from allocation.models.governance.approvals import Approval
from tenants.models import Tenant

# What a counter-offer stores next to the terms of its booking.
_MORE = ("dates", "cost")


class CounterOffer(models.Model):
    """What an approver would approve instead. The asker's click books exactly this, or less."""

    class State(models.TextChoices):
        OPEN = "open", "Waiting for the asker"
        ACCEPTED = "accepted", "Accepted"
        DECLINED = "declined", "Declined"
        REPLACED = "replaced", "Replaced"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    approval = models.ForeignKey(
        Approval, on_delete=models.PROTECT, related_name="counters", db_constraint=False
    )
    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    principal = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="The approver that the person stands in for; null: nobody.",
    )
    request_text = models.CharField(max_length=400)
    target = models.JSONField(help_text="The terms that the booking would have.")
    differences = models.JSONField(help_text="What differs: before and after, by field.")
    digest = models.CharField(max_length=64, help_text="SHA-256 of what the asker accepts.")
    reason = models.CharField(max_length=200, blank=True)
    at = models.DateTimeField()
    state = models.CharField(max_length=10, choices=State.choices, default=State.OPEN)
    answered = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-at", "id"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "id"], name="counter_id_in_tenant"),
            models.UniqueConstraint(fields=["approval"], name="counter_one_open", condition=Q(state="open")),
            models.CheckConstraint(
                condition=Q(state="open", answered=None) | ~Q(state="open") & Q(answered__gte=F("at")),
                name="counter_answered_later",
            ),
        ]

    @property
    def terms(self) -> dict[str, Any]:
        """The terms of the booking of the request."""
        return {name: value for name, value in self.target.items() if name not in _MORE}

    @property
    def all_terms(self) -> dict[str, Any]:
        """The terms by booking; of a series, those of each date."""
        return {str(self.approval.booking_id): self.terms, **self.target.get("dates", {})}

    @property
    def cost(self) -> str:
        """What all of it costs at most."""
        return str(self.target.get("cost", self.target["hold_amount"]))
