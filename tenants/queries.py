"""Reads people, quotas, tiers, tokens and the outbox for pages and the REST API."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Count, Exists, Min, OuterRef, Q, QuerySet

from tenants.models import (
    ApiToken,
    AuditEntry,
    GpuClass,
    Invitation,
    KnownPerson,
    Mail,
    Membership,
    Notification,
    NotificationSettings,
    OperatorRole,
    OutboxMessage,
    Project,
    PublishedEvent,
    Quota,
    Role,
    SignOnIdentity,
    SignOnProvider,
    Tenant,
    Tier,
    User,
)
from tenants.rules.operator_roles import SITE, Area, Grant, Rights, roles_for

_ENDED_COUNTS = timedelta(days=7)
"""For so long an operator counts as the second person of another one who has closed their account or ended
their role. Otherwise one closes the account, acts alone, and opens it again. Also in
`billing/migrations/rules/second_operator_stays.py`."""


def is_only_operator(user_id: int, area: Area, now: datetime) -> bool:
    """Returns whether nobody else can be the second person of an operator's change in the area."""
    if operators_acting(area).exclude(id=user_id).exists():
        return False
    since = now - _ENDED_COUNTS
    roles = OperatorRole.objects.filter(role__in=roles_for(area, act=True), since__isnull=False)
    closed = AuditEntry.objects.filter(
        tenant=None, actor=user_id, at__gt=since, action="account.closed", object_kind="user"
    )
    ids = [int(each) for each in closed.values_list("object_id", flat=True)]
    ended = Q(ended__gt=since, ended_by=user_id) | Q(ended=None, user__is_active=False, user__in=ids)
    return not roles.exclude(user=user_id).filter(ended).exists()


def operators_acting(area: Area) -> QuerySet[User]:
    """The operators who may act in the area, in the order of their accounts."""
    return _operators_with(*roles_for(area, act=True))


def operators_reading(area: Area) -> QuerySet[User]:
    """The operators who may read the area, in the order of their accounts."""
    return _operators_with(*roles_for(area, act=False))


def _operators_with(*roles: str) -> QuerySet[User]:
    rows = OperatorRole.objects.filter(OperatorRole.in_force(), role__in=roles)
    return User.objects.filter(id__in=rows.values("user")).order_by("id")


def rights_of_operator(user_id: int) -> Rights:
    """The present rights of an operator, for services: a web process has no right to read them."""
    rows = OperatorRole.objects.filter(OperatorRole.in_force(), user=user_id).order_by("role")
    return Rights(tuple(Grant(role, tuple(names)) for role, names in rows.values_list("role", "names")))


def site_operators() -> list[User]:
    """The operators who may do everything, by sign-in name."""
    return list(_operators_with(SITE).order_by("username"))


@dataclass(frozen=True, slots=True)
class PersonRoles:
    """A person with their roles in an organisation: as admin, and in the projects that the reader sees."""

    user: User
    admin: Membership | None
    roles: list[Membership]


@dataclass(frozen=True, slots=True)
class PeoplePage:
    """A page of people by name, and how many there are."""

    people: list[PersonRoles]
    count: int


@dataclass(frozen=True, slots=True)
class ShareRow:
    """The units of a class that `owner` (a project or a tenant) has.

    `quota` is the row; without one the units are zero and the limit None.
    """

    owner: Project | Tenant
    guaranteed_units: int
    borrow_limit_units: int | None
    lend_limit_units: int | None = None
    quota: Quota | None = None

    @property
    def limit_units(self) -> int | None:
        """The most units at any instant: guaranteed + borrow limit; None without a limit."""
        if self.borrow_limit_units is None:
            return None
        return self.guaranteed_units + self.borrow_limit_units


@dataclass(frozen=True, slots=True)
class ClassShares:
    """The quotas of a GPU class: a tenant's projects, or the platform's tenants.

    `split_units` is the sum of all guarantees, including owners that are not in `rows`.
    """

    gpu_class: GpuClass
    total: ShareRow | None
    rows: tuple[ShareRow, ...]
    split_units: int


@dataclass(frozen=True, slots=True)
class ReceivedInvitation:
    """An invitation as its recipient sees it. `project` is empty for a whole tenant."""

    id: UUID
    tenant_id: UUID
    tenant_slug: str
    tenant_name: str
    project: str
    role: str
    inviter: str
    expires: datetime

    @property
    def role_name(self) -> str:
        """The role in lower case, such as "project lead"."""
        return Role(self.role).label.lower()

    @property
    def place(self) -> str:
        """The project and tenant, such as "Protein folding of Helix Institute"."""
        return f"{self.project} of {self.tenant_name}" if self.project else self.tenant_name


