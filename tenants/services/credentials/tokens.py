"""API tokens: create, revoke, verify."""

import hashlib
import secrets
import string
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q, QuerySet

from tenants.access import Actor, access_project, actor_of
from tenants.audit import actor_record
from tenants.models import ApiToken, Role, Scope, User
from tenants.platform.errors import Refused, denied, invalid, missing
from tenants.platform.wall import require_operators_process, tenant_tx
from tenants.services.credentials.products import products_end
from tenants.services.input_values import name_read
from tenants.words import refusal_text

BRAND = "gpup_pat_"
ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
RANDOM_LENGTH = 32
CHECK_LENGTH = 6
SHOWN_LENGTH = len(BRAND) + 4
MAX_DAYS = 365
MAX_TOKENS = 50
LAST_USED_INTERVAL = timedelta(minutes=1)
# How long the old token of a rotation works next to the new one.
MAX_OVERLAP_HOURS = 7 * 24
_ACCOUNT = [field.attname for field in User._meta.concrete_fields]
# The token, with its holder's account and memberships in its tenant if any.
_HOLDER = f"""
SELECT k.token_id, k.user_id, k.tenant_id, k.tenant_slug, k.last_used, k.scopes, k.project_id,
       m.tenant_id, m.project_id, m.role, m.person, m.time_zone,
       {", ".join(f'u."{field.column}"' for field in User._meta.concrete_fields)}
FROM portal_live_token(%s, %s) k
LEFT JOIN portal_memberships_of(%s, %s) m ON m.tenant_slug = k.tenant_slug
LEFT JOIN portal_account(%s, %s) u ON true
"""  # noqa: S608 (names of our columns)


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """The holder of a valid token. `account` is None if it is not active, and `actor` if they are
    not a member of the token's tenant."""

    credential: bytes
    user_id: int
    tenant_slug: str
    token_id: UUID
    scopes: frozenset[str]
    project_id: UUID | None
    actor: Actor | None
    account: User | None


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """What a new token may do: its scopes, and the slug of its only project, if any.

    Without scopes it gets those of the token that creates it, or all.
    """

    scopes: Sequence[str] | None = None
    project: str | None = None


NO_LIMITS = TokenLimits()


@dataclass(slots=True)
class NewToken:
    """The columns of a token to be stored."""

    name: str
    expires: datetime
    scopes: list[str] = field(default_factory=list)
    project_id: UUID | None = None
    made_with: UUID | None = None
    replaces: UUID | None = None
    follows: UUID | None = None
    holder_id: int | None = None
    """Whose token it is; by default the actor's."""


@transaction.atomic
def token_create(
    *,
    actor: Actor,
    name: str,
    days: int,
    now: datetime,
    limits: TokenLimits = NO_LIMITS,
    made_with: UUID | None = None,
) -> tuple[ApiToken, str]:
    """Creates a token of the actor in this tenant; returns it with its text, which is not stored.

    A token that is created with another token has no more scopes and the same project, and ends
    with it at the latest, however that one ends; otherwise a leaked token could create a stronger
    or permanent successor.

    Raises:
        Refused: `bad_name`, `bad_days`, `bad_scopes`, `stronger_token`, `not_found` (project),
            `too_many_tokens` or `not_allowed`.
    """
    _require_own_process(actor)
    days_check(days)
    project = access_project(actor, limits.project, "project") if limits.project else None
    new = NewToken(
        name=name_read(name),
        expires=now + timedelta(days=days),
        project_id=project.id if project else None,
        made_with=made_with,
    )
    maker = None if made_with is None else token_maker(actor, made_with, now)
    new.scopes = _scopes_read(limits.scopes, maker)
    if maker is not None:
        token_bound(new, maker)
    return token_store(actor, new, now)


@transaction.atomic
def token_rotate(
    *,
    actor: Actor,
    token_id: UUID,
    overlap_hours: int,
    now: datetime,
    made_with: UUID | None = None,
) -> tuple[ApiToken, str]:
    """Replaces a token of the actor; the old one works for `overlap_hours` more.

    The new token has the same name, scopes and project, and depends on the token that made the old
    one, if any. In a browser it gets the full lifetime of the old one; a token that rotates (itself
    or another) makes none that outlives it. What the old token made ends with the old token.

    Raises:
        Refused: `bad_overlap`, `not_found`, `stronger_token`, `too_many_tokens` or `not_allowed`.
    """
    _require_own_process(actor)
    overlap_check(overlap_hours)
    old = own_tokens(actor).filter(id=token_id, revoked=None, expires__gt=now)
    return token_replace(actor, old, timedelta(hours=overlap_hours), now, made_with)


@transaction.atomic
def token_revoke(*, actor: Actor, token_id: UUID, now: datetime) -> ApiToken:
    """Revokes a token of the actor, or of anybody in a tenant that they administer.

    Also revokes all tokens that were created with it. Idempotent.

    Raises:
        Refused: `not_found`.
    """
    tokens = ApiToken.objects.filter(tenant_id=actor.tenant_id, id=token_id)
    if not actor.is_tenant_admin:
        tokens = own_tokens(actor).filter(id=token_id)
    if not tokens.exists():
        raise missing("token")
    tokens_end(actor, [token_id], now)
    return tokens.get()


