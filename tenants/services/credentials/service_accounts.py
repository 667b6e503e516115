"""Writes service accounts: accounts of programs that belong to a project, and their tokens.

A web process can't create accounts or members. A database function creates this kind only, after it
has checked that the caller leads the project or administers the tenant.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection, transaction
from django.db.models import QuerySet

from tenants.access import Actor, access_project
from tenants.audit import actor_record
from tenants.models import ApiToken, Membership, Project, Role, Scope, ServiceAccount
from tenants.platform.errors import Refused, denied, invalid, missing
from tenants.services.credentials.tokens import (
    NewToken,
    days_check,
    live_tokens,
    overlap_check,
    token_bound,
    token_maker,
    token_replace,
    token_store,
    tokens_end,
)
from tenants.services.input_values import name_read, slug_of
from tenants.words import refusal_text

MAX_ACCOUNTS = 50
# Nobody but people manages projects, so a program gets neither more scopes nor a stronger role.
ROLES = (Role.RESEARCHER, Role.VIEWER)
SCOPES = (Scope.READ, Scope.BOOK)


@dataclass(frozen=True, slots=True)
class ServiceToken:
    """A token that is to be created: its name, lifetime and scopes."""

    name: str
    days: int
    scopes: Sequence[str]


def may_have_service_accounts(actor: Actor) -> bool:
    """Returns whether the actor administers the tenant or leads a project."""
    return actor.is_tenant_admin or any(actor.may_lead(each) for each in actor.roles)


def service_accounts_of(actor: Actor) -> QuerySet[ServiceAccount]:
    """Returns the open service accounts that the actor manages, by name."""
    found = ServiceAccount.objects.filter(tenant_id=actor.tenant_id, closed=None)
    if not actor.is_tenant_admin:
        led = [project for project in actor.roles if actor.may_lead(project)]
        found = found.filter(project__in=led)
    return found.select_related("project", "user", "created_by").order_by("name", "id")


def service_account_one(actor: Actor, account_id: UUID) -> ServiceAccount:
    """Returns a service account of the actor. Raises Refused `not_found`."""
    found = service_accounts_of(actor).filter(id=account_id).first()
    if found is None:
        raise missing("service account")
    return found


@transaction.atomic
def service_account_create(
    *, actor: Actor, credential: bytes, name: str, project: str, role: str, now: datetime
) -> ServiceAccount:
    """Creates a service account in the project, without a token.

    `credential` is the caller's: the database checks their role once more.

    Raises:
        Refused: `bad_name`, `bad_role`, `not_found` (project), `not_allowed`,
            `too_many_service_accounts`.
    """
    called = name_read(name)
    found = _project(actor, project)
    if role not in ROLES:
        raise invalid("bad_role", refusal_text("service_account_role"), "role")
    open_now = ServiceAccount.objects.filter(tenant_id=actor.tenant_id, closed=None)
    if open_now.count() >= MAX_ACCOUNTS:
        raise Refused(
            "too_many_service_accounts",
            refusal_text("too_many_service_accounts", max_accounts=MAX_ACCOUNTS),
        )
    wanted = f"{slug_of(called) or 'service'}.{found.slug}@{actor.tenant_slug}"
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT portal_service_account_create(%s, %s, %s, %s, %s, %s)",
            [credential, now, found.id, called, wanted, role],
        )
        (account_id,) = cursor.fetchone() or (None,)
    if account_id is None:
        raise denied(refusal_text("leads_and_admins_only"))
    account = ServiceAccount.objects.select_related("project", "user").get(id=account_id)
    _record(actor, "service_account.created", account, now, {"role": role})
    return account


@transaction.atomic
def service_account_close(*, actor: Actor, account_id: UUID, now: datetime) -> ServiceAccount:
    """Closes a service account for good: its tokens, its role and its planned bookings end.

    Raises:
        Refused: `not_found`.
    """
    account = service_account_one(actor, account_id)
    account.closed = now
    account.save(update_fields=["closed"])
    live = live_tokens(account.tenant_id, account.user_id, now).order_by("id")
    tokens_end(actor, list(live.values_list("id", flat=True)), now)
    Membership.objects.filter(tenant_id=account.tenant_id, user_id=account.user_id).delete()
    _record(actor, "service_account.closed", account, now, {})
    return account


def service_tokens_of(account: ServiceAccount) -> QuerySet[ApiToken]:
    """Returns the tokens of the account, the newest first."""
    rows = ApiToken.objects.filter(tenant_id=account.tenant_id, user_id=account.user_id)
    return rows.select_related("project").order_by("-created", "-id")


@transaction.atomic
def service_token_create(
    *,
    actor: Actor,
    account_id: UUID,
    token: ServiceToken,
    now: datetime,
    made_with: UUID | None = None,
) -> tuple[ApiToken, str]:
    """Creates a token of the account for its project; returns it with its text.

    Made in a browser, it does not depend on the person. Made with a token, it is limited by it.

    Raises:
        Refused: `not_found`, `bad_name`, `bad_days`, `bad_scopes`, `stronger_token`,
            `too_many_tokens`.
    """
    account = service_account_one(actor, account_id)
    days_check(token.days)
    scopes = [str(each) for each in SCOPES if each in token.scopes]
    if not scopes or not set(token.scopes) <= set(SCOPES):
        raise invalid("bad_scopes", refusal_text("service_account_scopes"), "scopes")
    new = NewToken(
        name=name_read(token.name),
        expires=now + timedelta(days=token.days),
        scopes=scopes,
        project_id=account.project_id,
        made_with=made_with,
        holder_id=account.user_id,
    )
    if made_with is not None:
        token_bound(new, token_maker(actor, made_with, now))
    return token_store(actor, new, now)


@transaction.atomic
def service_token_rotate(
    *,
    actor: Actor,
    account_id: UUID,
    token_id: UUID,
    overlap_hours: int,
    now: datetime,
    made_with: UUID | None = None,
) -> tuple[ApiToken, str]:
    """Replaces a token of the account; the old one works for `overlap_hours` more.

    Raises:
        Refused: `not_found`, `bad_overlap`, `stronger_token`, `too_many_tokens`.
    """
    account = service_account_one(actor, account_id)
    overlap_check(overlap_hours)
    old = live_tokens(account.tenant_id, account.user_id, now).filter(id=token_id)
    return token_replace(actor, old, timedelta(hours=overlap_hours), now, made_with)


@transaction.atomic
def service_token_revoke(*, actor: Actor, account_id: UUID, token_id: UUID, now: datetime) -> ApiToken:
    """Revokes a token of the account, and those made with it. Idempotent. Raises `not_found`."""
    account = service_account_one(actor, account_id)
    found = service_tokens_of(account).filter(id=token_id)
    if not found.exists():
        raise missing("token")
    tokens_end(actor, [token_id], now)
    return found.get()


def _project(actor: Actor, slug: str) -> Project:
    found = access_project(actor, slug, "project")
    if not actor.may_lead(found.id):
        raise denied(refusal_text("leads_and_admins_only"))
    if not found.is_open:
        raise denied(refusal_text("project_closed", found=found.name))
    return found


def _record(actor: Actor, action: str, account: ServiceAccount, now: datetime, more: dict[str, str]) -> None:
    detail = {"name": account.name, "in_project": account.project.slug, **more}
    actor_record(actor, action, ("service_account", account.id), now, detail)
