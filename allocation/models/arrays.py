"""Arrays: one request for many runs of the same shape."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from allocation.models.series import NO_LABELS
from allocation.rules.arrays import MOST_ELEMENTS
from billing.models import Campaign
from tenants.models import Project, Tenant


class BookingArray(models.Model):
    """A request for many runs. Each element is a booking from when it enters the queue; at most
    `parallel` of them are open at a time."""

    class State(models.TextChoices):
        """Whether the array still has something to book or to run."""

        AWAITING_APPROVAL = "awaiting_approval", "Awaiting approval"
        OPEN = "open", "Open"
        ENDED = "ended", "Ended"

    class Outcome(models.TextChoices):
        """Why no further element is booked."""

        COMPLETED = "completed", "Completed"
        CANCELLED = "cancelled", "Cancelled"
        FAILURES = "failures", "Stopped after failures"
        REFUSED = "refused", "Stopped after a refusal"
        REJECTED = "rejected", "Not approved"
        DEADLINE = "deadline", "Deadline passed"
        OWNER_LEFT = "owner_left", "Its owner has left the project"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    number = models.BigIntegerField(help_text="That of its elements: 2041 is shown as BK-2041.")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, db_constraint=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT)
    campaign = models.ForeignKey(
        Campaign, on_delete=models.PROTECT, null=True, blank=True, db_constraint=False
    )
    labels = models.JSONField(
        default=dict, db_default=NO_LABELS, blank=True, help_text="Those of its elements."
    )
    external_ref = models.CharField(
        max_length=500, blank=True, default="", db_default="", help_text="URL or key of a ticket."
    )
    zone = models.CharField(max_length=64, default="UTC", help_text="Time zone of the request.")
    terms = models.JSONField(help_text="What each element asks for and costs.")
    submitted = models.DateTimeField()

    count = models.PositiveIntegerField(help_text="Elements; the first has index 1.")
    parallel = models.PositiveIntegerField(help_text="Elements that are open at a time, at most.")
    holds_all = models.BooleanField(
        default=True, help_text="The money of all elements is held; otherwise of the open ones."
    )
    stop_after_failures = models.PositiveIntegerField(null=True, blank=True)

    state = models.CharField(max_length=20, choices=State.choices, default=State.OPEN)
    outcome = models.CharField(
        max_length=20,
        choices=Outcome.choices,
        blank=True,
        help_text="Why no further element is booked; empty: more follow.",
    )
    next_index = models.PositiveIntegerField(default=1, help_text="The next element to book.")
    cancelled = models.JSONField(
        default=list, help_text="[first, last] of elements that were cancelled before their turn."
    )
    reasons = models.JSONField(default=list, help_text="Why the next element is not booked yet.")
    begun = models.PositiveIntegerField(default=0, help_text="Elements that have left the queue.")
    approved_hash = models.CharField(max_length=64, blank=True, default="")
    started_at = models.DateTimeField(null=True, blank=True, help_text="Its first start.")
    ended_at = models.DateTimeField(null=True, blank=True, help_text="Its last end.")
    failures_announced = models.PositiveIntegerField(default=0, help_text="Failures that its owner knows of.")
    failures_announced_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-submitted", "id"]
        indexes = [
            models.Index(fields=["state"], name="array_open", condition=~Q(state="ended")),
        ]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "id"], name="array_id_in_tenant"),
            models.UniqueConstraint(fields=["tenant", "number"], name="array_number_in_tenant"),
            models.CheckConstraint(
                condition=Q(
                    count__gte=1,
                    count__lte=MOST_ELEMENTS,
                    parallel__gte=1,
                    parallel__lte=F("count"),
                    next_index__gte=1,
                    next_index__lte=F("count") + 1,
                ),
                name="array_indexes_sane",
            ),
            models.CheckConstraint(
                condition=Q(stop_after_failures=None) | Q(stop_after_failures__gte=1),
                name="array_failures_sane",
            ),
            models.CheckConstraint(
                condition=~Q(state="ended") | Q(ended_at__isnull=False) & ~Q(outcome=""),
                name="array_ended_has_outcome",
            ),
        ]

    def __str__(self) -> str:
        return self.label

    @property
    def label(self) -> str:
        """The number that people use, `BK-2041`."""
        return f"BK-{self.number}"

    @property
    def name(self) -> str:
        """The name of its elements."""
        return str(self.terms["name"])
