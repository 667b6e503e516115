"""Passkeys (WebAuthn credentials) of people, and the challenges that their browsers sign."""

import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models

from tenants.models.people import User


class Passkey(models.Model):
    """A passkey of a person, with the key that verifies it. No web process reads it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    credential = models.BinaryField(
        max_length=1023, unique=True, help_text="The id that the authenticator gave it."
    )
    public_key = models.BinaryField(max_length=2000)
    sign_count = models.BigIntegerField(
        help_text="Signatures that the authenticator counted; 0 if it doesn't count."
    )
    transports = ArrayField(models.CharField(max_length=20), default=list)
    name = models.CharField(max_length=60)
    created = models.DateTimeField()
    last_used = models.DateTimeField(null=True, blank=True)


class PasskeyChallenge(models.Model):
    """A challenge for one signature, in one browser, within minutes."""

    class Use(models.TextChoices):
        """What the signature is for."""

        ADD = "add", "Add a passkey"
        CHECK = "check", "Sign in, or confirm a dangerous act"

    digest = models.BinaryField(max_length=32, primary_key=True, help_text="SHA-256 of the challenge.")
    session = models.BinaryField(max_length=32, help_text="The digest of the browser's session.")
    use = models.CharField(max_length=8, choices=Use.choices)
    user = models.ForeignKey(
        User,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="+",
        help_text="Whose passkey is asked for; empty if the passkey says who signs in.",
    )
    expires = models.DateTimeField(db_index=True)
