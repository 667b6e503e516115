"""API tokens: create, revoke, verify."""

import hashlib
import secrets
import string
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection, transaction
from django.db.models import QuerySet

from tenants.access import Actor, actor_of
from tenants.audit import audit_record
from tenants.models import ApiToken, User
from tenants.platform.errors import Refused, denied, invalid, missing
from tenants.platform.wall import require_operators_process, tenant_tx
from tenants.services.input_values import name_read

BRAND = "gpup_pat_"
ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
RANDOM_LENGTH = 32
CHECK_LENGTH = 6
SHOWN_LENGTH = len(BRAND) + 4
MAX_DAYS = 365
MAX_TOKENS = 50
LAST_USED_INTERVAL = timedelta(minutes=1)
# The token, with its holder's memberships in its tenant if any.
_HOLDER = """
SELECT k.token_id, k.user_id, k.tenant_id, k.tenant_slug, k.expires, k.revoked, k.last_used,
       m.tenant_id, m.project_id, m.role, m.person, m.time_zone
FROM portal_token(%s) k
LEFT JOIN portal_memberships_of(%s, %s) m ON m.tenant_slug = k.tenant_slug
"""


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """The holder of a valid token; `actor` is None if they are not a member of its tenant."""

    credential: bytes
    user_id: int
    tenant_slug: str
    token_id: UUID
    actor: Actor | None


@transaction.atomic
def token_create(
    *, actor: Actor, name: str, days: int, now: datetime, made_with: UUID | None = None
) -> tuple[ApiToken, str]:
    """Creates a token of the actor in this tenant; returns it with its text, which is not stored.

    A token that is created with another token expires with it at the latest and is revoked with
    it; otherwise a leaked token could create a permanent successor.

    Raises:
        Refused: `bad_name`, `bad_days`, `too_many_tokens` or `not_allowed`.
    """
    if User.objects.filter(id=actor.user_id, is_staff=True).exists():
        # A web process must not issue tokens with operators' rights.
        require_operators_process()
    name = name_read(name)
    if not 1 <= days <= MAX_DAYS:
        raise invalid("bad_days", f"Choose a lifetime of 1 to {MAX_DAYS} days.", "days")
    expires = now + timedelta(days=days)
    if made_with is not None:
        expires = min(expires, _parent_expires(actor, made_with, now))
    live = _live_tokens(actor, now)
    if live.count() >= MAX_TOKENS:
        raise Refused(
            "too_many_tokens", f"You have {MAX_TOKENS} valid tokens. Revoke one that is not used."
        )
    clear = _new_token()
    token = ApiToken.objects.create(
        tenant_id=actor.tenant_id,
        user_id=actor.user_id,
        name=name,
        digest=_digest(clear),
        prefix=clear[:SHOWN_LENGTH],
        created=now,
        expires=expires,
        made_with_id=made_with,
    )
    detail = {"days": days, "expires": expires.isoformat()}
    if made_with is not None:
        detail["made_with"] = str(made_with)
    audit_record(
        tenant_id=actor.tenant_id,
        actor_id=actor.user_id,
        action="token.created",
        target=("token", token.id),
        now=now,
        detail=detail,
    )
    return token, clear


@transaction.atomic
def token_revoke(*, actor: Actor, token_id: UUID, now: datetime) -> ApiToken:
    """Revokes a token of the actor, or of anybody in a tenant that they administer.

    Also revokes all tokens that were created with it. Idempotent.

    Raises:
        Refused: `not_found`.
    """
    tokens = ApiToken.objects.filter(tenant_id=actor.tenant_id, id=token_id)
    if not actor.is_tenant_admin:
        tokens = tokens.filter(user_id=actor.user_id)
    if not tokens.exists():
        raise missing("token")
    _revoke(actor, [token_id], now)
    return tokens.get()


@transaction.atomic
def tokens_revoke(*, actor: Actor, now: datetime) -> int:
    """Revokes all valid tokens of the actor in this tenant; returns how many."""
    found = list(_live_tokens(actor, now).order_by("id").values_list("id", flat=True))
    return _revoke(actor, found, now)


def token_verify(clear: str, *, now: datetime) -> TokenHolder | None:
    """The holder of the token, or None if it is malformed, unknown, expired or revoked.

    Works before a tenant is known. Records its use at most once a minute.
    """
    if not _is_well_formed(clear):
        return None
    digest = _digest(clear)
    with connection.cursor() as cursor:
        cursor.execute(_HOLDER, [digest, digest, now])
        rows = cursor.fetchall()
    if not rows:
        return None
    token_id, user_id, tenant_id, tenant_slug, expires, revoked, last_used = rows[0][:7]
    if revoked is not None or expires <= now:
        return None
    if last_used is None or last_used <= now - LAST_USED_INTERVAL:
        with tenant_tx(tenant_id):
            ApiToken.objects.filter(id=token_id).update(last_used=now)
    member = [row[7:] for row in rows if row[7] is not None]
    actor = actor_of(user_id, tenant_slug, member) if member else None
    return TokenHolder(digest, user_id, tenant_slug, token_id, actor)


def _live_tokens(actor: Actor, now: datetime) -> QuerySet[ApiToken]:
    """The actor's valid tokens in this tenant."""
    return ApiToken.objects.filter(
        tenant_id=actor.tenant_id, user_id=actor.user_id, revoked=None, expires__gt=now
    )


def _parent_expires(actor: Actor, made_with: UUID, now: datetime) -> datetime:
    """When the creating token expires. Locks it, so that a concurrent revocation finds both."""
    maker = _live_tokens(actor, now).select_for_update().filter(id=made_with).first()
    if maker is None:
        raise denied("This token has expired or was revoked, so it cannot create another one.")
    return maker.expires


def _revoke(actor: Actor, token_ids: Sequence[UUID], now: datetime) -> int:
    """Revokes tokens, then those that were created with them, and so on; returns how many."""
    ended = 0
    while token_ids:
        for token_id in token_ids:
            if ApiToken.objects.filter(id=token_id, revoked=None).update(revoked=now):
                ended += 1
                audit_record(
                    tenant_id=actor.tenant_id,
                    actor_id=actor.user_id,
                    action="token.revoked",
                    target=("token", token_id),
                    now=now,
                )
        token_ids = list(
            ApiToken.objects.filter(
                tenant_id=actor.tenant_id, made_with__in=token_ids, revoked=None
            ).values_list("id", flat=True)
        )
    return ended


def _new_token() -> str:
    random = "".join(secrets.choice(ALPHABET) for _ in range(RANDOM_LENGTH))
    return BRAND + random + _check(random)


def _check(random: str) -> str:
    """CRC32 in base 62: scanners recognise leaked tokens, and typing errors need no query."""
    rest = zlib.crc32(random.encode())
    digits = []
    for _ in range(CHECK_LENGTH):
        rest, digit = divmod(rest, len(ALPHABET))
        digits.append(ALPHABET[digit])
    return "".join(reversed(digits))


def _is_well_formed(clear: str) -> bool:
    body = clear.removeprefix(BRAND)
    if body == clear or len(body) != RANDOM_LENGTH + CHECK_LENGTH:
        return False
    random = body[:RANDOM_LENGTH]
    return set(body) <= set(ALPHABET) and body[RANDOM_LENGTH:] == _check(random)


def _digest(clear: str) -> bytes:
    # A plain hash suffices, because 190 random bits cannot be guessed.
    return hashlib.sha256(clear.encode()).digest()
