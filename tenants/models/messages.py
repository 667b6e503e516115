"""Outgoing messages and mails."""

from django.db import models
from django.db.models import Q

from tenants.models.organisations import Tenant, User


class OutboxMessage(models.Model):
    """A notification to people or other systems, committed with the change that it reports."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    kind = models.CharField(max_length=60)
    payload = models.JSONField()
    created = models.DateTimeField()
    sent = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["id"], name="outbox_waiting", condition=Q(sent=None)),
        ]


class Mail(models.Model):
    """A mail to a person, written in the transaction that marks its outbox message as sent."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    user = models.ForeignKey(User, on_delete=models.PROTECT)
    message = models.BigIntegerField(
        help_text="The outbox message; no foreign key, as messages are deleted after a week."
    )
    kind = models.CharField(max_length=60)

    # Subject: a booking or an invitation
    booking = models.UUIDField(null=True, blank=True)
    invitation = models.UUIDField(null=True, blank=True)
    at = models.DateTimeField()

    # Delivery
    due = models.DateTimeField(help_text="Time of the next try.")
    tries = models.PositiveSmallIntegerField(default=0)
    sent = models.DateTimeField(null=True, blank=True)
    dropped = models.CharField(max_length=120, blank=True, help_text="Why it is not sent.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "message"], name="mail_once"),
            models.CheckConstraint(condition=Q(sent=None) | Q(dropped=""), name="mail_one_end"),
            models.CheckConstraint(
                condition=Q(booking__isnull=False, invitation=None)
                | Q(booking=None, invitation__isnull=False),
                name="mail_about_one",
            ),
        ]
        indexes = [
            models.Index(
                fields=["due", "id"], name="mail_waiting", condition=Q(sent=None, dropped="")
            ),
        ]
