"""Sessions of browsers: found by the key in their cookie, listed and ended by their owner.

A web process has no right to the table: it calls database functions, each for one key. Those, and
the trigger that ends a person's sessions with their password or account, are the only writers.
"""

import hashlib
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection

from tenants.models import PasswordProof, Session, User

LAST_SEEN_INTERVAL = timedelta(minutes=1)
MAX_DEVICE_LENGTH = 80


@dataclass(frozen=True, slots=True)
class Reader:
    """The roles of a session's person in one tenant. Compares equal as long as nothing changed."""

    tenant_id: UUID
    roles: frozenset[tuple[UUID | None, str]]

    def may_see(self, project_id: UUID) -> bool:
        """Whether the person has a role in the project, or in the whole tenant."""
        return any(place is None or place == project_id for place, _ in self.roles)


@dataclass(frozen=True, slots=True)
class SessionContent:
    """The stored data of a session, and its expiry."""

    data: str
    expires: datetime


@dataclass(frozen=True, slots=True)
class SessionOrigin:
    """The device and address from which a session is used."""

    device: str
    address: str | None


@dataclass(frozen=True, slots=True)
class LiveSession:
    """A live session: its person, its data, and its last recorded use."""

    user_id: int | None
    data: str
    last_seen: datetime
    device: str


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session in the list of its person."""

    id: UUID
    created: datetime
    expires: datetime
    last_seen: datetime
    device: str
    address: str | None
    is_this: bool


def session_digest(key: str) -> bytes:
    """The stored identifier of a session. A plain hash suffices: the key has 165 random bits."""
    return hashlib.sha256(key.encode()).digest()


def session_find(key: str, *, now: datetime) -> LiveSession | None:
    """The live session with this key, or None."""
    row = _row("SELECT * FROM portal_session(%s, %s)", session_digest(key), now)
    return None if row is None else LiveSession(*row)


def session_start(key: str, held: SessionContent, *, now: datetime) -> bool:
    """Creates a session without a person. Returns False if the key is in use."""
    return bool(
        _value(
            "SELECT portal_session_start(%s, %s, %s, %s)",
            *(session_digest(key), held.data, held.expires, now),
        )
    )


def session_sign_in(key: str, proof: PasswordProof) -> int | None:
    """Signs the session in if the password is right; returns the person's id, or None.

    A session gets its person in no other way: a web process cannot write that column.
    """
    found: int | None = _value(
        "SELECT portal_session_sign_in(%s, %s, %s)",
        *(session_digest(key), proof.username, proof.presented),
    )
    return found


def session_update(key: str, held: SessionContent) -> bool:
    """Writes the session's data. Returns False if it has ended; it is never revived."""
    return bool(
        _value(
            "SELECT portal_session_update(%s, %s, %s)",
            *(session_digest(key), held.data, held.expires),
        )
    )


def session_use_note(key: str, seen: SessionOrigin, *, now: datetime) -> None:
    """Records the use of a session, with device and address."""
    _value(
        "SELECT portal_session_seen(%s, %s, %s, %s::inet)",
        *(session_digest(key), now, seen.device[:MAX_DEVICE_LENGTH], seen.address),
    )


def readers_of(digests: Collection[bytes], *, now: datetime) -> dict[tuple[bytes, str], Reader]:
    """The readers by session digest and tenant slug, in one query.

    Ended sessions, closed accounts, closed tenants and lost memberships have no entry.
    """
    if not digests:
        return {}
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM portal_readers(%s, %s)", [list(digests), now])
        rows = cursor.fetchall()
    roles: dict[tuple[bytes, str, UUID], set[tuple[UUID | None, str]]] = {}
    for digest, slug, tenant_id, project_id, role in rows:
        roles.setdefault((bytes(digest), slug, tenant_id), set()).add((project_id, role))
    return {
        (digest, slug): Reader(tenant_id, frozenset(held))
        for (digest, slug, tenant_id), held in roles.items()
    }


@contextmanager
def temporary_session(user: User, *, now: datetime) -> Iterator[None]:
    """Gives the user a short-lived credential, for system programs that act for people.

    A web process has no right to this.
    """
    user.credential = secrets.token_bytes(32)
    held = Session.objects.create(
        digest=user.credential,
        user=user,
        created=now,
        last_seen=now,
        expires=now + LAST_SEEN_INTERVAL,
    )
    yield
    held.delete()


def session_drop(key: str) -> None:
    """Ends the session with this key."""
    _value("SELECT portal_session_drop(%s)", session_digest(key))


def sessions_of(credential: bytes, now: datetime) -> list[SessionRow]:
    """The live sessions of the person behind the credential, the latest sign-in first."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM portal_sessions_of(%s, %s)", [credential, now])
        return [SessionRow(*row) for row in cursor.fetchall()]


def sessions_end(credential: bytes, *, now: datetime, one: UUID | None = None) -> int:
    """Ends sessions of the person behind the credential: `one`, or all except the caller's.

    Returns how many.
    """
    ended: int = _value("SELECT portal_sessions_end(%s, %s, %s)", credential, now, one)
    return ended


def sessions_sweep(now: datetime) -> None:
    """Removes expired sessions."""
    Session.objects.filter(expires__lte=now).delete()


def _value(statement: str, *given: Any) -> Any:  # noqa: ANN401 (as the function has it)
    """The value that a database function returns."""
    row = _row(statement, *given)
    return None if row is None else row[0]


def _row(statement: str, *given: Any) -> Any:  # noqa: ANN401 (a row of any columns)
    with connection.cursor() as cursor:
        cursor.execute(statement, given)
        return cursor.fetchone()
