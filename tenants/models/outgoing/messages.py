"""Outgoing messages and mails."""

import uuid

from django.db import models
from django.db.models import Q

from tenants.models.organisations import Invitation, Tenant
from tenants.models.people import User


class OutboxMessage(models.Model):
    """A notification to people or other systems, committed with the change that it reports."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(
        Tenant,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        help_text="Null: about the platform, for operators only.",
    )
    kind = models.CharField(max_length=60)
    payload = models.JSONField()
    created = models.DateTimeField()
    sent = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["id"], name="outbox_waiting", condition=Q(sent=None)),
        ]

    @property
    def owner(self) -> uuid.UUID:
        """The tenant that it belongs to.

        Raises:
            ValueError: it is about the platform.
        """
        if self.tenant_id is None:
            raise ValueError(f"message {self.id} belongs to no tenant")
        return self.tenant_id


class Mail(models.Model):
    """A mail to a person, or to the address of an invitation without an account.

    Written in the transaction that marks its outbox message as sent. Reset links of passwords
    belong to no tenant and to no message.
    """

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, null=True, blank=True)
    user = models.ForeignKey(User, on_delete=models.PROTECT, null=True, blank=True)
    address = models.CharField(max_length=254, blank=True, db_default="", default="")
    message = models.BigIntegerField(
        null=True,
        blank=True,
        help_text="The outbox message; no foreign key, as messages are deleted after a week.",
    )
    kind = models.CharField(max_length=60)

    # Subject: a booking, an invitation, or the person's password
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
            models.UniqueConstraint(
                fields=["address", "message"], name="mail_address_once", condition=Q(user=None)
            ),
            models.CheckConstraint(condition=Q(sent=None) | Q(dropped=""), name="mail_one_end"),
            models.CheckConstraint(
                condition=Q(booking__isnull=False, invitation=None)
                | Q(booking=None, invitation__isnull=False)
                | (Q(booking=None, invitation=None) & ~Q(kind__startswith="booking.")),
                name="mail_about_one",
            ),
            models.CheckConstraint(
                condition=Q(user__isnull=False, address="")
                | (Q(user=None, invitation__isnull=False) & ~Q(address="")),
                name="mail_to_one",
            ),
        ]
        indexes = [
            models.Index(fields=["due", "id"], name="mail_waiting", condition=Q(sent=None, dropped="")),
        ]


class MailLink(models.Model):
    """A link with a secret that was mailed: to answer an invitation, or to set a password.

    Only the SHA-256 of the secret is stored. The program that sends mail creates the secret, so a
    web process never knows one that was not sent to it.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    digest = models.BinaryField(max_length=32, unique=True)
    invitation = models.ForeignKey(
        Invitation, on_delete=models.CASCADE, null=True, blank=True, related_name="+"
    )
    user = models.ForeignKey(
        User, on_delete=models.CASCADE, null=True, blank=True, help_text="Whose password it sets."
    )
    expires = models.DateTimeField()
    used = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(invitation=None, user__isnull=False) | Q(invitation__isnull=False, user=None),
                name="mail_link_for_one",
            ),
        ]


class PasswordReset(models.Model):
    """A request for a reset link. The program that sends mail finds the account, if there is one,
    so that the web process does the same work for every name."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    wanted = models.CharField(max_length=254, help_text="A sign-in name or address, as typed.")
    at = models.DateTimeField()
