"""Overrides: exceptions from a limit, which somebody asked for or its owner gave."""

import uuid
from decimal import Decimal
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from allocation.models.bookings import Booking
from billing.models import Budget
from tenants.models import GpuClass, Project, Tenant, Tier


class Override(models.Model):
    """An exception from a limit. It is asked for, then granted or declined by the limit's owner.

    A dated one applies in [starts, until), one with `is_once` to a single booking. More budget is
    a transfer, which has no end.
    """

    class Kind(models.TextChoices):
        QUOTA = "quota", "GPUs at once"
        GPU_HOURS = "gpu_hours", "GPU-hours"
        BUDGET = "budget", "Budget"
        LENGTH = "length", "Length of a booking"
        LAB_QUOTA = "lab_quota", "GPUs of a lab at once"
        PERSON_QUOTA = "person_quota", "Your GPUs at once"
        SHORTER = "shorter", "Shortest length of a booking"
        NOTICE = "notice", "Time before the start"
        START_HOURS = "start_hours", "Hours of starts"
        TIER_CLASS = "tier_class", "Classes of a tier"
        TIER_AUDIENCE = "tier_audience", "People of a tier"
        OPEN_BOOKINGS = "open_bookings", "Open bookings"
        OPEN_GPUS = "open_gpus", "GPUs of a person at once"

    # Limits of GPUs at once, for which a booking that waits can have an exception of its own.
    OF_QUOTA = (Kind.QUOTA, Kind.LAB_QUOTA, Kind.PERSON_QUOTA)

    # The largest amounts that can be asked for, by kind: no typing error gets into a limit.
    MOST: ClassVar[dict[Kind, Decimal]] = {
        Kind.QUOTA: Decimal(100_000 * 56_000),
        Kind.GPU_HOURS: Decimal(10**8),
        Kind.BUDGET: Decimal(10**9),
        Kind.LAB_QUOTA: Decimal(100_000 * 56_000),
        Kind.PERSON_QUOTA: Decimal(100_000 * 56_000),
        Kind.LENGTH: Decimal(90 * 86_400),
        Kind.SHORTER: Decimal(90 * 86_400),
        Kind.NOTICE: Decimal(366 * 86_400),
        Kind.START_HOURS: Decimal(1),
        Kind.TIER_CLASS: Decimal(1),
        Kind.TIER_AUDIENCE: Decimal(1),
        Kind.OPEN_BOOKINGS: Decimal(10**4),
        Kind.OPEN_GPUS: Decimal(10**5),
    }

    class Decider(models.TextChoices):
        OPERATOR = "operator", "Operator"
        TENANT_ADMIN = "tenant_admin", "Tenant admin"
        LEAD = "lead", "Project lead"

    class State(models.TextChoices):
        ASKED = "asked", "Waiting"
        GRANTED = "granted", "Granted"
        DECLINED = "declined", "Declined"
        WITHDRAWN = "withdrawn", "Withdrawn"
        ENDED = "ended", "Ended early"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    kind = models.CharField(max_length=16, choices=Kind.choices)

    # Whose limit
    project = models.ForeignKey(
        Project,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        db_constraint=False,
        help_text="Whose limit it is about, or whose lab's; null for the whole organisation.",
    )
    person = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="The only person that it is for; null for everybody.",
    )
    gpu_class = models.ForeignKey(GpuClass, on_delete=models.PROTECT, null=True, blank=True)
    tier = models.ForeignKey(Tier, on_delete=models.PROTECT, null=True, blank=True)
    budget = models.ForeignKey(Budget, on_delete=models.PROTECT, null=True, blank=True, db_constraint=False)

    # How much more, and when
    amount = models.DecimalField(
        max_digits=20,
        decimal_places=6,
        help_text="On top of the limit: quota units, GPU-hours, money, seconds, bookings or GPUs."
        " 1 where a rule without a number is lifted.",
    )
    is_once = models.BooleanField(default=False, help_text="For one booking, whenever it runs.")
    booking = models.ForeignKey(
        Booking,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="overrides",
        db_constraint=False,
        help_text="The booking that uses it; null until one does.",
    )
    starts = models.DateTimeField(null=True, blank=True)
    until = models.DateTimeField(null=True, blank=True)

    # The request for it
    asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="Null: its decider gave it without being asked.",
    )
    asked = models.DateTimeField()
    reason = models.CharField(max_length=200, blank=True)
    request_text = models.CharField(
        max_length=400, blank=True, help_text="The request that was refused, to send it again."
    )

    # Its decision
    decider = models.CharField(max_length=16, choices=Decider.choices, help_text="Who decides.")
    state = models.CharField(max_length=10, choices=State.choices, default=State.ASKED)
    decided = models.DateTimeField(null=True, blank=True)
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    answer = models.CharField(max_length=200, blank=True)
    ended = models.DateTimeField(null=True, blank=True)
    warned = models.DateTimeField(
        null=True, blank=True, help_text="When people were notified that it ends soon."
    )

    class Meta:
        ordering = ["-asked", "id"]
        indexes = [
            models.Index(fields=["tenant", "-asked"], name="override_waiting", condition=Q(state="asked")),
            models.Index(fields=["tenant", "kind"], name="override_granted", condition=Q(state="granted")),
        ]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "id"], name="override_id_in_tenant"),
            models.UniqueConstraint(
                fields=[
                    "tenant",
                    "asked_by",
                    "kind",
                    "project",
                    "gpu_class",
                    "tier",
                    "budget",
                    "booking",
                ],
                name="override_asked_once",
                condition=Q(state="asked"),
                nulls_distinct=False,
            ),
            models.CheckConstraint(
                condition=Q(kind__in=["quota", "gpu_hours"], gpu_class__isnull=False, tier=None, budget=None)
                | Q(
                    kind="lab_quota",
                    gpu_class__isnull=False,
                    tier=None,
                    budget=None,
                    project__isnull=False,
                )
                | Q(
                    kind="person_quota",
                    gpu_class__isnull=False,
                    tier=None,
                    budget=None,
                    person__isnull=False,
                )
                | Q(
                    kind="tier_class",
                    gpu_class__isnull=False,
                    tier__isnull=False,
                    budget=None,
                    project__isnull=False,
                )
                | Q(
                    kind__in=["length", "notice", "shorter", "start_hours", "tier_audience"],
                    gpu_class=None,
                    tier__isnull=False,
                    budget=None,
                    project__isnull=False,
                )
                | Q(
                    kind__in=["open_bookings", "open_gpus"],
                    gpu_class=None,
                    budget=None,
                    is_once=False,
                )
                | Q(kind="budget", gpu_class=None, tier=None, budget__isnull=False, is_once=False),
                name="override_fits_its_kind",
            ),
            models.CheckConstraint(
                condition=~Q(kind="gpu_hours") | Q(is_once=False), name="override_hours_dated"
            ),
            models.CheckConstraint(condition=Q(amount__gt=0, amount__lt=10**12), name="override_amount_sane"),
            models.CheckConstraint(
                condition=Q(booking=None, is_once=False)
                | Q(is_once=True, kind="length")
                | Q(
                    is_once=True,
                    kind__in=["quota", "lab_quota", "person_quota"],
                    booking__isnull=False,
                ),
                name="override_booking_once",
            ),
            models.CheckConstraint(
                condition=Q(starts=None) | Q(until=None) | Q(until__gt=F("starts")),
                name="override_ends_later",
            ),
            models.CheckConstraint(
                condition=~Q(state__in=["granted", "ended"])
                | Q(kind="budget", until=None)
                | Q(is_once=True, until=None)
                | Q(is_once=False, starts__isnull=False, until__isnull=False),
                name="override_granted_has_an_end",
            ),
            models.CheckConstraint(
                condition=Q(state__in=["asked", "withdrawn"], decided_by=None)
                | Q(
                    state__in=["granted", "declined", "ended"],
                    decided__gte=F("asked"),
                    decided_by__isnull=False,
                ),
                name="override_decided_by_somebody",
            ),
            models.CheckConstraint(
                condition=Q(asked_by=None) | ~Q(decided_by=F("asked_by")),
                name="override_decided_by_another",
            ),
            models.CheckConstraint(
                condition=Q(state="ended", ended__gte=F("decided")) | Q(ended=None),
                name="override_ended_later",
            ),
        ]