@dataclass(frozen=True, slots=True)
class TenantCounts:
    """The numbers of people with open accounts, projects, and valid tokens."""

    people: int
    projects: int
    tokens: int


RANK = {Role.LEAD: 0, Role.RESEARCHER: 1, Role.VIEWER: 2}


def people_listed(
    tenant_id: UUID, projects: Collection[UUID], wanted: str, *, first: int, most: int
) -> PeoplePage:
    """The people with a role in one of the projects, or in the whole organisation, by name.

    With `wanted`, only those whose name or sign-in name contains each of its words. `first` of them are left
    out, and at most `most` follow.
    """
    held = Membership.objects.filter(Q(project=None) | Q(project__in=projects), tenant_id=tenant_id)
    found = User.objects.filter(id__in=held.values("user"))
    for word in wanted.split():
        names = Q(username__icontains=word)
        found = found.filter(names | Q(first_name__icontains=word) | Q(last_name__icontains=word))
    shown = found.select_related("service_account").order_by("first_name", "last_name", "username", "id")
    people = list(shown[first : first + most])
    rows = held.filter(user__in=[each.pk for each in people]).select_related("project")
    by_person: dict[int, list[Membership]] = {}
    for row in rows.order_by("project__name", "id"):
        by_person.setdefault(row.user_id, []).append(row)
    return PeoplePage([_person_roles(each, by_person.get(each.pk, [])) for each in people], found.count())


def _person_roles(user: User, rows: Iterable[Membership]) -> PersonRoles:
    held = list(rows)
    admin = next((row for row in held if row.project_id is None), None)
    return PersonRoles(user, admin, [row for row in held if row.project_id is not None])


@dataclass(frozen=True, slots=True)
class OwnRole:
    """A role of the reader. `project` is empty for a whole tenant."""

    membership_id: UUID
    tenant_slug: str
    tenant_name: str
    project: str
    role: str

    @property
    def role_name(self) -> str:
        """The role in lower case, such as "project lead"."""
        return Role(self.role).label.lower()

    @property
    def place(self) -> str:
        """The project and tenant, such as "Protein folding of Helix Institute"."""
        return f"{self.project} of {self.tenant_name}" if self.project else self.tenant_name


def own_roles(user_id: int, tenant: Tenant) -> list[OwnRole]:
    """The person's roles in the tenant, whose context is open; the whole tenant's first."""
    found = Membership.objects.filter(tenant_id=tenant.id, user_id=user_id)
    rows = [
        OwnRole(each.id, tenant.slug, tenant.name, each.project.name if each.project else "", each.role)
        for each in found.select_related("project")
    ]
    return sorted(rows, key=lambda each: (each.project != "", each.project))


def sign_on_is_on(tenant_id: UUID) -> bool:
    """Returns whether people of the tenant can sign in by its provider."""
    return SignOnProvider.objects.filter(tenant_id=tenant_id, is_on=True).exists()


def is_connected(tenant_id: UUID, user_id: int) -> bool:
    """Returns whether the tenant's provider signs the person in."""
    return SignOnIdentity.objects.filter(tenant_id=tenant_id, user_id=user_id).exists()


def received_invitations(credential: bytes, now: datetime) -> list[ReceivedInvitation]:
    """The invitations to the account behind the credential, in all tenants."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM portal_invitations_to(%s, %s)", [credential, now])
        return [ReceivedInvitation(*row) for row in cursor.fetchall()]


def invitations_by_id(user_id: int, now: datetime) -> list[ReceivedInvitation]:
    """The invitations to an account, for system programs. A web process has no right to it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM portal_invitations(%s, %s)", [user_id, now])
        return [ReceivedInvitation(*row) for row in cursor.fetchall()]


