"""Idempotency keys: the same POST sent twice works once and answers the same.

The claim of a key is its own short transaction. Work and answer are one transaction, which first
locks the claim: whoever took it over after a crash, and whoever lost it, can't both work.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID, uuid4, uuid5

from django.db import connection
from django.db.models import QuerySet
from django.http import HttpResponse
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.access import Actor
from tenants.errors import Refused, invalid
from tenants.models import IdempotencyKey
from tenants.wall import tenant_tx

LOCK = timedelta(seconds=60)
KEY_MAX = 255
# These say nothing about the work: the same request may well succeed later.
NOT_KEPT = frozenset({400, 401, 403, 429, 500, 503})
KEPT_HEADERS = ("Location", "Preference-Applied")
_BOOKINGS = UUID("8d4f6c1e-5c0b-4a5b-9d3f-6f2f0c1b7a55")


@dataclass(frozen=True, slots=True)
class Asked:
    """A key and the request it was sent with."""

    key: str
    method: str
    path: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to work under a key until `locked_until`."""

    id: UUID
    locked_until: datetime


@dataclass(frozen=True, slots=True)
class Replay:
    """The answer that was given before."""

    status: int
    text: str
    content_type: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def response(self) -> HttpResponse:
        """The same bytes again, marked as a replay."""
        answer = HttpResponse(self.text, content_type=self.content_type, status=self.status)
        for name, value in self.headers.items():
            answer[name] = value
        answer["Idempotency-Replayed"] = "true"
        return answer


def asked_of(request: Request, raw: bytes) -> Asked | None:
    """The request's key with what it stands for, or None without one.

    Raises:
        Refused: `bad_idempotency_key`, when it is empty, too long or not plain ASCII.
    """
    key = request.META.get("HTTP_IDEMPOTENCY_KEY")
    if key is None:
        return None
    if not 1 <= len(key) <= KEY_MAX or not key.isascii() or not key.isprintable():
        raise invalid(
            "bad_idempotency_key",
            f"An Idempotency-Key has 1 to {KEY_MAX} printable ASCII characters.",
            "Idempotency-Key",
        )
    # How long a client is ready to wait is not part of what it asks for.
    digest = hashlib.sha256(request.get_full_path().encode() + b"\0" + raw).digest()
    return Asked(key, request.method or "", request.path[:400], digest)


def booking_id(actor: Actor, asked: Asked | None) -> UUID | None:
    """The id a booking has under this key, whoever makes it; None without a key."""
    if asked is None:
        return None
    return uuid5(_BOOKINGS, f"{actor.tenant_id}:{actor.user_id}:{asked.key}")


def claim(*, actor: Actor, asked: Asked, now: datetime) -> Claim | Replay:
    """Takes the key for this request, or finds the answer it has.

    Raises:
        Refused: `idempotency_key_reused` for another request, `in_flight` while one works.
    """
    fresh = IdempotencyKey(
        id=uuid4(),
        tenant_id=actor.tenant_id,
        user_id=actor.user_id,
        key=asked.key,
        method=asked.method,
        path=asked.path,
        body_sha256=asked.digest,
        locked_until=now + LOCK,
        created=now,
    )
    with tenant_tx(actor.tenant_id):
        if _inserted(fresh):
            return Claim(fresh.id, now + LOCK)
        row = IdempotencyKey.objects.filter(
            tenant_id=actor.tenant_id, user_id=actor.user_id, key=asked.key
        ).first()
        if row is None:
            raise in_flight()
        return _found(row, asked, now)


def _inserted(fresh: IdempotencyKey) -> bool:
    """Whether nobody had the key; bulk_create would not say."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO tenants_idempotencykey (id, tenant_id, user_id, key, method, path,"
            " body_sha256, locked_until, created) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)"
            " ON CONFLICT DO NOTHING RETURNING id",
            [
                fresh.id,
                fresh.tenant_id,
                fresh.user_id,
                fresh.key,
                fresh.method,
                fresh.path,
                bytes(fresh.body_sha256),
                fresh.locked_until,
                fresh.created,
            ],
        )
        return cursor.fetchone() is not None


@contextmanager
def working(actor: Actor, mine: Claim) -> Iterator[None]:
    """A transaction of the tenant for the work and for keeping its answer.

    Raises:
        Refused: `in_flight`, when somebody else has taken the key over.
    """
    with tenant_tx(actor.tenant_id):
        rows = IdempotencyKey.objects.select_for_update().filter(
            id=mine.id, locked_until=mine.locked_until, status=None
        )
        if not rows.values_list("id", flat=True):
            raise in_flight()
        yield


def keep(mine: Claim, response: Response, *, is_final: bool = True) -> None:
    """Stores the answer, unless the claim is lost; inside a transaction of the tenant.

    While a better answer is awaited (`is_final` False) the key counts as in flight.
    """
    _store(
        IdempotencyKey.objects.filter(locked_until=mine.locked_until, status=None),
        mine,
        response,
        None if is_final else mine.locked_until,
    )


def improve(mine: Claim, response: Response) -> None:
    """Replaces the answer that this claim's work has stored."""
    _store(IdempotencyKey.objects.filter(status__isnull=False), mine, response, None)


def free(actor: Actor, mine: Claim) -> None:
    """Gives the key back: nothing was done under it."""
    with tenant_tx(actor.tenant_id):
        IdempotencyKey.objects.filter(
            id=mine.id, locked_until=mine.locked_until, status=None
        ).delete()


def in_flight() -> Refused:
    """Somebody works under the key right now."""
    return Refused(
        "in_flight", "The first request with this key is still working. Ask again in a second."
    )


def _store(
    rows: QuerySet[IdempotencyKey], mine: Claim, response: Response, until: datetime | None
) -> None:
    rows.filter(id=mine.id).update(
        status=response.status_code,
        locked_until=until,
        answer={
            # As text: a JSON column would bring the fields back in another order.
            "text": JSONRenderer().render(response.data).decode(),
            "type": response.content_type or "application/json",
            "headers": {name: response[name] for name in KEPT_HEADERS if name in response},
        },
    )


def _found(row: IdempotencyKey, asked: Asked, now: datetime) -> Claim | Replay:
    if (row.method, row.path, bytes(row.body_sha256)) != (asked.method, asked.path, asked.digest):
        raise invalid(
            "idempotency_key_reused",
            "This key was sent before with another request. Use a new key for each request.",
            "Idempotency-Key",
        )
    if row.answer is not None and (row.locked_until is None or row.locked_until <= now):
        kept = row.answer
        return Replay(row.status or 200, kept["text"], kept["type"], kept["headers"])
    taken = IdempotencyKey.objects.filter(
        id=row.id, status=None, locked_until=row.locked_until, locked_until__lt=now
    ).update(locked_until=now + LOCK)
    if not taken:
        raise in_flight()
    return Claim(row.id, now + LOCK)
