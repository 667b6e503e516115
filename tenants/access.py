"""Actors and access checks. An object of another tenant is reported as missing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import connection
from django.db.models import Exists, OuterRef, Q, QuerySet

from tenants.models import KnownPerson, Membership, Project, Role, User
from tenants.platform.errors import Refused, denied, missing
from tenants.platform.reference import by_version
from tenants.platform.wall import operator_tx
from tenants.queries import site_operators
from tenants.rules.moments import instant_text
from tenants.rules.operator_roles import NO_RIGHTS, ROLES, Area, Grant, Rights, role_words, roles_for
from tenants.words import refusal_text

MOST_NAMED = 3
"""Site operators that a refusal names."""


@dataclass(frozen=True, slots=True)
class Actor:
    """A person in one tenant. `roles` maps project ids to the person's role.

    `token_id` is the token with which they act, none in a browser. `only_project` is the project
    to which that token is limited: what belongs to the person in every project is not for it.
    """

    user_id: int
    name: str
    tenant_id: UUID
    tenant_slug: str
    is_tenant_admin: bool
    roles: Mapping[UUID, str]
    time_zone: str = "UTC"
    token_id: UUID | None = None
    only_project: UUID | None = None

    def role_in(self, project_id: UUID) -> str | None:
        """The effective role in the project, or None without access."""
        return Role.TENANT_ADMIN if self.is_tenant_admin else self.roles.get(project_id)

    def may_book(self, project_id: UUID) -> bool:
        """True for researchers, leads and tenant admins."""
        return self.role_in(project_id) not in (None, Role.VIEWER)

    def clock(self, moment: datetime, now: datetime) -> str:
        """The moment in the person's time zone: `21 Nov 14:00 CET`, with the year in another one."""
        return instant_text(moment, ZoneInfo(self.time_zone), now)

    def may_lead(self, project_id: UUID) -> bool:
        """True for leads and tenant admins."""
        return self.role_in(project_id) in (Role.LEAD, Role.TENANT_ADMIN)

    @property
    def leads_any(self) -> bool:
        """True for tenant admins, and for leads of any project."""
        return self.is_tenant_admin or Role.LEAD in self.roles.values()


@dataclass(frozen=True, slots=True)
class PlatformActor:
    """An operator who acts for the platform: their changes are written in `operator_tx`."""

    user_id: int
    name: str
    token_id: UUID | None = None
    tenant_id: None = None

    @classmethod
    def of(cls, operator: User, token_id: UUID | None = None) -> "PlatformActor":
        """Returns the operator as who acts, by a page or with a token."""
        return cls(operator.pk, operator.display_name, token_id)


@dataclass(frozen=True, slots=True)
class TenantChoice:
    """A tenant that a person belongs to."""

    tenant_id: UUID
    slug: str
    name: str


def account_of(credential: bytes, now: datetime) -> User | None:
    """The active account of a session or token, before a tenant is known."""
    found = list(User.objects.raw("SELECT * FROM portal_account(%s, %s)", [credential, now]))
    for user in found:
        user.credential = credential
        return user
    return None


