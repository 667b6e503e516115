"""Texts that people accept, and training that they must have, before they use a class or a tier."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import F, Q, Value

from tenants.models import GpuClass, Tenant, Tier


class Requirement(models.Model):
    """One version of a text or training that a GPU class, or a tenant's tier, demands.

    A row never changes but for its end. A new version ends the one before, and asks anew.
    """

    class Kind(models.TextChoices):
        TERMS = "terms", "Text to accept"
        TRAINING = "training", "Training with a date"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, null=True, blank=True, help_text="Empty: of all tenants."
    )
    gpu_class = models.ForeignKey(GpuClass, on_delete=models.PROTECT, null=True, blank=True)
    tier = models.ForeignKey(Tier, on_delete=models.PROTECT, null=True, blank=True)
    kind = models.CharField(max_length=8, choices=Kind.choices)
    name = models.CharField(max_length=80)
    version = models.PositiveIntegerField()
    text = models.TextField(max_length=20_000, help_text="What is accepted, or how people get the training.")
    valid_days = models.PositiveIntegerField(
        null=True, blank=True, help_text="How long it holds for a person; null: without an end."
    )
    projects = models.JSONField(
        default=list,
        db_default=Value([], models.JSONField()),
        help_text="Slugs of the projects in which a tier demands it; empty: in all.",
    )
    created = models.DateTimeField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    ended = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["name", "-version", "id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(tenant=None, gpu_class__isnull=False, tier=None)
                | Q(tenant__isnull=False, gpu_class=None, tier__isnull=False),
                name="requirement_of_class_or_tier",
            ),
            models.CheckConstraint(condition=Q(kind__in=["terms", "training"]), name="requirement_kind"),
            models.CheckConstraint(
                condition=Q(valid_days=None) | Q(valid_days__gte=1, valid_days__lte=3650),
                name="requirement_valid_days",
            ),
            models.CheckConstraint(
                condition=Q(ended=None) | Q(ended__gte=F("created")), name="requirement_ends_after"
            ),
            models.CheckConstraint(
                condition=Q(projects=[]) | Q(tier__isnull=False),
                name="requirement_projects_of_tier",
            ),
            models.UniqueConstraint(
                fields=["tenant", "gpu_class", "tier", "name"],
                condition=Q(ended=None),
                name="requirement_open_once",
                nulls_distinct=False,
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name}, version {self.version}"

    @property
    def target(self) -> str:
        """What demands it: `class H100 80 GB` or `tier Spot`."""
        if self.gpu_class is not None:
            return f"class {self.gpu_class.label}"
        return f"tier {self.tier.name}" if self.tier is not None else ""


class Acceptance(models.Model):
    """A person accepted a text, or has had a training, until a date.

    Rows never change but for the notice before they run out.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    requirement = models.ForeignKey(
        Requirement, on_delete=models.PROTECT, related_name="acceptances", db_constraint=False
    )
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    at = models.DateTimeField(help_text="When it was accepted, or the day of the training.")
    until = models.DateTimeField(null=True, blank=True, help_text="Null: without an end.")
    warned_days = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="So many days before its end was the last notice."
    )
    address = models.GenericIPAddressField(null=True, blank=True)
    recorded = models.DateTimeField()
    recorded_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")

    class Meta:
        ordering = ["-recorded", "id"]
        indexes = [
            models.Index(fields=["tenant", "user", "requirement"], name="acceptance_of_user"),
            models.Index(fields=["until"], name="acceptance_running_out", condition=Q(until__isnull=False)),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(warned_days=None) | Q(until__isnull=False), name="acceptance_warned"
            ),
            models.CheckConstraint(
                condition=Q(until=None) | Q(until__gt=F("at")), name="acceptance_ends_after"
            ),
        ]
