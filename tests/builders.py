"""Plain makers of rows that tests start from; each asks only for what the test is about.

They write as portal_system, past the tenant wall, inside the test's own transaction.
"""

from datetime import timedelta
from itertools import count
from secrets import token_bytes

from django.contrib.auth.hashers import make_password
from django.utils import timezone

from tenants.access import Actor, actor_by_id
from tenants.models import (
    GpuClass,
    Membership,
    OperatorRole,
    Password,
    Project,
    Quota,
    Role,
    Session,
    Tenant,
    Tier,
    User,
)
from tenants.rules.operator_roles import SITE
from tests.roles import as_owner, as_system

PASSWORD = "correct horse battery"
UNITS_PER_GPU = 56_000
_number = count(1)


def a_tenant(slug: str = "", *, name: str = "", is_open: bool = True) -> Tenant:
    """A tenant without projects or people."""
    slug = slug or f"tenant-{next(_number)}"
    with as_system():
        return Tenant.objects.create(slug=slug, name=name or slug.title(), is_open=is_open)


def a_project(
    tenant: Tenant | None = None, slug: str = "", *, name: str = "", is_open: bool = True
) -> Project:
    """A project of `tenant`, or of a new one."""
    slug = slug or f"project-{next(_number)}"
    tenant = tenant or a_tenant()
    with as_system():
        return Project.objects.create(tenant=tenant, slug=slug, name=name or slug.title(), is_open=is_open)


def a_user(
    username: str = "",
    *,
    is_staff: bool = False,
    is_active: bool = True,
    first_name: str = "",
    time_zone: str = "Europe/Berlin",
) -> User:
    """A person who signs in with PASSWORD; `is_staff` makes an operator."""
    username = username or f"person-{next(_number)}"
    with as_owner():
        user = User.objects.create(
            username=username,
            is_staff=is_staff,
            is_active=is_active,
            first_name=first_name,
            time_zone=time_zone,
        )
        if is_staff:
            OperatorRole.objects.create(user=user, role=SITE, created=timezone.now(), since=timezone.now())
        # `set_password` and `save` would look for an old one.
        Password.objects.create(user=user, encoded=make_password(PASSWORD))
    return user


def some_users(*usernames: str, operator: str = "") -> list[User]:
    """As `a_user` makes them, in three statements; `operator` is one of them."""
    with as_owner():
        users = User.objects.bulk_create(
            User(username=name, is_staff=name == operator, time_zone="Europe/Berlin") for name in usernames
        )
        OperatorRole.objects.bulk_create(
            OperatorRole(user=user, role=SITE, created=timezone.now(), since=timezone.now())
            for user in users
            if user.is_staff
        )
        Password.objects.bulk_create(Password(user=user, encoded=make_password(PASSWORD)) for user in users)
    return users


def a_session(user: User) -> Session:
    """A browser in which `user` is signed in."""
    now = timezone.now()
    with as_owner():
        return Session.objects.create(
            digest=token_bytes(32),
            user=user,
            data="",
            created=now,
            last_seen=now,
            expires=now + timedelta(hours=1),
        )


def an_operator(username: str = "", role: str = SITE, *names: str) -> User:
    """A person who runs the platform and belongs to no tenant; without a role if it is empty."""
    user = a_user(username, is_staff=True)
    if role != SITE:
        with as_owner():
            OperatorRole.objects.filter(user=user).update(role=role or "support", names=names)
            if not role:
                OperatorRole.objects.filter(user=user).update(ended=timezone.now())
    return user


def a_member(project: Project, role: str = Role.RESEARCHER, *, user: User | None = None) -> Membership:
    """`user` (or a new person) in `project`."""
    user = user or a_user()
    with as_system():
        return Membership.objects.create(tenant=project.tenant, project=project, user=user, role=role)


def a_tenant_admin(tenant: Tenant, *, user: User | None = None) -> Membership:
    """`user` (or a new person) as an admin of the whole tenant."""
    user = user or a_user()
    with as_system():
        return Membership.objects.create(tenant=tenant, user=user, role=Role.TENANT_ADMIN)


def signed_in(user: User) -> User:
    """`user` with the credential of a session of theirs, as a request has it."""
    if not user.credential:
        user.credential = bytes(a_session(user).digest)
    return user


def an_actor(member: Membership) -> Actor:
    """The member as services see them, with all their roles in that tenant."""
    return actor_now(member.user_id, member.tenant.slug)


def actor_now(user_id: int, tenant_slug: str) -> Actor:
    """The person as a member of the tenant, as programs of the system see them."""
    with as_system():
        return actor_by_id(user_id, tenant_slug)


def a_gpu_class(slug: str = "h100", *, label: str = "", order: int = 0) -> GpuClass:
    """The class `slug`, made unless it is there."""
    with as_system():
        return GpuClass.objects.get_or_create(
            slug=slug, defaults={"label": label or slug.upper(), "order": order}
        )[0]


def a_tier(
    slug: str = "standard",
    *,
    priority: int = 50,
    pausable: bool = False,
    grace_seconds: int = 600,
    more_times: int = 0,
    more_time_seconds: int = 0,
) -> Tier:
    """The tier `slug` with these values, made unless it is there."""
    values = {
        "name": slug.title(),
        "priority": priority,
        "pausable": pausable,
        "grace_seconds": grace_seconds,
        "more_times": more_times,
        "more_time_seconds": more_time_seconds,
    }
    with as_system():
        if Tier.objects.filter(slug=slug).update(**values):
            return Tier.objects.get(slug=slug)
        return Tier.objects.create(slug=slug, **values)


def a_quota(
    tenant: Tenant,
    gpu_class: GpuClass | None = None,
    *,
    project: Project | None = None,
    guaranteed: int = 0,
    limit: int | None = None,
    lend: int | None = None,
) -> Quota:
    """A share in whole GPUs; without `project` the tenant's own. No `limit`: the parent's."""
    gpu_class = gpu_class or a_gpu_class()
    with as_system():
        return Quota.objects.create(
            tenant=tenant,
            project=project,
            gpu_class=gpu_class,
            guaranteed_units=guaranteed * UNITS_PER_GPU,
            borrow_limit_units=None if limit is None else (limit - guaranteed) * UNITS_PER_GPU,
            lend_limit_units=None if lend is None else lend * UNITS_PER_GPU,
        )