def tenants_of(user: User, now: datetime) -> list[TenantChoice]:
    """The tenants of the account behind the credential, before a tenant is known."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT tenant_id, tenant_slug, tenant_name"
            " FROM portal_memberships_of(%s, %s) ORDER BY tenant_slug",
            [user.credential, now],
        )
        return [TenantChoice(*row) for row in cursor.fetchall()]


def operator_rights(user: User, now: datetime) -> Rights:
    """The roles of the operator behind the credential; none for other people."""
    if not user.is_staff:
        return NO_RIGHTS
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM portal_operator_roles(%s, %s)", [user.credential, now])
        return Rights(tuple(Grant(role, tuple(names)) for role, names in cursor.fetchall()))


def role_needed(rights: Rights, area: Area, *, act: bool) -> Refused:
    """The refusal for an operator whose roles do not reach: which do, and who gives them."""
    able = roles_for(area, act=act)
    labels = [ROLES[each].label for each in able]
    with operator_tx():
        people = [each.display_name for each in site_operators()]
    facts = {
        "roles": " or ".join([", ".join(labels[:-1]), labels[-1]] if len(labels) > 1 else labels),
        "own": role_words(rights.grants) or "none",
        "people": ", ".join(people[:MOST_NAMED]),
    }
    sentence = "role_needed_to_act" if act else "role_needed_to_read"
    return Refused("role_needed", refusal_text(sentence, **facts), "denied")


def rights_of(credentials: Iterable[bytes], now: datetime) -> dict[bytes, frozenset[object]]:
    """The present memberships behind each credential; none for one that is not valid any more."""
    wanted = list(credentials)
    found: dict[bytes, set[object]] = {each: set() for each in wanted}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.digest, m.tenant_id, m.project_id, m.role FROM unnest(%s::bytea[]) c(digest),"
            " LATERAL portal_memberships_of(c.digest, %s) m",
            [wanted, now],
        )
        for digest, *right in cursor.fetchall():
            found[bytes(digest)].add(tuple(right))
    return {each: frozenset(rights) for each, rights in found.items()}


def actor_in(user: User, tenant_slug: str, now: datetime) -> Actor:
    """The account behind the user's credential, as a member of the tenant.

    Raises:
        Refused: `not_found`, when there is no such open tenant or no membership in it.
    """
    return _actor(user.pk, tenant_slug, "portal_memberships_of(%s, %s)", [user.credential, now])


def actor_by_id(user_id: int, tenant_slug: str) -> Actor:
    """Like `actor_in`, without a credential: for system programs. A web process has no right to it.

    Raises:
        Refused: `not_found`.
    """
    return _actor(user_id, tenant_slug, "portal_memberships(%s)", [user_id])


def _actor(user_id: int, tenant_slug: str, source: str, given: Sequence[Any]) -> Actor:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tenant_id, project_id, role, person, time_zone"  # noqa: S608 (our constants)
            f" FROM {source} WHERE tenant_slug = %s",
            [*given, tenant_slug],
        )
        rows = cursor.fetchall()
    if not rows:
        raise missing("tenant")
    return actor_of(user_id, tenant_slug, rows)


def actor_of(
    user_id: int, tenant_slug: str, rows: Sequence[tuple[UUID, UUID | None, str, str, str]]
) -> Actor:
    """Builds an actor from rows of (tenant id, project id, role, person's name, time zone)."""
    return Actor(
        user_id=user_id,
        name=rows[0][3],
        tenant_id=rows[0][0],
        tenant_slug=tenant_slug,
        is_tenant_admin=any(role == Role.TENANT_ADMIN for _, _, role, _, _ in rows),
        roles={project: role for _, project, role, _, _ in rows if project is not None},
        time_zone=rows[0][4],
    )


def acting_members(tenant_id: UUID) -> QuerySet[Membership]:
    """The memberships whose people may act: account, access to the tenant and tenant are open."""
    known = KnownPerson.objects.filter(tenant=OuterRef("tenant"), user=OuterRef("user"))
    return Membership.objects.filter(
        ~Exists(known.filter(disabled__isnull=False)),
        tenant_id=tenant_id,
        tenant__is_open=True,
        user__is_active=True,
    )


def may_still_book(user_id: int, project: Project) -> bool:
    """Whether the person may book in the project at present, without a request of theirs."""
    return _has_still(user_id, project, Role.RESEARCHER, Role.LEAD)


def may_still_lead(user_id: int, project: Project) -> bool:
    """Whether the person leads the project at present, without a request of theirs."""
    return _has_still(user_id, project, Role.LEAD)


def _has_still(user_id: int, project: Project, *names: str) -> bool:
    roles = Q(role=Role.TENANT_ADMIN) | Q(project=project, role__in=names)
    members = acting_members(project.tenant_id).filter(roles, user=user_id)
    return project.is_open and members.exists()


def client_address(meta: Mapping[str, Any]) -> str:
    """The address of the client; empty when it is unknown.

    `meta` is the request's META. X-Forwarded-For is read from the right, as long as each address
    is that of a trusted proxy: the client itself may have written what is further left. A server
    such as uvicorn (without --no-proxy-headers) sets port 0 if it took the address from such a
    header, so an address with port 0 is not trusted.
    """
    if str(meta.get("REMOTE_PORT", "")) == "0":
        return ""
    found = _address_read(meta.get("REMOTE_ADDR") or "")
    hops = str(meta.get("HTTP_X_FORWARDED_FOR") or "").split(",")
    while hops and found is not None and _is_trusted_proxy(found):
        before = _address_read(hops.pop())
        if before is None:
            break
        found = before
    return str(found or "")


def _is_trusted_proxy(address: IPv4Address | IPv6Address) -> bool:
    return any(address in network for network in settings.TRUSTED_PROXIES)


@lru_cache(4_096)
def _address_read(text: str) -> IPv4Address | IPv6Address | None:
    """The address in `text`, without a port, in canonical form."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def acting_people(actor: Actor) -> list[tuple[str, str]]:
    """Everybody in the tenant who may act, except the actor: sign-in names and names, by name."""
    rows = acting_members(actor.tenant_id).exclude(user=actor.user_id)
    people = User.objects.filter(id__in=rows.values("user")).order_by("first_name", "username")
    return [(each.username, each.display_name) for each in people]


def led_projects(actor: Actor, *, with_closed: bool = False) -> list[tuple[str, str]]:
    """The open projects, or all, that the actor may lead: slugs and names."""
    rows = Project.objects.filter(tenant_id=actor.tenant_id).order_by("name", "id")
    rows = rows if with_closed else rows.filter(is_open=True)
    return [(each.slug, each.name) for each in rows if actor.may_lead(each.id)]


def access_project(actor: Actor, slug: str, param: str | None = None) -> Project:
    """A project that the actor may see.

    Raises:
        Refused: `not_found`, for foreign, hidden and missing projects alike.
    """
    project = _project_read(actor.tenant_id, slug)
    if project is None or actor.role_in(project.id) is None:
        raise missing("project", param)
    return project


def access_project_to_book(actor: Actor, slug: str, param: str | None = None) -> Project:
    """A project that the actor may book in.

    Raises:
        Refused: `not_found`, `not_allowed` (viewers) or `project_closed`.
    """
    project = access_project(actor, slug, param)
    if not actor.may_book(project.id):
        raise denied(refusal_text("bookers_only"))
    require_open(project)
    return project


def require_in_reach(actor: Actor, project: Project | None) -> None:
    """Raises Refused `not_allowed` if the actor's token is limited to another project than this.
    None is all projects of the actor."""
    if actor.only_project is not None and (project is None or project.id != actor.only_project):
        raise denied(refusal_text("token_of_project"))


def require_open(project: Project) -> None:
    """Raises Refused `not_allowed` if the project is closed."""
    if not project.is_open:
        raise denied(refusal_text("project_closed", found=project.name))


@by_version
def _project_read(tenant_id: UUID, slug: str) -> Project | None:
    return Project.objects.filter(tenant_id=tenant_id, slug=slug).first()


def require_tenant_admin(actor: Actor) -> None:
    """Raises Refused `not_allowed` unless the actor administers the tenant."""
    if not actor.is_tenant_admin:
        raise denied(refusal_text("admins_only"))
