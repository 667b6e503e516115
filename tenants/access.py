"""Who is asking, and the doors to what they may touch. Foreign ids answer like missing ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import connection

from tenants.models import Project, Role, User
from tenants.platform.errors import denied, missing


@dataclass(frozen=True, slots=True)
class Actor:
    """A person inside one tenant. `roles` maps project id to role there."""

    user_id: int
    name: str
    tenant_id: UUID
    tenant_slug: str
    is_tenant_admin: bool
    roles: Mapping[UUID, str]
    time_zone: str = "UTC"

    def role_in(self, project_id: UUID) -> str | None:
        """The role that counts in the project, or None for no access at all."""
        return Role.TENANT_ADMIN if self.is_tenant_admin else self.roles.get(project_id)

    def may_book(self, project_id: UUID) -> bool:
        """True for researchers, leads and tenant admins."""
        return self.role_in(project_id) not in (None, Role.VIEWER)

    def clock(self, moment: datetime) -> str:
        """The moment as the person's own clock shows it, with its zone: `21 Nov 14:00 CET`."""
        return f"{moment.astimezone(ZoneInfo(self.time_zone)):%d %b %H:%M %Z}"

    def may_lead(self, project_id: UUID) -> bool:
        """True for leads and tenant admins."""
        return self.role_in(project_id) in (Role.LEAD, Role.TENANT_ADMIN)


@dataclass(frozen=True, slots=True)
class TenantChoice:
    """A tenant that a person belongs to."""

    tenant_id: UUID
    slug: str
    name: str


def account_of(credential: bytes, now: datetime) -> User | None:
    """The active person to whom the session or token belongs, before any tenant is known."""
    found = list(User.objects.raw("SELECT * FROM portal_account(%s, %s)", [credential, now]))
    for user in found:
        user.credential = credential
        return user
    return None


def tenants_of(user: User, now: datetime) -> list[TenantChoice]:
    """The tenants of the person whose credential it is, before any tenant is known."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT tenant_id, tenant_slug, tenant_name"
            " FROM portal_memberships_of(%s, %s) ORDER BY tenant_slug",
            [user.credential, now],
        )
        return [TenantChoice(*row) for row in cursor.fetchall()]


def actor_in(user: User, tenant_slug: str, now: datetime) -> Actor:
    """The person whose credential it is, as a member of the tenant.

    Raises:
        Refused: `not_found`, when there is no such open tenant or no membership in it.
    """
    return _actor(user.pk, tenant_slug, "portal_memberships_of(%s, %s)", [user.credential, now])


def actor_by_id(user_id: int, tenant_slug: str) -> Actor:
    """As `actor_in`, for programs that no person has sent a credential to. A web process can't.

    Raises:
        Refused: `not_found`.
    """
    return _actor(user_id, tenant_slug, "portal_memberships(%s)", [user_id])


def _actor(user_id: int, tenant_slug: str, source: str, given: Sequence[Any]) -> Actor:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tenant_id, project_id, role, person, time_zone"  # noqa: S608 (our own doors)
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
    """The person of memberships in one tenant: its id, project, role, person's name and zone."""
    return Actor(
        user_id=user_id,
        name=rows[0][3],
        tenant_id=rows[0][0],
        tenant_slug=tenant_slug,
        is_tenant_admin=any(role == Role.TENANT_ADMIN for _, _, role, _, _ in rows),
        roles={project: role for _, project, role, _, _ in rows if project is not None},
        time_zone=rows[0][4],
    )


def client_address(meta: Mapping[str, Any]) -> str:
    """The address that a request comes from; empty when it is not known.

    `meta` is the request's META. X-Forwarded-For is read from the right, and only as far as each
    address before was that of a trusted proxy: what stands further left is the sender's own word.
    An address with port 0 was put there by the server from such a header (uvicorn does so unless
    started with --no-proxy-headers), so it is not believed.
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


def _address_read(text: str) -> IPv4Address | IPv6Address | None:
    """The address in `text`, which may have a port; one form for each."""
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


def access_project(actor: Actor, slug: str, param: str | None = None) -> Project:
    """A project the actor may at least see.

    Raises:
        Refused: `not_found`, equally for foreign, hidden and missing projects.
    """
    project = Project.objects.filter(tenant_id=actor.tenant_id, slug=slug).first()
    if project is None or actor.role_in(project.id) is None:
        raise missing("project", param)
    return project


def access_project_to_book(actor: Actor, slug: str, param: str | None = None) -> Project:
    """A project the actor may book in.

    Raises:
        Refused: `not_found`, `not_allowed` (viewers) or `project_closed`.
    """
    project = access_project(actor, slug, param)
    if not actor.may_book(project.id):
        raise denied("You can see this project, but only its researchers and leads book in it.")
    if not project.is_open:
        raise denied(f"{project.name} is closed. Its tenant admin can open it again.")
    return project


def access_project_to_lead(actor: Actor, slug: str, param: str | None = None) -> Project:
    """A project whose people, quota split and budget the actor may change or inspect as lead.

    Raises:
        Refused: `not_found` or `not_allowed`.
    """
    project = access_project(actor, slug, param)
    if not actor.may_lead(project.id):
        raise denied("Only the project's leads and the tenant's admins may do this.")
    return project


def require_tenant_admin(actor: Actor) -> None:
    """Raises Refused `not_allowed` unless the actor administers the tenant."""
    if not actor.is_tenant_admin:
        raise denied("Only the tenant's admins may do this.")
