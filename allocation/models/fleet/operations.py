"""Planned outages, frozen decisions, and backups."""

import uuid
from datetime import datetime

from django.conf import settings
from django.db import models
from django.db.models import F, Q


class PortalMode(models.Model):
    """A planned outage of the portal, or a freeze of its decisions."""

    class Kind(models.TextChoices):
        OUTAGE = "outage", "Planned outage"
        FREEZE = "freeze", "Decisions frozen"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=6, choices=Kind.choices)
    since = models.DateTimeField()
    until = models.DateTimeField(
        null=True, blank=True, help_text="Planned end; null: until an operator ends it."
    )
    closed_at = models.DateTimeField(
        null=True, blank=True, help_text="From when an outage refuses changes by members."
    )
    reason = models.CharField(max_length=120)
    begun_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    ended_at = models.DateTimeField(null=True, blank=True, help_text="When an operator ended it.")

    class Meta:
        ordering = ["-since"]
        constraints = [
            models.UniqueConstraint(
                fields=["kind"], condition=Q(ended_at=None), name="portal_mode_open_once"
            ),
            models.CheckConstraint(
                condition=Q(until=None) | Q(until__gt=F("since")), name="portal_mode_window_sane"
            ),
            models.CheckConstraint(
                condition=Q(kind="freeze", closed_at=None) | Q(kind="outage", until__isnull=False),
                name="portal_mode_outage_ends",
            ),
            models.CheckConstraint(condition=~Q(reason=""), name="portal_mode_has_reason"),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()}: {self.reason}"

    def is_in_force(self, now: datetime) -> bool:
        """Whether it has neither ended nor reached its planned end."""
        return self.ended_at is None and (self.until is None or now < self.until)


class Backup(models.Model):
    """A finished backup by `manage.py backup`. A restored database lists only older ones."""

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField()
    lsn = models.CharField(max_length=24, help_text="Position in the write-ahead log.")
    size = models.BigIntegerField(help_text="Bytes.")
    sha256 = models.CharField(max_length=64)
    checked_at = models.DateTimeField(
        null=True, blank=True, help_text="When it was last restored for a check."
    )

    class Meta:
        ordering = ["-at"]
