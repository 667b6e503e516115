"""Announcements of operators, and who has closed their banner."""

import uuid
from datetime import datetime

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from tenants.models.people import User


class Announcement(models.Model):
    """A text of the platform's operators on every page, from a time until another."""

    class Level(models.TextChoices):
        """How urgent it is; a page shows it with a colour, a symbol and the word."""

        INFO = "info", "Note"
        MAINTENANCE = "wait", "Maintenance"
        WARNING = "risk", "Warning"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    text = models.CharField(max_length=400)
    level = models.CharField(max_length=5, choices=Level)
    starts = models.DateTimeField()
    until = models.DateTimeField()
    tenants = ArrayField(models.UUIDField(), default=list, help_text="Who sees it; empty: everybody.")
    created = models.DateTimeField()
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    withdrawn_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-starts", "id"]
        constraints = [
            models.CheckConstraint(condition=Q(until__gt=F("starts")), name="announcement_window_sane"),
            models.CheckConstraint(condition=~Q(text=""), name="announcement_has_text"),
        ]

    def is_shown(self, now: datetime) -> bool:
        """Whether pages show it now."""
        return self.withdrawn_at is None and self.starts <= now < self.until

    @property
    def heading(self) -> str:
        """The word of its level."""
        return str(self.Level(self.level).label)


class AnnouncementDismissal(models.Model):
    """A person has closed the banner of an announcement."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    announcement = models.ForeignKey(Announcement, on_delete=models.CASCADE)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "announcement"], name="announcement_dismissed_once"),
        ]