def invitation_offer(invitation_id: UUID, now: datetime) -> ReceivedInvitation | None:
    """One open invitation, for system programs. A web process has no right to it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM portal_invitation_offer(%s, %s)", [invitation_id, now])
        row = cursor.fetchone()
    return None if row is None else ReceivedInvitation(*row)


def invitations_of(tenant_id: UUID, now: datetime) -> QuerySet[Invitation]:
    """The tenant's declined invitations and those that can be accepted, the latest first.

    An invitation can be accepted as long as its maker may give its role, as the database's function
    for the invited person has it.
    """
    giving = Membership.objects.filter(
        Q(role=Role.TENANT_ADMIN) | Q(role=Role.LEAD, project=OuterRef("project")),
        tenant_id=tenant_id,
        user=OuterRef("made_by"),
        user__is_active=True,
    )
    kept_out = KnownPerson.objects.filter(
        tenant_id=tenant_id, user=OuterRef("made_by"), disabled__isnull=False
    )
    may_give = Exists(giving) & ~Exists(kept_out) | Q(made_by__is_staff=True, made_by__is_active=True)
    is_of_open_project = Q(project=None) | Q(project__is_open=True)
    shown = Invitation.objects.filter(
        Q(state=Invitation.State.DECLINED) | Q(may_give, is_of_open_project, state=Invitation.State.OPEN),
        tenant_id=tenant_id,
        expires__gt=now,
    )
    return shown.select_related("project").order_by("-created", "id")


def admins_invited(now: datetime) -> list[tuple[UUID, str]]:
    """Open invitations to administer a tenant, as (tenant id, name or address). For operators."""
    waiting = Invitation.objects.filter(project=None, state=Invitation.State.OPEN, expires__gt=now).order_by(
        "created", "id"
    )
    return list(waiting.values_list("tenant_id", "invitee"))


def leads_of(project_id: UUID) -> int:
    """The number of leads of the project with an open account."""
    leads = Membership.objects.filter(project_id=project_id, role=Role.LEAD)
    return leads.filter(user__is_active=True).count()


def project_shares(tenant: Tenant, shown: Iterable[Project]) -> list[ClassShares]:
    """The quotas of the tenant's projects by class, with rows for the projects in `shown`."""
    quotas = list(Quota.objects.filter(tenant_id=tenant.id))
    by_owner = {(quota.project_id, quota.gpu_class_id): quota for quota in quotas}
    owners = tuple(shown)
    return [
        ClassShares(
            gpu_class=gpu_class,
            total=_share(tenant, by_owner.get((None, gpu_class.slug))),
            rows=tuple(_share(project, by_owner.get((project.id, gpu_class.slug))) for project in owners),
            split_units=sum(
                quota.guaranteed_units
                for quota in quotas
                if quota.project_id is not None and quota.gpu_class_id == gpu_class.slug
            ),
        )
        for gpu_class in GpuClass.objects.all()
    ]


def tenant_shares() -> list[ClassShares]:
    """The quotas of all tenants by class, for operators."""
    quotas = list(Quota.objects.filter(project=None))
    by_owner = {(quota.tenant_id, quota.gpu_class_id): quota for quota in quotas}
    tenants = tenants_all()
    return [
        ClassShares(
            gpu_class=gpu_class,
            total=None,
            rows=tuple(_share(tenant, by_owner.get((tenant.id, gpu_class.slug))) for tenant in tenants),
            split_units=sum(
                quota.guaranteed_units for quota in quotas if quota.gpu_class_id == gpu_class.slug
            ),
        )
        for gpu_class in GpuClass.objects.all()
    ]


def people_in(members: QuerySet[Membership]) -> QuerySet[Membership]:
    """The memberships of people with open accounts. A service account is a program."""
    return members.filter(user__is_active=True, user__service_account=None)


def people_count(members: QuerySet[Membership]) -> int:
    """The number of people among these memberships, as every page and REST count them."""
    return people_in(members).values("user").distinct().count()


def access_to(project: Project) -> QuerySet[Membership]:
    """The memberships that give access to a project: its own, and those of the tenant's admins."""
    return Membership.objects.filter(Q(project=project) | Q(project=None), tenant_id=project.tenant_id)


def tenant_counts(tenant_id: UUID, now: datetime) -> TenantCounts:
    """Counts of a tenant's people, projects and tokens. For operators."""
    members = Membership.objects.filter(tenant_id=tenant_id)
    tokens = ApiToken.objects.filter(tenant_id=tenant_id, revoked=None, expires__gt=now)
    return TenantCounts(
        people=people_count(members),
        projects=Project.objects.filter(tenant_id=tenant_id).count(),
        tokens=tokens.count(),
    )


def tenants_all() -> list[Tenant]:
    """All tenants by name, for operators."""
    return list(Tenant.objects.order_by("name", "id"))


