"""What a person does with their own account: end sessions, change the password.

A person belongs to no tenant or to several, so what they do stands in the log of each of theirs.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction

from tenants.access import tenants_of
from tenants.audit import audit_record
from tenants.errors import invalid, missing
from tenants.models import Proof, User
from tenants.services.passwords import password_replace
from tenants.services.sessions import session_end, sessions_end
from tenants.wall import tenant_tx


@transaction.atomic
def own_session_end(*, user_id: int, session_id: UUID, now: datetime) -> None:
    """Ends one of the person's sessions. Raises Refused `not_found`."""
    if not session_end(user_id=user_id, session_id=session_id):
        raise missing("session")
    account_note(user_id, "session.ended", now, {"session": str(session_id)})


@transaction.atomic
def own_sessions_end(*, user_id: int, now: datetime, kept_key: str | None = None) -> int:
    """Ends the person's sessions, except the one of `kept_key`; returns how many."""
    ended = sessions_end(user_id=user_id, kept_key=kept_key)
    if ended:
        account_note(user_id, "session.all_ended", now, {"sessions": ended})
    return ended


@transaction.atomic
def own_password_set(*, user: User, current: Proof, password: str, now: datetime) -> Proof:
    """Changes the person's password; with it all their sessions end, by the database's trigger.

    Returns what this browser signs in with anew. Raises Refused `bad_password`, `wrong_password`.
    """
    password_check(password, user)
    new = password_replace(current, password)
    if new is None:
        raise invalid("wrong_password", "This is not your password.", "current")
    account_note(user.pk, "user.password_set", now)
    return new


def password_check(password: str, user: User) -> None:
    """Raises Refused `bad_password` when others could guess it."""
    try:
        validate_password(password, user)
    except ValidationError as error:
        raise invalid("bad_password", " ".join(error.messages), "password") from error


def account_note(
    user_id: int, action: str, now: datetime, detail: Mapping[str, Any] | None = None
) -> None:
    """Writes what happened to a person's account into the log of each of their tenants."""
    for tenant in tenants_of(user_id):
        with tenant_tx(tenant.tenant_id):
            audit_record(
                tenant_id=tenant.tenant_id,
                actor_id=user_id,
                action=action,
                target=("user", user_id),
                now=now,
                detail=detail,
            )
