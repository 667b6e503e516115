"""Pauses: one row is the notice, the bill of the run that it ended, and the receipt."""

import uuid

from django.db import models
from django.db.models import F, Q

from allocation.models.bookings import Booking
from allocation.models.decisions import Decision
from tenants.models import Tenant, Tier


class PauseCause(models.Model):
    """For whom a booking is paused. The system's alone: it may be another tenant's booking.

    `handed_over_at` is when the beneficiary was first told that all its room is empty.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    beneficiary = models.ForeignKey(Booking, on_delete=models.PROTECT, related_name="+")
    handed_over_at = models.DateTimeField(null=True, blank=True)


class PauseRelation(models.TextChoices):
    """How a claim is related to what is paused for it."""

    OWNER = "owner", "the same owner"
    PROJECT = "project", "the same project"
    TENANT = "tenant", "the same organisation"
    MEMBER = "member", "a member of this organisation"


class Pause(models.Model):
    """The `number`-th time that a booking gave its places back for a stronger claim.

    Told at `noticed_at`, to be out by `deadline` or from `acknowledged_at` on, when its owner has
    said that everything is saved; out on the proof of empty at `emptied_at`. It is resolved once:
    `resumed_at`, or `ended_at` when the booking was over first, or the notice `withdrawn` because
    nobody needed the room any more. The run that it ended began at
    `ready_at` and would have lasted until `ends_before`; `charged` is what it cost, without the
    `credit` for work that is done again. `remaining_seconds` is the time that is left after it.

    `relation` says that the claim is of its own owner, project or organisation: then nothing is credited
    and the grace is charged. `beneficiary_label` is empty when the stronger claim is another
    tenant's. `may_wait`: the beneficiary has no fixed window, so that more time can be asked for.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    booking = models.ForeignKey(
        Booking, on_delete=models.PROTECT, related_name="pauses", db_constraint=False
    )
    number = models.PositiveSmallIntegerField()
    cause = models.OneToOneField(PauseCause, on_delete=models.PROTECT)
    beneficiary_label = models.CharField(max_length=24, blank=True)
    may_wait = models.BooleanField()
    relation = models.CharField(
        max_length=8, choices=PauseRelation.choices, blank=True, db_default="", default=""
    )
    decision = models.ForeignKey(Decision, on_delete=models.PROTECT, related_name="+")
    policy_version = models.PositiveIntegerField()
    rule = models.CharField(max_length=8)
    sentence = models.CharField(max_length=300)
    method = models.CharField(max_length=8, choices=Tier.PauseMethod.choices)

    ready_at = models.DateTimeField()
    noticed_at = models.DateTimeField()
    deadline = models.DateTimeField()
    grace_seconds = models.PositiveIntegerField()
    ends_before = models.DateTimeField()
    more_asked_at = models.DateTimeField(null=True, blank=True)
    more_times_used = models.PositiveSmallIntegerField(default=0)
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    emptied_at = models.DateTimeField(null=True, blank=True)
    resumed_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    withdrawn = models.BooleanField(db_default=False, default=False)

    lost_seconds = models.PositiveIntegerField(default=0)
    credit_seconds = models.PositiveIntegerField(default=0)
    credit = models.DecimalField(max_digits=20, decimal_places=6, default=0)
    charged = models.DecimalField(max_digits=20, decimal_places=6, default=0)
    remaining_seconds = models.PositiveIntegerField(null=True, blank=True)

    class Meta:
        ordering = ["booking", "number"]
        constraints = [
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
        """Whether the claim is of its own people."""
        return self.relation != ""

    @property
    def is_open(self) -> bool:
        """Neither resumed nor over."""
        return self.resumed_at is None and self.ended_at is None