def tiers_all() -> QuerySet[Tier]:
    """All tiers, the highest priority first."""
    return Tier.objects.all()


def tokens_of(tenant_id: UUID, user_id: int | None) -> list[ApiToken]:
    """The tenant's tokens, newest first; only those of one person unless `user_id` is None."""
    tokens = ApiToken.objects.filter(tenant_id=tenant_id).select_related("user", "project")
    if user_id is not None:
        tokens = tokens.filter(user_id=user_id)
    return list(tokens.order_by("-created", "id"))


def _share(owner: Project | Tenant, quota: Quota | None) -> ShareRow:
    if quota is None:
        return ShareRow(owner, 0, None)
    return ShareRow(
        owner,
        quota.guaranteed_units,
        quota.borrow_limit_units,
        quota.lend_limit_units,
        quota,
    )


def outbox_waiting() -> tuple[int, datetime | None]:
    """How many messages were not sent yet, and when the oldest was written. For operators."""
    row = OutboxMessage.objects.filter(sent=None).aggregate(count=Count("id"), oldest=Min("created"))
    return row["count"], row["oldest"]


def webhooks_lag(now: datetime) -> float:
    """How many seconds the first due message waits for a sender. For operators.

    Messages behind an earlier one of their booking, and of webhooks that are being sent to, do not
    count: slow receivers are not late senders.
    """
    with connection.cursor() as cursor:
        cursor.execute(_WEBHOOKS_DUE, {"now": now})
        (due,) = cursor.fetchone()
    return 0.0 if due is None else float((now - due).total_seconds())


_WEBHOOKS_DUE = """
SELECT min(d.due) FROM tenants_webhookdelivery d
WHERE d.state = 'pending' AND d.due <= %(now)s AND NOT EXISTS (
  SELECT FROM tenants_webhookdelivery b
  WHERE b.webhook_id = d.webhook_id AND b.state = 'pending'
    AND (b.claimed_until > %(now)s OR (b.subject = d.subject AND b.id < d.id)))
"""


def mails_counted() -> dict[str, int]:
    """Mails that are waiting, sent and dropped. For operators."""
    return Mail.objects.aggregate(
        waiting=Count("id", filter=Q(sent=None, dropped="")),
        sent=Count("id", filter=Q(sent__isnull=False)),
        dropped=Count("id", filter=~Q(dropped="")),
    )


def events_newest(tenant_id: UUID) -> int:
    """Returns the position of the tenant's last event; 0 without one."""
    rows = PublishedEvent.objects.filter(tenant_id=tenant_id).order_by("-id")
    return rows.values_list("id", flat=True).first() or 0


def event_data(event: PublishedEvent) -> dict[str, Any]:
    """Returns the event as programs get it: in lists, in streams and as the body of webhooks."""
    return {
        "id": f"evt_{event.key.hex}",
        "type": event.type,
        "timestamp": event.at.isoformat(),
        "data": event.data,
    }


# An entry whose page is one of these is in the inbox of an operator, not in that of a tenant.
OPERATORS_PAGES = "/ops/"
UNREAD_SHOWN = 99


def notifications_of(tenant_id: UUID, user_id: int) -> QuerySet[Notification]:
    """A person's inbox in the tenant."""
    mine = Notification.objects.filter(tenant_id=tenant_id, user_id=user_id)
    return mine.exclude(path__startswith=OPERATORS_PAGES)


def operator_notifications(user_id: int) -> QuerySet[Notification]:
    """What waits for an operator in all tenants; in `operator_tx`."""
    return Notification.objects.filter(user_id=user_id, path__startswith=OPERATORS_PAGES)


def operator_unread_count(user_id: int) -> int:
    """How many entries an operator has not read; counts to one more than is shown."""
    unread = operator_notifications(user_id).filter(read=None)
    return unread.order_by()[: UNREAD_SHOWN + 1].count()


def unread_count(tenant_id: UUID, user_id: int) -> int:
    """How many entries are unread; counts to one more than is shown."""
    unread = notifications_of(tenant_id, user_id).filter(read=None)
    return unread.order_by()[: UNREAD_SHOWN + 1].count()


def notification_settings_of(tenant_id: UUID, user_id: int) -> NotificationSettings:
    """What a person chose in the tenant; the defaults if nothing is stored."""
    found = NotificationSettings.objects.filter(tenant_id=tenant_id, user_id=user_id).first()
    return found or NotificationSettings(tenant_id=tenant_id, user_id=user_id)
