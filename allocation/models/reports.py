"""Statements that are mailed to people regularly."""

import uuid
from datetime import time

from django.conf import settings
from django.db import models
from django.db.models import Q

from tenants.models import Project, Tenant


class ReportSubscription(models.Model):
    """A person's request to get the statement of a project or organisation by mail.

    `due` and the days of the next report advance in the transaction that requests its mail, so each
    report is sent once.
    """

    class Cadence(models.TextChoices):
        """How often."""

        WEEKLY = "weekly", "Every week"
        MONTHLY = "monthly", "Every month"

    class Format(models.TextChoices):
        """The attached file."""

        PDF = "pdf", "PDF"
        CSV = "csv", "CSV"
        FOCUS = "focus.csv", "FOCUS 1.2, CSV"
        PARQUET = "focus.parquet", "FOCUS 1.2, Parquet"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, null=True, blank=True, db_constraint=False,
        related_name="+", help_text="Null: the statement of the whole organisation.",
    )  # fmt: skip
    cadence = models.CharField(max_length=7, choices=Cadence.choices)
    format = models.CharField(max_length=13, choices=Format.choices)
    at = models.TimeField(default=time(8), help_text="By the clocks of `zone`.")
    zone = models.CharField(max_length=64, help_text="The person's time zone when it was made.")
    due = models.DateTimeField(help_text="When the next report is sent.")
    created = models.DateTimeField()

    class Meta:
        ordering = ["created", "id"]
        indexes = [models.Index(fields=["due"], name="report_due")]
        constraints = [
            models.UniqueConstraint(
                fields=["user", "tenant", "project", "cadence", "format"],
                name="report_once",
                nulls_distinct=False,
            ),
            models.CheckConstraint(
                condition=Q(cadence__in=["weekly", "monthly"])
                & Q(format__in=["pdf", "csv", "focus.csv", "focus.parquet"]),
                name="report_choices",
            ),
        ]
