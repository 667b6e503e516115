"""Approvals: rules that ask for one, requests that wait for one, and what people decided."""

import uuid
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from allocation.models.bookings import Booking
from allocation.models.changes import BookingChange
from allocation.models.series import Series
from allocation.rules.approvals import Conditions, Step, WorkingHours
from billing.models import MONEY
from tenants.models import Project, Tenant


class ApprovalRule(models.Model):
    """A rule that sends bookings to an approver. A request keeps the steps that it was made with."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    project = models.ForeignKey(
        Project,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        db_constraint=False,
        help_text="The project that it is for; null for all of the organisation.",
    )
    name = models.CharField(max_length=80)

    # Conditions: a booking that meets all of them needs an approval.
    min_cost = models.DecimalField(**MONEY, null=True, blank=True)
    min_gpu_hours = models.DecimalField(max_digits=12, decimal_places=3, null=True, blank=True)
    min_gpus = models.PositiveIntegerField(null=True, blank=True, help_text="At once.")
    min_seconds = models.PositiveIntegerField(null=True, blank=True, help_text="Length.")
    classes = models.JSONField(default=list, help_text="GPU classes; empty for all.")
    tiers = models.JSONField(default=list, help_text="Tiers; empty for all.")
    hours_begin = models.TimeField(null=True, blank=True, help_text="Outside of these hours only.")
    hours_end = models.TimeField(null=True, blank=True)
    weekdays = models.JSONField(default=list, help_text="Days of these hours; 0 is Monday.")
    zone = models.CharField(max_length=64, default="UTC", help_text="Time zone of the hours.")
    is_first = models.BooleanField(default=False, help_text="A person's first in the project.")

    steps = models.JSONField(help_text="[{role, needed, hours, escalates}], in order.")
    created = models.DateTimeField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    version = models.PositiveIntegerField(default=1, db_default=1, help_text="Rises with every change.")
    retired = models.DateTimeField(null=True, blank=True)
    retired_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )

    class Meta:
        ordering = ["created", "id"]
        indexes = [
            models.Index(fields=["tenant"], name="approval_rule_in_force", condition=Q(retired=None)),
        ]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "id"], name="approval_rule_in_tenant"),
            models.CheckConstraint(
                condition=(Q(min_cost=None) | Q(min_cost__gt=0))
                & (Q(min_gpu_hours=None) | Q(min_gpu_hours__gt=0))
                & (Q(min_gpus=None) | Q(min_gpus__gt=0))
                & (Q(min_seconds=None) | Q(min_seconds__gt=0)),
                name="approval_rule_amounts_sane",
            ),
            models.CheckConstraint(
                condition=Q(hours_begin=None, hours_end=None, weekdays=[])
                | Q(
                    hours_begin__isnull=False,
                    hours_end__isnull=False,
                    hours_end__gt=F("hours_begin"),
                )
                & ~Q(weekdays=[]),
                name="approval_rule_hours_sane",
            ),
            models.CheckConstraint(
                condition=Q(min_cost__isnull=False)
                | Q(min_gpu_hours__isnull=False)
                | Q(min_gpus__isnull=False)
                | Q(min_seconds__isnull=False)
                | ~Q(classes=[])
                | ~Q(tiers=[])
                | Q(hours_begin__isnull=False)
                | Q(is_first=True),
                name="approval_rule_states_something",
            ),
            models.CheckConstraint(
                condition=Q(retired=None, retired_by=None) | Q(retired__gte=F("created")),
                name="approval_rule_retired_later",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def conditions(self) -> Conditions:
        """What a booking must reach."""
        outside = None
        if self.hours_begin is not None and self.hours_end is not None:
            outside = WorkingHours(
                frozenset(self.weekdays), self.hours_begin, self.hours_end, ZoneInfo(self.zone)
            )
        return Conditions(
            cost=self.min_cost,
            gpu_hours=self.min_gpu_hours,
            gpus=self.min_gpus,
            seconds=self.min_seconds,
            classes=frozenset(self.classes),
            tiers=frozenset(self.tiers),
            outside=outside,
            is_first=self.is_first,
        )

    @property
    def step_list(self) -> tuple[Step, ...]:
        """Its steps in order."""
        return tuple(Step(**each) for each in self.steps)


class Approval(models.Model):
    """A booking's request for an approval, or that of its change. `digest` names exactly what is
    approved.

    The time of a decision is inside [asked, decide_by).
    """

    class State(models.TextChoices):
        OPEN = "open", "Waiting"
        APPROVED = "approved", "Approved"
        DECLINED = "declined", "Declined"
        EXPIRED = "expired", "Expired"
        WITHDRAWN = "withdrawn", "Withdrawn"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, db_constraint=False)
    booking = models.ForeignKey(
        Booking, on_delete=models.PROTECT, related_name="approvals", db_constraint=False
    )
    series = models.ForeignKey(
        Series,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        db_constraint=False,
        help_text="All of its dates are decided together.",
    )
    change = models.ForeignKey(
        BookingChange,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        db_constraint=False,
        help_text="The change that is to be approved; null for the booking itself.",
        related_name="approvals",
    )
    asker = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    digest = models.CharField(max_length=64, help_text="SHA-256 of what is to be approved.")
    covers = models.JSONField(
        default=list,
        db_default=[],
        help_text="Digests of larger requests that it was before: approving one approves it, too.",
    )
    rules = models.JSONField(help_text="Rules that the booking meets: {id, name}.")
    asked = models.DateTimeField()

    # Steps
    steps = models.JSONField(help_text="As those of a rule.")
    step = models.PositiveSmallIntegerField(default=1)
    decide_by = models.DateTimeField(help_text="End of the present step.")
    latest = models.DateTimeField(
        null=True, blank=True, help_text="When an approval comes too late for the booking."
    )

    # Outcome
    state = models.CharField(max_length=10, choices=State.choices, default=State.OPEN)
    decided = models.DateTimeField(null=True, blank=True)
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    reason = models.CharField(max_length=200, blank=True)

    class Meta:
        ordering = ["asked", "id"]
        indexes = [
            models.Index(fields=["tenant", "asked", "id"], name="approval_inbox", condition=Q(state="open")),
            models.Index(fields=["tenant", "-decided", "id"], name="approval_decided"),
            models.Index(fields=["decide_by"], name="approval_due", condition=Q(state="open")),
        ]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "id"], name="approval_id_in_tenant"),
            models.UniqueConstraint(fields=["booking"], name="approval_one_open", condition=Q(state="open")),
            models.CheckConstraint(
                condition=Q(state="open", decided=None, decided_by=None)
                | Q(
                    state__in=["approved", "declined"],
                    decided__gte=F("asked"),
                    decided__lt=F("decide_by"),
                    decided_by__isnull=False,
                )
                | Q(state="expired", decided__gte=F("decide_by"), decided_by=None)
                | Q(state="withdrawn", decided__isnull=False, decided_by=None),
                name="approval_decided_in_time",
            ),
            models.CheckConstraint(
                condition=Q(decided_by=None) | ~Q(decided_by=F("asker")), name="approval_by_another"
            ),
        ]

    @property
    def step_list(self) -> tuple[Step, ...]:
        """Its steps in order."""
        return tuple(Step(**each) for each in self.steps)

    @property
    def present_step(self) -> Step:
        """The step that is to be decided."""
        return self.step_list[self.step - 1]


class ApprovalAct(models.Model):
    """What a person decided in one step of an approval."""

    class Verdict(models.TextChoices):
        APPROVE = "approve", "Approved"
        DECLINE = "decline", "Declined"

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    approval = models.ForeignKey(Approval, on_delete=models.PROTECT, related_name="acts", db_constraint=False)
    step = models.PositiveSmallIntegerField()
    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    principal = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="The approver that the person stood in for; null: nobody.",
    )
    verdict = models.CharField(max_length=8, choices=Verdict.choices)
    reason = models.CharField(max_length=200, blank=True)
    at = models.DateTimeField()

    class Meta:
        ordering = ["id"]
        constraints = [
            # Nobody decides two steps.
            models.UniqueConstraint(fields=["approval", "person"], name="approval_act_once"),
        ]
