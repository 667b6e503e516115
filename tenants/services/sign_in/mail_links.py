"""Links with a secret that are mailed: they answer an invitation, or set a forgotten password.

The program that sends mail creates a link, just before it sends it. A web process only passes on
the hash of the secret that a request carried.
"""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib.auth.hashers import make_password
from django.db import connection

from tenants.models import MailLink, PasswordReset, User
from tenants.outbox import task_request
from tenants.platform.errors import Refused, invalid, missing
from tenants.queries import ReceivedInvitation
from tenants.services.input_values import name_read, username_read
from tenants.services.sign_in.account import password_check
from tenants.words import refusal_text

RESET_LIFETIME = timedelta(hours=1)
# 192 random bits.
SECRET_BYTES = 24
LONGEST_WANTED = 254


@dataclass(frozen=True, slots=True)
class LinkedInvitation:
    """The open invitation of a link, its address, and whether an account has that address."""

    offer: ReceivedInvitation
    invitee: str
    has_account: bool


@dataclass(frozen=True, slots=True, repr=False)
class InvitedAccount:
    """What an invited person without an account enters."""

    username: str
    name: str
    password: str


def invitation_link_create(invitation_id: UUID, expires: datetime) -> str:
    """Creates a link that answers the invitation; returns its secret. For system programs."""
    secret = secrets.token_urlsafe(SECRET_BYTES)
    MailLink.objects.create(digest=_digest(secret), invitation_id=invitation_id, expires=expires)
    return secret


def reset_link_create(user: User, now: datetime) -> str:
    """Creates a link that sets the person's password once; returns its secret. For system
    programs."""
    secret = secrets.token_urlsafe(SECRET_BYTES)
    MailLink.objects.create(digest=_digest(secret), user=user, expires=now + RESET_LIFETIME)
    return secret


def links_sweep(now: datetime) -> None:
    """Removes expired links."""
    MailLink.objects.filter(expires__lte=now).delete()


def reset_request(wanted: str, now: datetime) -> None:
    """Requests a reset link for a sign-in name or address. Looks nothing up."""
    PasswordReset.objects.create(wanted=wanted.strip()[:LONGEST_WANTED], at=now)
    task_request("mail.send")


def invitation_by_link(secret: str, now: datetime) -> LinkedInvitation | None:
    """The invitation of the link; None when it is unknown, expired, answered or revoked."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM portal_invitation_by_link(%s, %s)", [_digest(secret), now])
        row = cursor.fetchone()
    return None if row is None else LinkedInvitation(ReceivedInvitation(*row[:-2]), *row[-2:])


def account_by_invitation(secret: str, account: InvitedAccount, now: datetime) -> None:
    """Creates the account of an invited address. The person then accepts as everybody does.

    Raises:
        Refused: `bad_username`, `username_taken`, `bad_name`, `bad_password`, or `not_found` when
            the invitation is no longer open or its address has an account.
    """
    username = username_read(account.username)
    user = User(username=username, first_name=name_read(account.name, longest=150))
    password_check(account.password, user)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT portal_account_by_invitation(%s, %s, %s, %s, %s)",
            [_digest(secret), username, make_password(account.password), user.first_name, now],
        )
        (outcome,) = cursor.fetchone() or ("gone",)
    if outcome == "taken":
        raise invalid("username_taken", refusal_text("username_taken"), "username")
    if outcome != "made":
        raise missing("invitation")


def invitation_link_decline(secret: str, now: datetime) -> None:
    """Declines the invitation of the link. Raises Refused `not_found`."""
    if not _value("SELECT portal_invitation_decline(%s, %s)", _digest(secret), now):
        raise missing("invitation")


def reset_username(secret: str, now: datetime) -> str | None:
    """The sign-in name of the link's person; None if the link is no longer valid."""
    found: str | None = _value("SELECT portal_reset_by_link(%s, %s)", _digest(secret), now)
    return found


def password_by_link(secret: str, password: str, now: datetime) -> None:
    """Sets the password of the link's person, which ends all their sessions and reset links.

    Raises:
        Refused: `bad_password`, or `link_used` when the link is no longer valid.
    """
    password_check(password, User(username=reset_username(secret, now) or ""))
    encoded = make_password(password)
    if not _value("SELECT portal_password_by_link(%s, %s, %s)", _digest(secret), encoded, now):
        raise Refused("link_used", refusal_text("link_used"))


def _value(statement: str, *given: Any) -> Any:  # noqa: ANN401 (as the function has it)
    with connection.cursor() as cursor:
        cursor.execute(statement, given)
        row = cursor.fetchone()
    return None if row is None else row[0]


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
