"""Statements that are mailed to people regularly."""

import uuid
from datetime import time

from django.conf import settings
from django.db import models
from django.db.models import Q

from allocation.models import FileFormat
from tenants.models import ApiToken, Lab, Project, Tenant


class ReportSubscription(models.Model):
    """A person's request to get the statement of a project or organisation by mail.

    `due` and the days of the next report advance in the transaction that requests its mail, so each
    report is sent once.
    """

    class Cadence(models.TextChoices):
        """How often."""

        WEEKLY = "weekly", "Every week"
        MONTHLY = "monthly", "Every month"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    project = models.ForeignKey(
        Project,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        db_constraint=False,
        related_name="+",
        help_text="Null: the statement of the whole organisation.",
    )
    lab = models.ForeignKey(
        Lab,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        db_constraint=False,
        related_name="+",
        help_text="The statement of the projects of a lab.",
    )
    cadence = models.CharField(max_length=7, choices=Cadence.choices)
    format = models.CharField(max_length=13, choices=FileFormat.choices)
    at = models.TimeField(default=time(8), help_text="By the clocks of `zone`.")
    zone = models.CharField(max_length=64, help_text="The person's time zone when it was made.")
    due = models.DateTimeField(help_text="When the next report is sent.")
    made_with = models.ForeignKey(
        ApiToken,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        db_constraint=False,
        related_name="+",
        help_text="The token that made it, with which it ends; null: a browser.",
    )
    created = models.DateTimeField()

    class Meta:
        ordering = ["created", "id"]
        indexes = [models.Index(fields=["due"], name="report_due")]
        constraints = [
            models.UniqueConstraint(
                fields=["user", "tenant", "project", "lab", "cadence", "format"],
                name="report_once",
                nulls_distinct=False,
            ),
            models.CheckConstraint(condition=Q(lab=None) | Q(project=None), name="report_of_one_owner"),
            models.CheckConstraint(
                condition=Q(cadence__in=["weekly", "monthly"])
                & Q(format__in=["pdf", "csv", "focus.csv", "focus.parquet"]),
                name="report_choices",
            ),
        ]
