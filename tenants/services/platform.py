"""Writes of the platform's operators: tiers, tenants, accounts. Always in `operator_tx`."""

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction

from tenants.audit import audit_everywhere, audit_record, platform_record
from tenants.models import Membership, OperatorRole, Role, Tenant, Tier, User
from tenants.platform.errors import Refused, invalid
from tenants.rules.operator_roles import SITE
from tenants.services.input_values import name_read, slug_read, username_read
from tenants.services.sign_in.account import password_check
from tenants.words import refusal_text

HOUR = 3600
DAY = 24 * HOUR


@dataclass(frozen=True, slots=True)
class TierTerms:
    """The settings of a tier; times in whole seconds."""

    name: str
    priority: int
    pausable: bool
    grace_seconds: int
    protected_seconds: int
    max_duration_seconds: int
    advance_seconds: int
    description: str = ""
    counts_against_guarantee: bool = True
    pause_method: str = "stop"
    max_pauses: int | None = None
    credit_cap_seconds: int = 4 * HOUR
    more_times: int = 0
    more_time_seconds: int = 0
    replace_on_lost: bool = False
    notice_seconds: int = 0
    late_share: int = 0
    no_show_after_seconds: int | None = None
    no_show_share: int | None = None
    idle_action: str = Tier.IdleAction.TELL
    min_duration_seconds: int = 0
    lead_seconds: int = 0
    max_open: int | None = None
    max_open_gpus: int | None = None


@dataclass(frozen=True, slots=True)
class NewAdmin:
    """The first admin of a tenant: an existing account, or a new one with this name."""

    username: str
    name: str = ""
    email: str = ""


LIMITS = {
    "priority": (-1000, 1000, "A priority is a whole number from -1000 to 1000."),
    "grace_seconds": (0, DAY, "The grace before a pause is at most 24 hours."),
    "protected_seconds": (0, 90 * DAY, "The time without pauses is at most 90 days."),
    "max_duration_seconds": (60, 90 * DAY, "A booking may last from a minute to 90 days."),
    "advance_seconds": (HOUR, 365 * DAY, "Booking ahead is possible for 1 hour to 365 days."),
    "max_pauses": (1, 1000, "A booking may be paused 1 to 1,000 times, or as often as needed."),
    "credit_cap_seconds": (0, 90 * DAY, "The credit for repeated work is at most 90 days."),
    "more_times": (0, 10, "A pause can be postponed at most 10 times."),
    "more_time_seconds": (0, HOUR, "A pause can be postponed by at most an hour at a time."),
    "notice_seconds": (0, 30 * DAY, "The notice of a cancellation is at most 30 days."),
    "late_share": (0, 100, "A share is a whole number of percent from 0 to 100."),
    "no_show_after_seconds": (0, DAY, "A booking ends unused after at most 24 hours; 0: never."),
    "no_show_share": (0, 100, "A share is a whole number of percent from 0 to 100."),
    "min_duration_seconds": (0, 90 * DAY, "The shortest booking lasts at most 90 days."),
    "lead_seconds": (0, 365 * DAY, "Bookings can be asked for at most 365 days before the start."),
    "max_open": (1, 10_000, "A person may have 1 to 10,000 open bookings, or no limit."),
    "max_open_gpus": (1, 100_000, "A person may have 1 to 100,000 GPUs booked, or no limit."),
}


@transaction.atomic
def tier_set(*, operator: User | None, slug: str, terms: TierTerms, now: datetime) -> Tier:
    """Creates or changes the tier; running bookings are not affected. Writes to all logs.

    Raises:
        Refused: `bad_slug`, `bad_name` or `bad_tier`, with the field.
    """
    values = _tier_values(slug, terms)
    tier = Tier.objects.select_for_update().filter(slug=slug).first()
    before = {field: getattr(tier, field) for field in values} if tier else None
    tier, _ = Tier.objects.update_or_create(slug=slug, defaults=values)
    if before != values:
        audit_everywhere(
            actor_id=operator.id if operator else None,
            action="tier.set",
            target=("tier", slug),
            now=now,
            detail={"before": before, "after": values},
        )
    return tier