@transaction.atomic
def tokens_revoke(*, actor: Actor, now: datetime) -> int:
    """Revokes all valid tokens of the actor in this tenant; returns how many."""
    live = live_tokens(actor.tenant_id, actor.user_id, now).order_by("id")
    return tokens_end(actor, list(live.values_list("id", flat=True)), now)


def token_verify(clear: str, *, now: datetime, address: str = "") -> TokenHolder | None:
    """The holder of the token, or None if it is malformed or unknown, or it or a token that made it
    has ended.

    Works before a tenant is known. Records its use and address at most once a minute.
    """
    if not _is_well_formed(clear):
        return None
    digest = token_digest(clear)
    with connection.cursor() as cursor:
        cursor.execute(_HOLDER, [digest, now, digest, now, digest, now])
        rows = cursor.fetchall()
    if not rows:
        return None
    token_id, user_id, tenant_id, tenant_slug, last_used = rows[0][:5]
    if last_used is None or last_used <= now - LAST_USED_INTERVAL:
        with tenant_tx(tenant_id):
            ApiToken.objects.filter(id=token_id).update(last_used=now, last_address=address or None)
    scopes, project_id = rows[0][5:7]
    member = [row[7:12] for row in rows if row[7] is not None]
    actor = actor_of(user_id, tenant_slug, member) if member else None
    if actor is not None:
        actor = replace(actor, token_id=token_id)
    if actor is not None and project_id is not None:
        actor = _in_project(actor, project_id)
    account = _account(digest, rows[0][12:])
    return TokenHolder(digest, user_id, tenant_slug, token_id, frozenset(scopes), project_id, actor, account)


def _account(digest: bytes, values: Sequence[object]) -> User | None:
    if values[0] is None:
        return None
    user = User.from_db(connection.alias, _ACCOUNT, values)
    user.credential = digest
    return user


def _in_project(actor: Actor, project_id: UUID) -> Actor:
    """The actor with the rights in one project only; a tenant admin's are those of its lead."""
    role = Role.LEAD if actor.is_tenant_admin else actor.roles.get(project_id)
    roles = {} if role is None else {project_id: role}
    return replace(actor, is_tenant_admin=False, roles=roles, only_project=project_id)


def _require_own_process(actor: Actor) -> None:
    if User.objects.filter(id=actor.user_id, is_staff=True).exists():
        # A web process must not issue tokens with operators' rights.
        require_operators_process()


def _scopes_read(wanted: Sequence[str] | None, maker: ApiToken | None) -> list[str]:
    if wanted is None:
        return list(maker.scopes) if maker else list(Scope.values)
    known = [scope for scope in Scope.values if scope in wanted]
    if not known or not set(wanted) <= set(Scope.values):
        sentence = refusal_text("scopes_missing", values=", ".join(Scope.values))
        raise invalid("bad_scopes", sentence, "scopes")
    return known


def token_bound(new: NewToken, maker: ApiToken) -> None:
    """Limits a token by the one that creates it. Raises Refused `stronger_token`."""
    new.expires = min(new.expires, maker.expires)
    extra = [scope for scope in new.scopes if scope not in maker.scopes]
    if extra:
        raise Refused(
            "stronger_token",
            refusal_text("token_scope", extra=", ".join(extra)),
            "denied",
            "scopes",
        )
    if maker.project_id is not None:
        if new.project_id not in (None, maker.project_id):
            raise Refused("stronger_token", refusal_text("token_project"), "denied", "project")
        new.project_id = maker.project_id


def days_check(days: int) -> None:
    """Raises Refused `bad_days`."""
    if not 1 <= days <= MAX_DAYS:
        raise invalid("bad_days", refusal_text("token_days", max_days=MAX_DAYS), "days")


def overlap_check(hours: int) -> None:
    """Raises Refused `bad_overlap`."""
    if not 0 <= hours <= MAX_OVERLAP_HOURS:
        sentence = refusal_text("token_overlap", max_overlap_hours=MAX_OVERLAP_HOURS)
        raise invalid("bad_overlap", sentence, "overlap_hours")


