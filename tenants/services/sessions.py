"""Signed-in browsers: found by the key in their cookie, listed and ended by their person.

The only writers of `tenants_session`, besides the trigger that ends a person's sessions together
with their password or account.
"""

import hashlib
from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from django.db import connection

from tenants.models import Proof, Session

SEEN_EVERY = timedelta(minutes=1)


# Live sessions with all memberships of their active persons in open tenants.
_READERS = """
SELECT s.digest, m.tenant_slug, m.tenant_id, m.project_id, m.role
FROM tenants_session s, LATERAL portal_memberships(s.user_id) m
WHERE s.digest = ANY(%s) AND s.expires > %s
"""


@dataclass(frozen=True, slots=True)
class Reader:
    """What a session's person may read in one tenant. Equal as long as nothing changed."""

    tenant_id: UUID
    roles: frozenset[tuple[UUID | None, str]]


@dataclass(frozen=True, slots=True)
class SessionHeld:
    """What a session holds, and its end."""

    data: str
    expires: datetime


@dataclass(frozen=True, slots=True)
class SessionSeen:
    """From where a session is used."""

    device: str
    address: str | None


def session_digest(key: str) -> bytes:
    """What the database knows a session by. A plain hash: the key has 165 random bits."""
    return hashlib.sha256(key.encode()).digest()


def session_find(key: str, *, now: datetime) -> Session | None:
    """The live session of the key."""
    return Session.objects.filter(digest=session_digest(key), expires__gt=now).first()


def session_start(key: str, held: SessionHeld, *, now: datetime) -> bool:
    """Writes a new session, of nobody yet. False when there is one of this key."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO tenants_session (id, digest, data, created, expires, last_seen, device)"
            " VALUES (%s, %s, %s, %s, %s, %s, '') ON CONFLICT (digest) DO NOTHING",
            [uuid4(), session_digest(key), held.data, now, held.expires, now],
        )
        return bool(cursor.rowcount)


def session_sign_in(key: str, proof: Proof) -> int | None:
    """Makes the session the person's who gave the right password; None when it was not right.

    The only way in which a session becomes somebody's: a web process may not write whose it is.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT portal_session_sign_in(%s, %s, %s)",
            [session_digest(key), proof.username, proof.presented],
        )
        found: int | None = cursor.fetchone()[0]
    return found


def session_update(key: str, held: SessionHeld) -> bool:
    """Writes what a session holds. False when it has ended: it is never brought back."""
    return bool(Session.objects.filter(digest=session_digest(key)).update(**asdict(held)))


def session_seen(key: str, seen: SessionSeen, *, now: datetime) -> None:
    """Notes that a session is used, and from where."""
    Session.objects.filter(digest=session_digest(key)).update(
        last_seen=now, device=seen.device, address=seen.address
    )


def readers_of(digests: Collection[bytes], *, now: datetime) -> dict[tuple[bytes, str], Reader]:
    """Who may read what, by session (its digest) and tenant (its slug), in one query.

    A session that has ended, a closed account, a closed tenant and a lost membership have no entry.
    """
    if not digests:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(_READERS, [list(digests), now])
        rows = cursor.fetchall()
    roles: dict[tuple[bytes, str, UUID], set[tuple[UUID | None, str]]] = {}
    for digest, slug, tenant_id, project_id, role in rows:
        roles.setdefault((bytes(digest), slug, tenant_id), set()).add((project_id, role))
    return {
        (digest, slug): Reader(tenant_id, frozenset(held))
        for (digest, slug, tenant_id), held in roles.items()
    }


def session_drop(key: str) -> None:
    """Ends the session of the key."""
    Session.objects.filter(digest=session_digest(key)).delete()


def session_end(*, user_id: int, session_id: UUID) -> bool:
    """Ends one of the person's sessions. False when there is no such session, or not theirs."""
    return bool(Session.objects.filter(id=session_id, user_id=user_id).delete()[0])


def sessions_end(*, user_id: int, kept_key: str | None = None) -> int:
    """Ends the person's sessions, except the one of `kept_key`; returns how many."""
    sessions = Session.objects.filter(user_id=user_id)
    if kept_key is not None:
        sessions = sessions.exclude(digest=session_digest(kept_key))
    return sessions.delete()[0]


def sessions_sweep(now: datetime) -> None:
    """Removes sessions that have run out."""
    Session.objects.filter(expires__lte=now).delete()
