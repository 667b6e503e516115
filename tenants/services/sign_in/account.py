"""Changes of a person's own account: end sessions, set the password.

A person belongs to any number of tenants, so an entry is written to the log of each of them.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import connection, transaction

from tenants.models import PasswordProof, User
from tenants.platform.errors import invalid, missing
from tenants.services.sign_in.passwords import password_replace
from tenants.services.sign_in.sessions import sessions_end
from tenants.words import refusal_text


@transaction.atomic
def own_session_end(*, user: User, session_id: UUID, now: datetime) -> None:
    """Ends one of the person's sessions. Raises Refused `not_found`."""
    # Written first, because the session may be the caller's own.
    _note(user, "session.ended", now, {"session": str(session_id)})
    if not sessions_end(user.credential, now=now, one=session_id):
        raise missing("session")


@transaction.atomic
def own_sessions_end(*, user: User, now: datetime) -> int:
    """Ends all sessions of the person except the caller's; returns how many."""
    ended = sessions_end(user.credential, now=now)
    if ended:
        _note(user, "session.all_ended", now, {"sessions": ended})
    return ended


@transaction.atomic
def own_password_set(*, user: User, current: PasswordProof, password: str, now: datetime) -> PasswordProof:
    """Changes the person's password; a trigger of the database then ends all their sessions.

    Returns the proof with which this browser signs in again. Raises Refused `bad_password`,
    `wrong_password`.
    """
    password_check(password, user)
    # Written before all sessions end, including the one with the credential.
    _note(user, "user.password_set", now, {})
    new = password_replace(current, password)
    if new is None:
        raise invalid("wrong_password", refusal_text("wrong_password"), "current")
    return new


def password_check(password: str, user: User) -> None:
    """Raises Refused `bad_password` for a weak password."""
    try:
        validate_password(password, user)
    except ValidationError as error:
        raise invalid("bad_password", " ".join(error.messages), "password") from error


def _note(user: User, action: str, now: datetime, detail: Mapping[str, Any]) -> None:
    """Writes an entry about a person's account to the log of each of their tenants."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT portal_account_note(%s, %s, %s::jsonb, %s)",
            [user.credential, action, json.dumps(detail), now],
        )
