"""Statements that are mailed to people regularly."""

import uuid
from datetime import time

from django.conf import settings
from django.db import models
from django.db.models import Q

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
    format = models.CharField(max_length=13, choices=Format.choices)
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


class StatementExport(models.Model):
    """A file of a large statement, which a worker makes for a person.

    A worker claims it until `claimed_until` and extends that with each progress. If it is killed,
    another worker begins anew when the claim is over.
    """

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
    month = models.DateField(help_text="Its first day.")
    kind = models.CharField(max_length=13, choices=ReportSubscription.Format.choices)
    created = models.DateTimeField()
    lines = models.PositiveIntegerField(help_text="Lines of the statement when it was asked for.")
    lines_done = models.PositiveIntegerField(default=0)
    attempts = models.PositiveSmallIntegerField(default=0)
    claimed_until = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True, help_text="When it was ready, or given up.")
    name = models.CharField(max_length=120, blank=True, help_text="The file's name, once ready.")
    size = models.PositiveBigIntegerField(default=0, help_text="Bytes of the file.")
    content = models.BinaryField(null=True, help_text="The file, compressed by zlib.")

    class Meta:
        ordering = ["created", "id"]
        indexes = [
            models.Index(fields=["created"], name="export_open", condition=Q(finished_at__isnull=True))
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["user", "tenant", "project", "month", "kind"],
                name="export_once",
                nulls_distinct=False,
            ),
            models.CheckConstraint(
                condition=Q(kind__in=["pdf", "csv", "focus.csv", "focus.parquet"]),
                name="export_kind",
            ),
            models.CheckConstraint(
                condition=Q(content__isnull=True) | Q(finished_at__isnull=False),
                name="export_ready_is_finished",
            ),
        ]

    @property
    def state(self) -> str:
        """`waiting`, `making`, `ready` or `failed`."""
        if self.finished_at is not None:
            return "ready" if self.name else "failed"
        return "making" if self.attempts else "waiting"

    @property
    def percent(self) -> int:
        """How much of it is written, at most 100."""
        if self.state == "ready":
            return 100
        return min(99, 100 * self.lines_done // max(1, self.lines))
