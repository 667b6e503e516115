"""What is still to be told to people and other systems."""

from django.db import models
from django.db.models import Q

from tenants.models.organisations import Tenant, User


class OutboxMessage(models.Model):
    """Something to tell people or other systems, committed with the work that caused it."""

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
    """A mail that a person is owed, written together with the mark on its outbox message.

    Tried for the next time at `due`, `tries` times so far. In the end it is `sent`, or `dropped`,
    which says why.
    """

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    user = models.ForeignKey(User, on_delete=models.PROTECT)
    # No key of the database: messages are swept after a week.
    message = models.BigIntegerField()
    kind = models.CharField(max_length=60)
    # What it is about: a booking or an invitation.
    booking = models.UUIDField(null=True, blank=True)
    invitation = models.UUIDField(null=True, blank=True)
    at = models.DateTimeField()
    due = models.DateTimeField()
    tries = models.PositiveSmallIntegerField(default=0)
    sent = models.DateTimeField(null=True, blank=True)
    dropped = models.CharField(max_length=120, blank=True)

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
