"""Pauses: each row is the notice, the bill of the run that it ended, and the receipt."""

import uuid

from django.db import models
from django.db.models import F, Q

from allocation.models.bookings import Booking
from allocation.models.decisions import Decision
from billing.models import MONEY
from tenants.models import Tenant, Tier


class PauseCause(models.Model):
    """The beneficiary of a pause. System only: it can be another tenant's booking."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    beneficiary = models.ForeignKey(
        Booking,
        on_delete=models.PROTECT,
        null=True,
        related_name="+",
        help_text="Null: the ladder of a budget, or an operator, asked for the pause.",
    )
    handed_over_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="When the beneficiary was notified that its GPUs are empty.",
    )


class PauseRelation(models.TextChoices):
    """How the beneficiary is related to the paused booking."""

    OWNER = "owner", "the same owner"
    PROJECT = "project", "the same project"
    TENANT = "tenant", "the same organisation"
    MEMBER = "member", "a member of this organisation"
    IDLE = "idle", "anybody, because its GPUs were idle"


class Pause(models.Model):
    """One pause of a booking for one with a higher priority.

    It is resolved once: the booking is resumed, or it ends, or the notice is withdrawn because the
    GPUs are no longer needed.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    booking = models.ForeignKey(Booking, on_delete=models.PROTECT, related_name="pauses", db_constraint=False)
    number = models.PositiveSmallIntegerField(help_text="1 for the booking's first pause.")

    # Cause
    cause = models.OneToOneField(PauseCause, on_delete=models.PROTECT)
    beneficiary_label = models.CharField(
        max_length=24, blank=True, help_text="Empty if it is another tenant's booking."
    )
    may_wait = models.BooleanField(
        help_text="The beneficiary has no fixed start, so more time can be asked for."
    )
    relation = models.CharField(
        max_length=8,
        choices=PauseRelation.choices,
        blank=True,
        db_default="",
        default="",
        help_text="If set, nothing is credited, and the grace period is charged.",
    )
    decision = models.ForeignKey(
        Decision,
        on_delete=models.PROTECT,
        null=True,
        related_name="+",
        help_text="Null for a pause by the ladder of a budget, or by an operator.",
    )
    policy_version = models.PositiveIntegerField()
    rule = models.CharField(max_length=8)
    sentence = models.CharField(max_length=300, help_text="The reason as the owner saw it.")
    method = models.CharField(max_length=8, choices=Tier.PauseMethod.choices)

    # Notice
    notified_at = models.DateTimeField(help_text="When the owner was notified.")
    deadline = models.DateTimeField(help_text="End of the grace period.")
    grace_seconds = models.PositiveIntegerField()
    more_asked_at = models.DateTimeField(
        null=True, blank=True, help_text="When the owner asked for more time; not yet answered."
    )
    more_times_used = models.PositiveSmallIntegerField(default=0)
    acknowledged_at = models.DateTimeField(
        null=True, blank=True, help_text="When the owner confirmed that the work is saved."
    )

    # Outcome
    emptied_at = models.DateTimeField(null=True, blank=True, help_text="When the GPUs were proven empty.")
    resumed_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(
        null=True, blank=True, help_text="When the booking ended, or the notice was withdrawn."
    )
    withdrawn = models.BooleanField(db_default=False, default=False)

    # Receipt
    ready_at = models.DateTimeField(help_text="Start of the run that the pause ended.")
    ends_before = models.DateTimeField(help_text="End of that run as it was planned.")
    lost_seconds = models.PositiveIntegerField(
        default=0, help_text="Work since the last save, to be done again."
    )
    credit_seconds = models.PositiveIntegerField(default=0, help_text="Lost time that is credited.")
    credit = models.DecimalField(**MONEY, default=0)
    charged = models.DecimalField(**MONEY, default=0, help_text="Cost of the run after the credit.")
    remaining_seconds = models.PositiveIntegerField(
        null=True, blank=True, help_text="Time that is left for the booking to run."
    )

    class Meta:
        ordering = ["booking", "number"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "id"], name="pause_id_in_tenant"),
            models.UniqueConstraint(fields=["booking", "number"], name="pause_number"),
            models.UniqueConstraint(
                fields=["booking"],
                condition=Q(resumed_at=None, ended_at=None),
                name="pause_one_open",
            ),
            models.CheckConstraint(
                condition=Q(resumed_at=None) | Q(ended_at=None), name="pause_resolved_once"
            ),
            models.CheckConstraint(
                condition=Q(resumed_at=None) | Q(emptied_at__isnull=False),
                name="pause_resumed_after_it_was_empty",
            ),
            models.CheckConstraint(
                condition=Q(emptied_at=None)
                | Q(acknowledged_at__isnull=False)
                | Q(emptied_at__gte=F("deadline")),
                name="pause_never_before_its_deadline",
            ),
            models.CheckConstraint(
                condition=Q(withdrawn=False)
                | Q(ended_at__isnull=False, ended_at__lt=F("deadline"))
                & Q(acknowledged_at=None, emptied_at=None),
                name="pause_withdrawn_in_time",
            ),
            models.CheckConstraint(
                condition=Q(ends_before__gte=F("deadline")),
                name="pause_in_order",
            ),
            models.CheckConstraint(
                condition=Q(credit_seconds__lte=F("lost_seconds"), charged__gte=0, credit__gte=0),
                name="pause_credit_sane",
            ),
            models.CheckConstraint(
                condition=Q(relation__in=["", *PauseRelation.values]), name="pause_relation_known"
            ),
        ]

    @property
    def is_own(self) -> bool:
        """Whether the beneficiary belongs to the same people."""
        return self.relation != ""

    @property
    def is_open(self) -> bool:
        """Whether it is neither resumed nor ended."""
        return self.resumed_at is None and self.ended_at is None
