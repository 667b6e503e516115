"""Changes of bookings: each is one request of a person, and its answer."""

import uuid
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from allocation.models.bookings import Booking, PlannedStrength
from allocation.models.decisions import Decision
from billing.models import MONEY
from tenants.models import Tenant

NO_ROWS = models.Value([], output_field=models.JSONField())
NOTHING = models.Value({}, output_field=models.JSONField())


class BookingChange(models.Model):
    """A change that somebody asked for. The booking keeps what it has until it is granted.

    A weaker change is granted at once, a stronger one by a decision.
    """

    class State(models.TextChoices):
        """Where the change stands. Only the first two are open."""

        ASKED = "asked", "Asked"
        AWAITING_APPROVAL = "awaiting_approval", "Awaiting approval"
        CHANGED = "changed", "Changed"
        KEPT = "kept", "Kept"
        REPLACED = "replaced", "Replaced"
        WITHDRAWN = "withdrawn", "Withdrawn"

    OPEN: ClassVar = (State.ASKED, State.AWAITING_APPROVAL)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    booking = models.ForeignKey(
        Booking, on_delete=models.PROTECT, related_name="changes", db_constraint=False
    )
    group = models.UUIDField(null=True, blank=True, help_text="Changes that are made all or none.")
    is_partial = models.BooleanField(
        default=False, db_default=False, help_text="It may be made without the rest of its group."
    )
    strength = models.CharField(max_length=8, help_text="Word, weaker or stronger.")
    state = models.CharField(max_length=20, choices=State.choices)
    base_revision = models.PositiveIntegerField(help_text="Of the booking when it was asked.")

    # The target
    target = models.JSONField(help_text="The fields of the booking that it asks for.")
    before = models.JSONField(help_text="The same fields as they were.")
    differences = models.JSONField(default=dict, help_text="Before and after, by field.")

    until = models.DateTimeField(
        null=True, blank=True, help_text="The later end that is asked for, of a running booking."
    )
    gives_back = models.JSONField(
        default=list, db_default=NO_ROWS, help_text="Allocations that a running booking gives up."
    )
    keep_trying_until = models.DateTimeField(
        null=True,
        blank=True,
        help_text="It waits for room until then; null: if there is none it is kept as it is.",
    )
    is_sooner = models.BooleanField(
        default=False,
        db_default=False,
        help_text="Any earlier start is taken, and becomes the start of the fixed window.",
    )
    calendar_due = models.BooleanField(
        default=False, help_text="The calendar has still to give up what the change gave up."
    )

    # Bounds of what the asker accepts
    start_by = models.DateTimeField(null=True, blank=True, help_text="Latest start.")
    least_strength = models.CharField(
        max_length=10,
        choices=PlannedStrength.choices,
        blank=True,
        help_text="The least that the start may be worth; empty: not less than before.",
    )
    delta_held = models.DecimalField(
        **MONEY, default=0, help_text="Held for the added cost until it is decided."
    )

    late_fee = models.DecimalField(
        **MONEY, default=0, db_default=0, help_text="The most that what it gives up late costs."
    )

    undoes = models.ForeignKey(
        "self",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        db_constraint=False,
        help_text="The change that it takes back.",
    )
    restores = models.JSONField(
        default=dict,
        db_default=NOTHING,
        help_text="What an undo gives back besides `before`, as it was when the change was made.",
    )

    # People and the answer
    asked_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    asked_at = models.DateTimeField(help_text="Its place in the queue, too.")
    decided_at = models.DateTimeField(null=True, blank=True)
    decision = models.ForeignKey(Decision, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    reasons = models.JSONField(default=list, help_text="Why the booking keeps what it has.")
    alternatives = models.JSONField(default=list, help_text="Windows that would work.")

    class Meta:
        ordering = ["-asked_at", "id"]
        indexes = [
            models.Index(fields=["tenant", "booking", "-asked_at"], name="change_of_booking"),
            models.Index(
                fields=["state"],
                name="change_to_do",
                condition=Q(state__in=["asked", "awaiting_approval"]) | Q(calendar_due=True),
            ),
        ]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "id"], name="change_id_in_tenant"),
            models.UniqueConstraint(
                fields=["booking"],
                condition=Q(state__in=["asked", "awaiting_approval"]),
                name="change_open_once",
            ),
            models.UniqueConstraint(
                fields=["undoes"],
                condition=Q(state__in=["asked", "changed"]),
                name="change_undone_once",
            ),
            models.CheckConstraint(
                condition=Q(state__in=["asked", "awaiting_approval"], decided_at=None)
                | Q(
                    state__in=["changed", "kept", "replaced", "withdrawn"],
                    decided_at__isnull=False,
                ),
                name="change_decided_or_open",
            ),
            models.CheckConstraint(
                condition=Q(strength__in=["word", "weaker", "stronger"]) & Q(delta_held__gte=0),
                name="change_sane",
            ),
        ]

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for room: it was asked for, and there was none."""
        is_asked = self.state == BookingChange.State.ASKED
        return is_asked and self.keep_trying_until is not None and bool(self.reasons)

    @property
    def whole_group(self) -> uuid.UUID | None:
        """The group of changes with which it is made or not at all."""
        return None if self.is_partial else self.group

    @property
    def is_only_end(self) -> bool:
        """Whether it changes the length and nothing else that needs a decision."""
        return set(self.differences) <= {"duration", "name"}