def token_replace(
    actor: Actor,
    found: QuerySet[ApiToken],
    overlap: timedelta,
    now: datetime,
    made_with: UUID | None,
) -> tuple[ApiToken, str]:
    """Makes the successor of the one token in `found`, which then ends after the overlap, with
    all that was made with it.

    Raises:
        Refused: `not_found`, `stronger_token` or `too_many_tokens`.
    """
    old = found.select_for_update().first()
    if old is None:
        raise missing("token")
    new = NewToken(
        name=old.name,
        expires=now + (old.expires - old.created),
        scopes=old.scopes,
        project_id=old.project_id,
        made_with=old.made_with_id if made_with in (None, old.id) else made_with,
        replaces=old.id if made_with == old.id else None,
        follows=old.id if old.made_with_id else None,
        holder_id=old.user_id,
    )
    for maker in _makers(actor, made_with, old.made_with_id, now):
        token_bound(new, maker)
    made = token_store(actor, new, now)
    ends = min(old.expires, now + overlap)
    ended = [old.id, *_made_by(actor, [old.id], has_successors=made_with != old.id)]
    ApiToken.objects.filter(id__in=ended, expires__gt=ends).update(expires=ends)
    if ends <= now:
        products_end(actor, ended, now)
    detail = {"expires": ends.isoformat(), "successor": str(made[0].id)}
    actor_record(actor, "token.rotated", ("token", old.id), now, detail)
    return made


def token_store(actor: Actor, new: NewToken, now: datetime) -> tuple[ApiToken, str]:
    """Stores a token; returns it with its text. Raises Refused `too_many_tokens`."""
    holder_id = new.holder_id or actor.user_id
    if live_tokens(actor.tenant_id, holder_id, now).count() >= MAX_TOKENS:
        raise Refused("too_many_tokens", refusal_text("too_many_tokens", max_tokens=MAX_TOKENS))
    clear = token_text()
    token = ApiToken.objects.create(
        tenant_id=actor.tenant_id,
        user_id=holder_id,
        name=new.name,
        digest=token_digest(clear),
        prefix=clear[:SHOWN_LENGTH],
        created=now,
        expires=new.expires,
        scopes=new.scopes,
        project_id=new.project_id,
        made_with_id=new.made_with,
        replaces_id=new.replaces,
        follows_id=new.follows,
    )
    detail = {
        "expires": new.expires.isoformat(),
        "scopes": new.scopes,
        **({"project": str(new.project_id)} if new.project_id else {}),
        **({"made_with": str(new.made_with)} if new.made_with else {}),
    }
    actor_record(actor, "token.created", ("token", token.id), now, detail)
    return token, clear


def own_tokens(actor: Actor) -> QuerySet[ApiToken]:
    """The person's tokens in this tenant; with a token of one project, those of the project."""
    rows = ApiToken.objects.filter(tenant_id=actor.tenant_id, user_id=actor.user_id)
    return rows if actor.only_project is None else rows.filter(project_id=actor.only_project)


def live_tokens(tenant_id: UUID, user_id: int, now: datetime) -> QuerySet[ApiToken]:
    """The person's valid tokens in this tenant."""
    return ApiToken.objects.filter(tenant_id=tenant_id, user_id=user_id, revoked=None, expires__gt=now)


def token_maker(actor: Actor, made_with: UUID, now: datetime) -> ApiToken:
    """The creating token. Locks it, so that a concurrent revocation finds both."""
    own = live_tokens(actor.tenant_id, actor.user_id, now)
    maker = own.select_for_update().filter(id=made_with).first()
    if maker is None:
        raise denied(refusal_text("token_over"))
    return maker


def tokens_end(actor: Actor, token_ids: Sequence[UUID], now: datetime) -> int:
    """Revokes tokens and all that was created with them; returns how many tokens."""
    wanted = [*token_ids, *_made_by(actor, token_ids)]
    ended = 0
    for token_id in wanted:
        if ApiToken.objects.filter(id=token_id, revoked=None).update(revoked=now):
            ended += 1
            actor_record(actor, "token.revoked", ("token", token_id), now)
    products_end(actor, wanted, now)
    return ended


def _made_by(actor: Actor, token_ids: Sequence[UUID], *, has_successors: bool = True) -> list[UUID]:
    """The tokens that these made, and that those made or were rotated into, and so on. With
    `has_successors` also those into which these have rotated themselves."""
    found: dict[UUID, None] = {}
    new = list(token_ids)
    while new:
        of = Q(made_with__in=new)
        if has_successors or found:
            of |= Q(replaces__in=new)
        if found:
            of |= Q(follows__in=new)
        rows = ApiToken.objects.filter(of, tenant_id=actor.tenant_id).order_by("created", "id")
        new = [each for each in rows.values_list("id", flat=True) if each not in found]
        found |= dict.fromkeys(new)
    return list(found)


def _makers(actor: Actor, made_with: UUID | None, parent: UUID | None, now: datetime) -> Iterator[ApiToken]:
    """The tokens that bound a successor: the one that rotates, and the one that made the old one.
    Locks them, so that a concurrent revocation finds all."""
    if made_with is not None:
        yield token_maker(actor, made_with, now)
    if parent not in (None, made_with):
        yield ApiToken.objects.select_for_update().get(id=parent)


def token_text() -> str:
    """Returns the text of a new token."""
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


def token_digest(clear: str) -> bytes:
    """Returns what is stored of a token."""
    # A plain hash suffices, because 190 random bits cannot be guessed.
    return hashlib.sha256(clear.encode()).digest()
