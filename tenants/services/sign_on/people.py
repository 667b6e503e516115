"""Accounts and roles of people who sign in by a provider. In `operator_tx`."""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction

from tenants.audit import audit_record, platform_record
from tenants.models import (
    DirectoryGroup,
    KnownPerson,
    Membership,
    Role,
    Session,
    SignOnGroup,
    SignOnIdentity,
    SignOnProvider,
    Tenant,
    User,
)
from tenants.platform.errors import Refused
from tenants.platform.text import first_invisible
from tenants.services.members.people import require_another_admin
from tenants.services.sign_in.second_factor import is_protected
from tenants.services.sign_on.providers import EVERYBODY
from tenants.words import refusal_text

# A group of several roles in one project gives the strongest.
STRENGTH = {Role.VIEWER: 0, Role.RESEARCHER: 1, Role.LEAD: 2, Role.TENANT_ADMIN: 3}
LONGEST_LOCAL = 90
_NO_NAME = re.compile(r"[^a-z0-9._+-]+")


@dataclass(frozen=True, slots=True)
class Claims:
    """What a checked ID token says about a person."""

    issuer: str
    subject: str
    username: str = ""
    name: str = ""
    groups: frozenset[str] = frozenset()
    email: str = ""
    """An address, if the provider says that it is verified."""


@dataclass(frozen=True, slots=True)
class SignedOn:
    """The outcome: the person, or why nobody is signed in. `note` is for the person's next page."""

    user: User | None
    refusal: Refused | None = None
    note: str = ""


@transaction.atomic
def sign_on_person(provider: SignOnProvider, claims: Claims, now: datetime) -> SignedOn:
    """Finds or creates the account of the claims, and sets its roles by its groups.

    An account is found by issuer and subject alone, never by a name or an address. Roles that
    groups gave before and no longer give end, also when nobody is signed in for lack of a role.
    """
    # People of one tenant sign in one after the other, so the same person gets one account.
    SignOnProvider.objects.select_for_update().get(tenant_id=provider.tenant_id)
    identity = _identity_of(provider, claims)
    wanted = _roles_of(provider, _groups_of(provider, identity, claims))
    if identity is None:
        if not wanted:
            return SignedOn(None, _no_role(provider))
        user = _account_create(provider, claims, now)
        identity = _identity_create(provider, claims, user, now)
    user = identity.user
    if (closed := _may_not(provider, user)) is not None:
        return SignedOn(None, closed)
    note = _roles_set(provider, user, wanted, now)
    if not Membership.objects.filter(tenant_id=provider.tenant_id, user=user).exists():
        Session.objects.filter(user=user, only_tenant_id=provider.tenant_id).delete()
        return SignedOn(None, _no_role(provider))
    identity.last_sign_in, identity.email = now, _address(claims.email)
    identity.save(update_fields=["last_sign_in", "email"])
    return SignedOn(user, note=note)


@transaction.atomic
def sign_on_connect(provider: SignOnProvider, user: User, claims: Claims, now: datetime) -> SignedOn:
    """Connects the account of a signed-in member of the tenant with the person of the claims.

    Raises:
        Refused: `not_allowed`, `connected_already`.
    """
    SignOnProvider.objects.select_for_update().get(tenant_id=provider.tenant_id)
    if user.is_staff or not _is_member(provider, user):
        raise Refused(
            "not_allowed",
            refusal_text("members_only_connect", tenant=provider.tenant.name),
            "denied",
        )
    found = _identity_of(provider, claims)
    if found is not None and found.user_id != user.pk:
        raise Refused(
            "connected_already",
            refusal_text("connected_already"),
        )
    if found is None:
        SignOnIdentity.objects.filter(tenant_id=provider.tenant_id, user=user).delete()
        _identity_create(provider, claims, user, now)
    return sign_on_person(provider, claims, now)