def tier_changes(slug: str, terms: TierTerms) -> dict[str, tuple[object, object]]:
    """The fields of a tier that these terms would change, with present and new value.

    Empty for a new tier. Raises Refused as `tier_set`.
    """
    values = _tier_values(slug, terms)
    tier = Tier.objects.filter(slug=slug).first()
    if tier is None:
        return {}
    pairs = {field: (getattr(tier, field), value) for field, value in values.items()}
    return {field: pair for field, pair in pairs.items() if pair[0] != pair[1]}


def _tier_values(slug: str, terms: TierTerms) -> dict[str, Any]:
    slug_read(slug)
    values = {
        **asdict(terms),
        "name": name_read(terms.name),
        "description": name_read(terms.description, param="description", longest=200)
        if terms.description.strip()
        else "",
    }
    for field, (low, high, sentence) in LIMITS.items():
        if values[field] is not None and not low <= values[field] <= high:
            raise invalid("bad_tier", sentence, field)
    if terms.pause_method not in Tier.PauseMethod.values:
        raise invalid("bad_tier", refusal_text("tier_pause_method"), "pause_method")
    if terms.idle_action not in Tier.IdleAction.values:
        raise invalid("bad_tier", refusal_text("tier_idle_action"), "idle_action")
    if terms.idle_action == Tier.IdleAction.PAUSE and not terms.pausable:
        raise invalid("bad_tier", refusal_text("tier_idle_pause"), "idle_action")
    _bounds_check(terms)
    if bool(terms.more_times) != bool(terms.more_time_seconds):
        raise invalid("bad_tier", refusal_text("tier_more_time"), "more_time_seconds")
    if not (terms.pausable or terms.counts_against_guarantee):
        raise invalid("bad_tier", refusal_text("tier_guarantee"), "counts_against_guarantee")
    return values


def _bounds_check(terms: TierTerms) -> None:
    if terms.min_duration_seconds > terms.max_duration_seconds:
        raise invalid("bad_tier", refusal_text("tier_lengths"), "min_duration_seconds")
    if terms.lead_seconds > terms.advance_seconds:
        raise invalid("bad_tier", refusal_text("tier_lead"), "lead_seconds")


@transaction.atomic
def tenant_create(*, operator: User, slug: str, name: str, admin: str, now: datetime) -> Tenant:
    """Creates a tenant with its first admin, whose sign-in name is `admin`. Others are invited.

    Raises:
        Refused: `bad_slug`, `slug_taken`, `bad_name`, `no_such_person`.
    """
    user = _person_read(admin)
    tenant, is_new = Tenant.objects.get_or_create(
        slug=slug_read(slug), defaults={"name": name_read(name, longest=120)}
    )
    if not is_new:
        raise invalid("slug_taken", refusal_text("tenant_slug_taken"), "slug")
    after = {"name": tenant.name, "is_open": True, "admin": user.username}
    _note(operator, tenant, "tenant.created", now, after=after)
    membership = Membership.objects.create(tenant=tenant, user=user, role=Role.TENANT_ADMIN)
    audit_record(
        tenant_id=tenant.id,
        actor_id=operator.id,
        action="membership.set",
        target=("membership", membership.id),
        now=now,
        detail={"user": user.id, "project": None, "role": Role.TENANT_ADMIN},
    )
    return tenant


