"""Idempotency keys: the same POST sent twice takes effect once and gets the same answer.

Key, work and answer are one transaction. A second request with the key meanwhile waits on the
unique index; a request that fails leaves no key, so the next one works at once.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4, uuid5

from django.db import connection
from django.db.backends.postgresql.psycopg_any import Jsonb
from django.http import HttpResponse
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.access import Actor
from tenants.models import IdempotencyKey
from tenants.platform.errors import invalid
from tenants.platform.rows import rows_write, statement_later
from tenants.words import refusal_text

KEY_MAX = 255
# With these answers no work was done: the same request may succeed later.
NOT_STORED = frozenset({400, 401, 403, 429, 500, 503})
STORED_HEADERS = ("Location", "Preference-Applied", "ETag")
REPLAYED = {"Idempotency-Replayed": "true"}
_BOOKINGS = UUID("8d4f6c1e-5c0b-4a5b-9d3f-6f2f0c1b7a55")


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """An idempotency key and the request it was sent with."""

    key: str
    method: str
    path: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """The stored answer. It is not final while the final one waits for a decision."""

    status: int
    text: str
    content_type: str
    headers: Mapping[str, str]
    is_final: bool

    def replay(self) -> HttpResponse:
        """Returns the same bytes again, marked as a replay."""
        answer = HttpResponse(self.text, content_type=self.content_type, status=self.status)
        for name, value in {**self.headers, **REPLAYED}.items():
            answer[name] = value
        return answer

    def response(self) -> Response:
        """Returns the answer with its data, for a replay that also waits for the final one."""
        return Response(json.loads(self.text), status=self.status, headers={**self.headers, **REPLAYED})


def keyed_request_of(request: Request, raw: bytes) -> KeyedRequest | None:
    """The request's key and identity, or None without a key.

    Raises:
        Refused: `bad_idempotency_key`, when it is empty, too long or not plain ASCII.
    """
    key = request.META.get("HTTP_IDEMPOTENCY_KEY")
    if key is None:
        return None
    if not 1 <= len(key) <= KEY_MAX or not key.isascii() or not key.isprintable():
        raise invalid(
            "bad_idempotency_key",
            refusal_text("bad_idempotency_key", key_max=KEY_MAX),
            "Idempotency-Key",
        )
    # The Prefer header (how long a client waits) is not part of the request's identity.
    digest = hashlib.sha256(request.get_full_path().encode() + b"\0" + raw).digest()
    return KeyedRequest(key, request.method or "", request.path[:400], digest)


def booking_id(actor: Actor, keyed: KeyedRequest | None) -> UUID | None:
    """The id of the booking that is made with this key; None without a key."""
    if keyed is None:
        return None
    return uuid5(_BOOKINGS, f"{actor.tenant_id}:{actor.user_id}:{keyed.key}")


def key_take(actor: Actor, keyed: KeyedRequest, now: datetime) -> StoredAnswer | None:
    """Takes the key for this transaction, or returns its stored answer.

    Waits for a concurrent request with the same key.

    Raises:
        Refused: `idempotency_key_reused`, when the key was sent with another request.
    """
    mine = uuid4()
    with connection.cursor() as cursor:
        # The update changes nothing: it locks the existing row and returns it.
        cursor.execute(
            "INSERT INTO tenants_idempotencykey AS taken (id, tenant_id, user_id, key, method,"
            " path, body_sha256, status, answer, is_final, created)"
            " VALUES (%s, %s, %s, %s, %s, %s, %s, 0, '{}', false, %s)"
            " ON CONFLICT ON CONSTRAINT idempotency_once DO UPDATE SET key = taken.key"
            " RETURNING id, method, path, body_sha256, status, answer, is_final",
            [
                mine,
                actor.tenant_id,
                actor.user_id,
                keyed.key,
                keyed.method,
                keyed.path,
                keyed.digest,
                now,
            ],
        )
        found, method, path, digest, status, answer, is_final = cursor.fetchone()
    if found == mine:
        return None
    if (method, path, bytes(digest)) != (keyed.method, keyed.path, keyed.digest):
        raise invalid(
            "idempotency_key_reused",
            refusal_text("idempotency_key_reused"),
            "Idempotency-Key",
        )
    kept = json.loads(answer)
    return StoredAnswer(status, kept["text"], kept["type"], kept["headers"], is_final)


def keys_known(tenant_id: UUID, keys: Collection[tuple[int, str]]) -> set[tuple[int, str]]:
    """Those of the keys, each with its user, that a request has taken before."""
    if not keys:
        return set()
    found = IdempotencyKey.objects.filter(
        tenant_id=tenant_id,
        user_id__in={user_id for user_id, _ in keys},
        key__in={key for _, key in keys},
    )
    return set(found.values_list("user_id", "key"))


def key_write(
    actor: Actor, keyed: KeyedRequest, response: Response, now: datetime, *, is_final: bool
) -> None:
    """Writes a key that nobody has taken together with its answer. If another request takes it
    meanwhile, the transaction is undone."""
    row = IdempotencyKey(
        tenant_id=actor.tenant_id,
        user_id=actor.user_id,
        key=keyed.key,
        method=keyed.method,
        path=keyed.path,
        body_sha256=keyed.digest,
        status=response.status_code,
        answer=_answer(response),
        is_final=is_final,
        created=now,
    )
    rows_write([row])


def answer_store(actor: Actor, keyed: KeyedRequest, response: Response, *, is_final: bool) -> None:
    """Stores the answer with its key, in the transaction that took the key.

    `answer_replace` replaces an answer that is not final.
    """
    text, row = _answer(response), (actor.tenant_id, actor.user_id, keyed.key)
    statement_later(
        "UPDATE tenants_idempotencykey SET status = %s, is_final = %s, answer = %s"
        " WHERE tenant_id = %s AND user_id = %s AND key = %s",
        [response.status_code, is_final, Jsonb(text), *row],
    )


def answer_replace(actor: Actor, keyed: KeyedRequest, response: Response) -> None:
    """Replaces an answer that was not final by the final one."""
    IdempotencyKey.objects.filter(
        tenant_id=actor.tenant_id, user_id=actor.user_id, key=keyed.key, is_final=False
    ).update(status=response.status_code, is_final=True, answer=_answer(response))


def _answer(response: Response) -> dict[str, Any]:
    return {
        # As text, because a JSON column would change the order of fields.
        "text": JSONRenderer().render(response.data).decode(),
        "type": response.content_type or "application/json",
        "headers": {name: response[name] for name in STORED_HEADERS if name in response},
    }
