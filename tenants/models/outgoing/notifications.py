"""People's inboxes, and how they want to be notified."""

import uuid
from datetime import time

from django.db import models
from django.db.models import F, Q

from tenants.models.organisations import Tenant
from tenants.models.people import User


class Notification(models.Model):
    """An entry of a person's inbox in a tenant, as it was written at the time.

    Written in the transaction that marks its outbox message as sent.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(
        Tenant,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        help_text="Null: about the platform, in the inbox of an operator.",
    )
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    message = models.BigIntegerField(
        help_text="The outbox message; no foreign key, as messages are deleted after a week."
    )
    kind = models.CharField(max_length=60)
    title = models.CharField(max_length=160)
    text = models.CharField(max_length=400, blank=True)
    path = models.CharField(
        max_length=200, blank=True, help_text="The page that it is about, below the tenant's."
    )
    at = models.DateTimeField()
    until = models.DateTimeField(
        null=True, blank=True, help_text="The deadline or start in it, for the reader's zone."
    )
    read = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "message"], name="notification_once"),
            models.CheckConstraint(
                condition=Q(tenant__isnull=False) | Q(path__startswith="/ops/"),
                name="notification_has_a_place",
            ),
        ]
        indexes = [
            models.Index(fields=["tenant", "user", "-at", "-id"], name="notification_of_user"),
            models.Index(fields=["tenant", "user"], name="notification_unread", condition=Q(read=None)),
        ]

    def __str__(self) -> str:
        return self.title


class NotificationSettings(models.Model):
    """What a person chose in a tenant. Without a row, the defaults of the catalogue apply."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    choices = models.JSONField(
        default=dict, help_text="{type: {in_app, mail}} where a type differs from the default."
    )
    quiet_from = models.TimeField(null=True, blank=True, help_text="In the person's time zone.")
    quiet_until = models.TimeField(null=True, blank=True)
    daily_at = models.TimeField(default=time(8), help_text="When the mail of a day is sent.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "user"], name="notification_settings_once"),
            models.CheckConstraint(
                condition=Q(quiet_from=None, quiet_until=None)
                | (Q(quiet_from__isnull=False, quiet_until__isnull=False) & ~Q(quiet_from=F("quiet_until"))),
                name="notification_quiet_hours_sane",
            ),
        ]
