"""A tenant's limits of a tier, by version."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from tenants.models import Tenant, Tier


class TierVersion(models.Model):
    """What a tenant's admins demand of bookings in a tier, from a date on until the next version.

    A version is never changed. Null or empty: only the operator's bounds count.
    """

    class Audience(models.TextChoices):
        EVERYBODY = "everybody", "Everybody who may book"
        LEADS = "leads", "Leads and admins"
        ADMINS = "admins", "Admins"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    tier = models.ForeignKey(Tier, on_delete=models.PROTECT)
    starts = models.DateTimeField(help_text="In force from then on.")

    # Who may use the tier, and for what
    audience = models.CharField(max_length=10, choices=Audience.choices, default=Audience.EVERYBODY)
    projects = models.JSONField(default=list, help_text="Short names; empty for all projects.")
    classes = models.JSONField(default=list, help_text="GPU classes; empty for all.")

    # Limits
    min_seconds = models.PositiveIntegerField(null=True, blank=True)
    max_seconds = models.PositiveIntegerField(null=True, blank=True)
    min_lead_seconds = models.PositiveIntegerField(
        null=True, blank=True, help_text="Between the request and the start at least."
    )
    max_lead_seconds = models.PositiveIntegerField(null=True, blank=True)
    max_open = models.PositiveIntegerField(
        null=True, blank=True, help_text="Bookings of a person that are not over."
    )
    max_open_gpus = models.PositiveIntegerField(null=True, blank=True, help_text="GPUs of these bookings.")
    start_hours = models.JSONField(
        default=list, help_text="[[weekday, first hour, hour of the end]]; empty: at any time."
    )
    zone = models.CharField(max_length=64, default="UTC", help_text="Time zone of the hours.")

    created = models.DateTimeField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    withdrawn = models.DateTimeField(
        null=True, blank=True, help_text="Before it was in force; null: it was not."
    )

    class Meta:
        ordering = ["tier", "starts", "created", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "tier", "starts"],
                name="tier_version_once",
                condition=Q(withdrawn=None),
            ),
            models.CheckConstraint(condition=Q(starts__gte=F("created")), name="tier_version_not_backdated"),
            models.CheckConstraint(
                condition=Q(withdrawn=None) | Q(withdrawn__lt=F("starts")),
                name="tier_version_withdrawn_before",
            ),
            models.CheckConstraint(
                condition=Q(withdrawn=None) | Q(withdrawn__gte=F("created")),
                name="tier_version_withdrawn_after",
            ),
            models.CheckConstraint(
                condition=(Q(max_open=None) | Q(max_open__gte=1))
                & (Q(max_open_gpus=None) | Q(max_open_gpus__gte=1))
                & (Q(max_seconds=None) | Q(max_seconds__gte=60))
                & (Q(min_seconds=None) | Q(max_seconds=None) | Q(min_seconds__lte=F("max_seconds")))
                & (
                    Q(min_lead_seconds=None)
                    | Q(max_lead_seconds=None)
                    | Q(min_lead_seconds__lte=F("max_lead_seconds"))
                ),
                name="tier_version_limits_sane",
            ),
        ]
