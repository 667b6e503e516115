"""Versions of the policy that go into force, and their approvals."""

from django.conf import settings
from django.db import models
from django.db.models import PROTECT, F, Q

from allocation.models.decisions import PolicyVersion

PERSON = settings.AUTH_USER_MODEL


class PolicyApproval(models.Model):
    """A version that another operator than its author has approved. Its document never changes, so
    the approval lasts."""

    version = models.OneToOneField(PolicyVersion, PROTECT, primary_key=True, related_name="approval")
    at = models.DateTimeField()
    by = models.ForeignKey(PERSON, PROTECT, related_name="+")


class PolicyActivation(models.Model):
    """A version that went into force, or is to from a time on."""

    class Kind(models.TextChoices):
        PUBLISHED = "published", "Published"
        ACTIVATION = "activation", "Activation"
        ROLLBACK = "rollback", "Rollback"
        RETURN = "return", "Return by the guard"

    class State(models.TextChoices):
        WAITING = "waiting", "Waiting"
        DONE = "done", "In force since"
        WITHDRAWN = "withdrawn", "Withdrawn"
        FAILED = "failed", "Failed"

    id = models.BigAutoField(primary_key=True)
    version = models.ForeignKey(PolicyVersion, PROTECT, related_name="activations")
    kind = models.CharField(max_length=12, choices=Kind.choices)
    state = models.CharField(max_length=10, choices=State.choices, default=State.WAITING)
    asked_at = models.DateTimeField()
    asked_by = models.ForeignKey(PERSON, PROTECT, null=True, blank=True, related_name="+")
    starts = models.DateTimeField(help_text="From when on it is to be in force.")
    due_at = models.DateTimeField(
        null=True, blank=True, help_text="When it is carried out; null: a second operator approves first."
    )
    reason = models.CharField(max_length=300, blank=True)
    waiver = models.CharField(
        max_length=300, blank=True, help_text="Why a site's only operator did not wait for a day."
    )
    guard = models.JSONField(
        default=dict,
        db_default={},
        blank=True,
        help_text="`hours`, and `figures` with bands; empty: nothing is guarded.",
    )
    classes = models.JSONField(
        default=list, db_default=[], blank=True, help_text="Slugs of GPU classes; empty: for all."
    )
    tenants = models.JSONField(
        default=list, db_default=[], blank=True, help_text="Ids of organisations; empty: for all."
    )
    applied = models.JSONField(
        default=list,
        db_default=[],
        blank=True,
        help_text="What it changed of tiers, quotas and prices: [kind, whose, field, before, after].",
    )
    ended_at = models.DateTimeField(null=True, blank=True, help_text="When it was carried out or given up.")
    in_force = models.ForeignKey(
        PolicyVersion,
        PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="The version that it put into force: another one than `version` for a part of the site.",
    )
    former = models.ForeignKey(
        PolicyVersion,
        PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="The version that was in force before.",
    )
    note = models.CharField(max_length=300, blank=True, help_text="Why it failed.")

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["version"], condition=Q(state="waiting"), name="policy_activation_one_waiting"
            ),
            models.CheckConstraint(
                condition=Q(state="waiting", ended_at=None)
                | (~Q(state="waiting") & Q(ended_at__isnull=False)),
                name="policy_activation_ends_once",
            ),
            models.CheckConstraint(
                condition=Q(due_at=None) | Q(due_at__gte=F("starts")), name="policy_activation_not_early"
            ),
            models.CheckConstraint(
                condition=Q(state="done", in_force__isnull=False) | (~Q(state="done") & Q(in_force=None)),
                name="policy_activation_in_force",
            ),
            models.CheckConstraint(
                condition=~Q(kind="rollback") | ~Q(reason=""), name="policy_rollback_has_a_reason"
            ),
        ]
        indexes = [models.Index(fields=["due_at"], name="policy_due", condition=Q(state="waiting"))]
