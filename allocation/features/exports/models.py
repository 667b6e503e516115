"""Files of statements that a worker makes."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q

from allocation.models import FileFormat
from tenants.models import Project, Tenant


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
    kind = models.CharField(max_length=13, choices=FileFormat.choices)
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