@transaction.atomic
def tenant_create_with_admin(
    *, operator: User, slug: str, name: str, admin: NewAdmin, now: datetime
) -> tuple[Tenant, str]:
    """Creates a tenant, and its admin's account if it does not exist.

    Returns the tenant and the new account's password, which is not stored; empty for an existing
    account.

    Raises:
        Refused: as `tenant_create` and `account_create`, whose `name` is `admin_name` here.
    """
    password = ""
    if _person_found(admin.username) is None:
        password = secrets.token_urlsafe(12)
        account = NewAccount(admin.username.strip(), admin.name, admin.email, password)
        try:
            account_create(operator=operator, account=account, now=now)
        except Refused as refusal:
            # The tenant has a field `name` too.
            refusal.param = "admin_name" if refusal.param == "name" else refusal.param
            raise
    tenant = tenant_create(operator=operator, slug=slug, name=name, admin=admin.username, now=now)
    return tenant, password


def tenant_open_set(*, operator: User, tenant: Tenant, is_open: bool, now: datetime) -> None:
    """Opens or closes a tenant: nobody can access a closed one; its data stays."""
    if Tenant.objects.filter(id=tenant.id).exclude(is_open=is_open).update(is_open=is_open):
        action = "tenant.opened" if is_open else "tenant.closed"
        before, after = {"is_open": not is_open}, {"is_open": is_open}
        _note(operator, tenant, action, now, before=before, after=after)


@dataclass(frozen=True, slots=True, repr=False)
class NewAccount:
    """A new person with a password."""

    username: str
    name: str
    email: str
    password: str


@transaction.atomic
def account_create(*, operator: User, account: NewAccount, now: datetime) -> User:
    """Creates an account without memberships. Writes to the platform's log.

    Raises:
        Refused: `bad_username`, `username_taken`, `bad_name`, `bad_email`, `bad_password`.
    """
    return _account_make(account, operator.id, now)


@transaction.atomic
def operator_create(*, account: NewAccount, now: datetime, role: str = SITE) -> User:
    """Creates an operator's account with a role, as the database's owner.

    Raises:
        Refused: as `account_create`.
    """
    user = _account_make(account, None, now, role=role)
    OperatorRole.objects.create(user=user, role=role, created=now, since=now)
    return user


def _account_make(account: NewAccount, made_by: int | None, now: datetime, *, role: str = "") -> User:
    username_read(account.username)
    if User.objects.filter(username__iexact=account.username).exists():
        raise invalid("username_taken", refusal_text("username_taken"), "username")
    user = User(
        username=account.username,
        first_name=name_read(account.name, longest=150),
        email=account.email.strip(),
        is_staff=bool(role),
    )
    try:
        if user.email:
            validate_email(user.email)
    except ValidationError as error:
        raise invalid("bad_email", refusal_text("bad_email"), "email") from error
    password_check(account.password, user)
    user.set_password(account.password)
    user.save()
    platform_record(
        operator_id=made_by,
        action="operator.created" if role else "account.created",
        target=("user", user.id),
        now=now,
        after={"username": user.username, "has_email": bool(user.email)} | ({"role": role} if role else {}),
    )
    return user


def _person_found(username: str) -> User | None:
    wanted = username.strip()
    # PostgreSQL refuses a query with a NUL.
    if not wanted or "\x00" in wanted or len(wanted) > 150:
        return None
    return User.objects.filter(username=wanted, is_active=True).first()


def _person_read(username: str) -> User:
    """The active person with exactly this sign-in name. Raises Refused `no_such_person`."""
    user = _person_found(username)
    if user is None:
        raise invalid(
            "no_such_person",
            refusal_text("no_such_person"),
            "username",
        )
    return user


def _note(
    operator: User,
    tenant: Tenant,
    action: str,
    now: datetime,
    *,
    before: Mapping[str, object] | None = None,
    after: Mapping[str, object] | None = None,
) -> None:
    """Writes to the tenant's log and to the platform's."""
    platform_record(operator.id, action, ("tenant", tenant.slug), now, before=before, after=after)
    audit_record(
        tenant_id=tenant.id,
        actor_id=operator.id,
        action=action,
        target=("tenant", tenant.slug),
        now=now,
    )