def session_bind(digest: bytes, user: User, tenant_id: UUID, now: datetime) -> bool:
    """Signs the person in with the session, for this tenant only.

    Returns False if the person has a second factor here; the session then waits for it.
    """
    held = Session.objects.filter(digest=digest)
    if is_protected(user):
        held.update(pending=user, user=None, only_tenant_id=tenant_id)
        return False
    held.update(user=user, pending=None, only_tenant_id=tenant_id)
    platform_record(user.pk, "sign_in.done", ("user", user.pk), now)
    return True


def _identity_of(provider: SignOnProvider, claims: Claims) -> SignOnIdentity | None:
    found = SignOnIdentity.objects.filter(
        tenant_id=provider.tenant_id, issuer=claims.issuer, subject=claims.subject
    )
    return found.select_related("user").first()


def _identity_create(provider: SignOnProvider, claims: Claims, user: User, now: datetime) -> SignOnIdentity:
    identity = SignOnIdentity.objects.create(
        tenant_id=provider.tenant_id,
        user=user,
        issuer=claims.issuer,
        subject=claims.subject,
        created=now,
        last_sign_in=now,
    )
    audit_record(
        tenant_id=provider.tenant_id,
        actor_id=user.pk,
        action="sign_on.connected",
        target=("user", user.pk),
        now=now,
        detail={"after": {"username": user.username, "issuer": claims.issuer}},
    )
    return identity


def account_named(wanted: str, name: str, tenant: Tenant) -> User:
    """Creates an account without password and address; nobody else can sign in to it."""
    user = User(username=_username_free(_local_part(wanted), tenant.slug), first_name=_name_shown(name))
    user.save(force_insert=True)
    return user


def roles_for_everybody_set(provider: SignOnProvider, user: User, now: datetime) -> None:
    """Gives the roles that the provider's group of everybody has."""
    _roles_set(provider, user, _roles_of(provider, frozenset()), now)


def roles_of_groups_set(provider: SignOnProvider, user: User, now: datetime) -> str:
    """Sets the roles that the groups of the tenant's directory give; returns a note, or "".

    A note means that the person keeps a role, as the last admin.
    """
    names = _directory_groups(provider, user.pk)
    return _roles_set(provider, user, _roles_of(provider, names), now)


def _groups_of(provider: SignOnProvider, identity: SignOnIdentity | None, claims: Claims) -> frozenset[str]:
    """Those of the ID token, unless the tenant's directory keeps groups."""
    if not DirectoryGroup.objects.filter(tenant_id=provider.tenant_id).exists():
        return claims.groups
    return _directory_groups(provider, identity.user_id) if identity else frozenset()


def _directory_groups(provider: SignOnProvider, user_id: int) -> frozenset[str]:
    found = DirectoryGroup.objects.filter(tenant_id=provider.tenant_id, members__contains=[user_id])
    return frozenset(found.values_list("name", flat=True))


def _account_create(provider: SignOnProvider, claims: Claims, now: datetime) -> User:
    user = account_named(claims.username or claims.subject, claims.name, provider.tenant)
    after = {"username": user.username, "tenant": provider.tenant.slug}
    platform_record(user.pk, "account.created", ("user", user.pk), now, after=after)
    return user


def _address(text: str) -> str:
    """Returns the address, or "" if it is none."""
    try:
        validate_email(text)
    except ValidationError:
        return ""
    return text


def _local_part(name: str) -> str:
    """Returns the provider's name of the person in small ASCII letters, without a domain."""
    wanted = unicodedata.normalize("NFKD", name).lower()
    ascii_only = wanted.partition("@")[0].encode("ascii", "ignore").decode()
    return _NO_NAME.sub("-", ascii_only).strip("._+-")[:LONGEST_LOCAL] or "person"


def _username_free(local: str, slug: str) -> str:
    """Returns `local@slug`, with a number if it is taken."""
    number, name = 1, f"{local}@{slug}"
    while User.objects.filter(username__iexact=name).exists():
        number += 1
        name = f"{local}-{number}@{slug}"
    return name


def _name_shown(text: str) -> str:
    """Returns a name of the provider as ours are: one line, visible, not too long."""
    name = " ".join(unicodedata.normalize("NFC", text).split())[:150]
    return "" if first_invisible(name) else name


