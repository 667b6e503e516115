"""People, their passwords, second factors and signed-in browsers."""

import uuid
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import AbstractUser
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q


@dataclass(frozen=True, slots=True)
class PasswordProof:
    """Proof that somebody knows a password: the user name and the hash made from the password."""

    username: str
    presented: str = field(repr=False)


class User(AbstractUser):
    """A person who signs in. Platform operators have `is_staff`; other rights are memberships.

    The password is stored in a table that web processes can't read; they check and change it with
    `tenants.services.sign_in.passwords`. `set_password`, `check_password` and `save` work for the
    roles portal_owner, portal_system and portal_ops.
    """

    class Mails(models.TextChoices):
        """The mails that a person receives."""

        ALL = "all", "Everything about my bookings"
        URGENT = "urgent", "Only what can't wait: a pause that counts down"
        NONE = "none", "Nothing"

    time_zone = models.CharField(max_length=64, default="Europe/Berlin")
    mails = models.CharField(max_length=8, choices=Mails.choices, default=Mails.ALL, db_default=Mails.ALL)

    class Meta(AbstractUser.Meta):
        constraints = [
            models.CheckConstraint(condition=Q(mails__in=["all", "urgent", "none"]), name="user_mails"),
        ]

    # Sign-ins are in the audit log.
    last_login = None

    proof: PasswordProof | None = None
    """How the person has just signed in; None if a session was found."""

    credential: bytes = b""
    """The hash of the session key or token of this request. The database answers only to it what
    belongs to no tenant (`tenants.access.account_of`)."""

    _encoded: str | None = None

    @property
    def display_name(self) -> str:
        """The full name, or the user name of a person without one."""
        return self.get_full_name() or self.username

    @property
    def password(self) -> str:
        """The hash that was set on this object or is stored; "!" if there is none."""
        if self._encoded is not None:
            return self._encoded
        stored = Password.objects.filter(user_id=self.pk).first()
        return stored.encoded if stored else "!"

    @password.setter
    def password(self, encoded: str) -> None:
        self._encoded = encoded

    def save(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 (Django's signature)
        """Saves the person, and the password if one was set on this object."""
        super().save(*args, **kwargs)
        if self._encoded is not None:
            Password.objects.update_or_create(user=self, defaults={"encoded": self._encoded})
            self._encoded = None

    def get_session_auth_hash(self) -> str:
        """A constant: the database ends all sessions of a person whose password changes."""
        return "ends with the password"


class Password(models.Model):
    """A person's password as Argon2 hash. No web process reads or writes it."""

    user = models.OneToOneField(User, on_delete=models.CASCADE, primary_key=True, related_name="+")
    encoded = models.CharField(max_length=128)


class SecondFactor(models.Model):
    """A person's authenticator app and recovery codes. No web process reads or writes it.

    The secret is derived from `salt` and a key that web processes don't have; it is not stored.
    """

    user = models.OneToOneField(User, on_delete=models.CASCADE, primary_key=True, related_name="+")
    salt = models.BinaryField(max_length=32)
    created = models.DateTimeField()
    confirmed = models.DateTimeField(null=True, blank=True, help_text="Since when sign-in asks for it.")
    last_step = models.BigIntegerField(
        default=0, help_text="The 30 seconds of the last accepted code, which works once."
    )
    recovery = ArrayField(
        models.BinaryField(max_length=32), default=list, help_text="SHA-256 of unused codes."
    )


class Session(models.Model):
    """A signed-in browser.

    Only the SHA-256 of the key in its cookie is stored, so that a reader of this table or of a
    backup can't take over a session.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    digest = models.BinaryField(max_length=32, unique=True)
    user = models.ForeignKey(User, on_delete=models.CASCADE, null=True, blank=True)
    pending = models.ForeignKey(
        User,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="+",
        help_text="Who gave the password, and has to give the second factor.",
    )
    verified = models.DateTimeField(null=True, blank=True, help_text="When the second factor was last given.")
    only_tenant = models.ForeignKey(
        "Tenant",
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="+",
        help_text="The tenant whose provider signed the person in; no other one is open to it.",
    )
    data = models.TextField(help_text="Signed JSON, as Django's sessions encode it.")
    created = models.DateTimeField()
    expires = models.DateTimeField(db_index=True)
    last_seen = models.DateTimeField(help_text="Written at most once a minute.")
    device = models.CharField(max_length=80, blank=True, help_text="As in Firefox on Linux.")
    address = models.GenericIPAddressField(null=True, blank=True)
