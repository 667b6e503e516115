"""Trials of candidates on the site's past, and shadows of its present."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import PROTECT, Q

from allocation.models import Booking, PolicyVersion
from tenants.models import Tenant

PERSON = settings.AUTH_USER_MODEL


class PolicyTrial(models.Model):
    """The past of the site, played under the version in force and under a candidate."""

    class State(models.TextChoices):
        WAITING = "waiting", "Waiting"
        RUNNING = "running", "Running"
        DONE = "done", "Done"
        CANCELLED = "cancelled", "Cancelled"
        FAILED = "failed", "Failed"

    OPEN = (State.WAITING, State.RUNNING)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    candidate = models.ForeignKey(PolicyVersion, PROTECT, related_name="+")
    against = models.ForeignKey(
        PolicyVersion, PROTECT, related_name="+", help_text="The version that was in force."
    )
    days = models.PositiveSmallIntegerField()
    seeds = models.PositiveSmallIntegerField()
    demand = models.JSONField(
        default=dict,
        db_default={},
        blank=True,
        help_text="`load`, `sizes` and `bursts` in percent; empty: the demand of the past.",
    )
    fleet = models.JSONField(
        default=dict,
        db_default={},
        blank=True,
        help_text="`gpu_class`, `gpus`, `from_hour` and `to_hour` that the site has more; empty: none.",
    )
    until = models.DateTimeField(help_text="The end of the past that is played.")
    asked_at = models.DateTimeField()
    asked_by = models.ForeignKey(PERSON, PROTECT, null=True, blank=True, related_name="+")
    state = models.CharField(max_length=10, choices=State.choices, default=State.WAITING)
    attempts = models.PositiveSmallIntegerField(default=0, help_text="Processes that have begun it.")
    alive_at = models.DateTimeField(null=True, blank=True, help_text="When its process wrote last.")
    permille = models.PositiveSmallIntegerField(default=0, help_text="How far it is.")
    finished_at = models.DateTimeField(null=True, blank=True)
    took_ms = models.PositiveIntegerField(default=0, help_text="Time of the processor.")
    note = models.CharField(max_length=300, blank=True, help_text="Why it failed.")
    report = models.JSONField(null=True, blank=True)

    class Meta:
        ordering = ["-asked_at", "id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=("waiting", "running"), finished_at=None)
                | (~Q(state__in=("waiting", "running")) & Q(finished_at__isnull=False)),
                name="policy_trial_ends_once",
            ),
            models.CheckConstraint(
                condition=Q(report=None) | Q(state="done"), name="policy_trial_done_with_report"
            ),
        ]
        indexes = [
            models.Index(fields=["asked_at"], name="policy_trial_open", condition=Q(finished_at=None)),
        ]


class PolicyTrialPart(models.Model):
    """One play of a trial, kept so that a process that takes over does not play it again."""

    id = models.BigAutoField(primary_key=True)
    trial = models.ForeignKey(PolicyTrial, PROTECT, related_name="parts")
    is_candidate = models.BooleanField()
    seed = models.PositiveSmallIntegerField()
    outcome = models.JSONField()
    made_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["trial", "is_candidate", "seed"], name="policy_trial_part_once"),
        ]


class PolicyTrialTenant(models.Model):
    """What more GPUs would have changed for an organisation, by a trial that is done."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, PROTECT, db_index=False)
    trial = models.UUIDField(help_text="The trial.")
    fleet = models.JSONField(help_text="As in the trial.")
    days = models.PositiveSmallIntegerField()
    until = models.DateTimeField(help_text="The end of the past that was played.")
    rows = models.JSONField(help_text="Waits of the organisation and of its projects, in seconds.")

    class Meta:
        ordering = ["-until", "-id"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "trial"], name="policy_trial_tenant_once"),
        ]


class PolicyShadow(models.Model):
    """A candidate that decides each n-th snapshot again which the live version has decided. It acts on
    nothing."""

    id = models.BigAutoField(primary_key=True)
    version = models.ForeignKey(PolicyVersion, PROTECT, related_name="shadows")
    every = models.PositiveSmallIntegerField(help_text="Of so many decisions, one is decided again.")
    started_at = models.DateTimeField()
    started_by = models.ForeignKey(PERSON, PROTECT, null=True, blank=True, related_name="+")
    ended_at = models.DateTimeField(null=True, blank=True)
    last_decision = models.BigIntegerField(help_text="The newest decision that was looked at.")
    next_at = models.DateTimeField(help_text="Not before then, so that it takes a fifth of a core at most.")
    decided = models.PositiveIntegerField(default=0, help_text="Decisions that were decided again.")
    differing = models.PositiveIntegerField(default=0, help_text="Those in which something differs.")
    failed = models.PositiveIntegerField(default=0, help_text="Those that could not be decided again.")
    took_ms = models.PositiveBigIntegerField(default=0, help_text="Time of the processor.")
    note = models.CharField(max_length=200, blank=True, help_text="Why the last one failed.")

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["version"], condition=Q(ended_at=None), name="policy_shadow_one_open"
            ),
            models.CheckConstraint(condition=Q(every__gte=1), name="policy_shadow_every"),
        ]


class PolicyShadowDifference(models.Model):
    """How a candidate in shadow treats a booking otherwise, as of the last decision in which it did."""

    class Kind(models.TextChoices):
        EARLIER = "earlier", "Starts earlier"
        LATER = "later", "Starts later"
        PAUSED = "paused", "Is paused"
        SPARED = "spared", "Is not paused"
        REFUSED = "refused", "Is refused"
        TAKEN = "taken", "Is not refused"

    id = models.BigAutoField(primary_key=True)
    shadow = models.ForeignKey(PolicyShadow, PROTECT, related_name="differences")
    booking = models.ForeignKey(Booking, PROTECT, related_name="+", db_constraint=False)
    kind = models.CharField(max_length=8, choices=Kind.choices)
    times = models.PositiveIntegerField(help_text="Decisions in which it did.")
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()
    decision = models.BigIntegerField(help_text="The last of these decisions.")
    active_starts = models.DateTimeField(null=True, blank=True, help_text="Planned by the live version.")
    starts = models.DateTimeField(null=True, blank=True, help_text="Planned by the candidate.")
    rule = models.CharField(max_length=40, blank=True, help_text="The code of the candidate's reason.")

    class Meta:
        ordering = ["-last_at", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["shadow", "booking", "kind"], name="policy_shadow_difference_once"
            ),
        ]