def _roles_of(provider: SignOnProvider, groups: frozenset[str]) -> dict[UUID | None, str]:
    """Returns the strongest role that the groups give, by project; None is the tenant."""
    roles: dict[UUID | None, str] = {}
    rows = SignOnGroup.objects.filter(tenant_id=provider.tenant_id, group__in=[*groups, EVERYBODY])
    for row in rows:
        present = roles.get(row.project_id)
        if present is None or STRENGTH[Role(present)] < STRENGTH[Role(row.role)]:
            roles[row.project_id] = row.role
    return roles


def _roles_set(provider: SignOnProvider, user: User, wanted: Mapping[UUID | None, str], now: datetime) -> str:
    """Gives the wanted roles and ends those that groups gave before; returns a note or "".

    Where groups give a role, it replaces one that was given by hand; others by hand stay.
    """
    held = {
        each.project_id: each
        for each in Membership.objects.select_for_update()
        .filter(tenant_id=provider.tenant_id, user=user)
        .order_by("id")
    }
    note = ""
    for project_id, membership in held.items():
        if membership.is_from_groups and project_id not in wanted:
            note = _role_end(membership, now) or note
    for project_id, role in wanted.items():
        _role_give(provider, user, held.get(project_id), (project_id, role), now)
    return note


def _role_end(membership: Membership, now: datetime) -> str:
    """Ends a role, except the tenant's last admin's; returns a note about that or ""."""
    if membership.role == Role.TENANT_ADMIN:
        try:
            require_another_admin(membership)
        except Refused:
            return (
                "Your groups no longer make you an organisation admin. You stay one, because there is no"
                " other. Make somebody else an admin first."
            )
    membership_id = membership.id
    membership.delete()
    _role_record(membership, membership_id, before=membership.role, role=None, now=now)
    return ""


def _role_give(
    provider: SignOnProvider,
    user: User,
    present: Membership | None,
    wanted: tuple[UUID | None, str],
    now: datetime,
) -> None:
    project_id, role = wanted
    if present is None:
        made = Membership.objects.create(
            tenant_id=provider.tenant_id,
            project_id=project_id,
            user=user,
            role=role,
            is_from_groups=True,
        )
        _role_record(made, made.id, before=None, role=role, now=now)
        return
    before = present.role
    if before == role and present.is_from_groups:
        return
    present.role, present.is_from_groups = role, True
    present.save(update_fields=["role", "is_from_groups"])
    if before != role:
        _role_record(present, present.id, before=before, role=role, now=now)


def _role_record(
    membership: Membership,
    membership_id: UUID,
    *,
    before: str | None,
    role: str | None,
    now: datetime,
) -> None:
    audit_record(
        tenant_id=membership.tenant_id,
        actor_id=membership.user_id,
        action="membership.set" if role else "membership.removed",
        target=("membership", membership_id),
        now=now,
        detail={
            "user": membership.user_id,
            "project": str(membership.project_id) if membership.project_id else None,
            "before": {"role": before},
            "after": {"role": role},
            "by": "groups of the provider",
        },
    )


def _may_not(provider: SignOnProvider, user: User) -> Refused | None:
    """Returns why the account can't sign in by a provider, or None."""
    if user.is_staff:
        return Refused("not_allowed", refusal_text("not_allowed_may_not"), "denied")
    if not user.is_active:
        return Refused("account_closed", refusal_text("account_closed"))
    known = KnownPerson.objects.filter(tenant_id=provider.tenant_id, user=user)
    if known.filter(disabled__isnull=False).exists():
        sentence = refusal_text("disabled", tenant=provider.tenant.name)
        return Refused("disabled", sentence, "denied", owner="tenant_admin")
    return None


def _is_member(provider: SignOnProvider, user: User) -> bool:
    return Membership.objects.filter(tenant_id=provider.tenant_id, user=user).exists()


def _no_role(provider: SignOnProvider) -> Refused:
    return Refused(
        "no_role",
        refusal_text("no_role", tenant=provider.tenant.name),
        "denied",
        owner="tenant_admin",
    )
