"""Access of operators to a tenant's data: opened with a reason, read only, audited, and ended.

A page is read in a transaction that the database keeps from writing. Each page that is read is an
entry in the tenant's log.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection, transaction

from tenants.access import Actor, actor_of
from tenants.audit import audit_record, platform_record
from tenants.failures import each_apart
from tenants.models import Membership, OperatorAccess, Tenant, User
from tenants.platform.errors import Refused, invalid, missing, text_within
from tenants.platform.wall import tenant_tx
from tenants.services.members.messages import PeopleMessage, people_message_put
from tenants.words import refusal_text

OPENED = "access.opened"
LONGEST = timedelta(hours=4)


@dataclass(frozen=True, slots=True)
class AccessTerms:
    """What an operator asks for. `tenant` is a slug, `person` a sign-in name or empty."""

    tenant: str
    reason: str
    length: timedelta
    person: str = ""


@dataclass(frozen=True, slots=True)
class AccessView:
    """An open access, and the actor whose pages it shows."""

    id: UUID
    actor: Actor
    person: str
    reason: str
    until: datetime
    operator_id: int


@transaction.atomic
def access_begin(*, operator: User, terms: AccessTerms, now: datetime) -> OperatorAccess:
    """Opens the access and notifies the tenant's admins. One that is open ends.

    Raises:
        Refused: `reason_needed`, `access_length`, `not_found` or `not_a_member`.
    """
    reason = text_within(" ".join(terms.reason.split()), 200, "reason")
    if not reason:
        raise invalid("reason_needed", refusal_text("access_reason"), "reason")
    if not timedelta(0) < terms.length <= LONGEST:
        raise invalid("access_length", refusal_text("access_length"), "for")
    tenant = Tenant.objects.filter(slug=terms.tenant, is_open=True).first()
    if tenant is None:
        raise missing("tenant", "tenant")
    person = _person(tenant, terms.person) if terms.person else None
    before = OperatorAccess.objects.select_for_update().filter(
        operator=operator, tenant=tenant, ended_at=None
    )
    for each in before:
        _end(each, operator, now)
    made = OperatorAccess.objects.create(
        tenant=tenant,
        operator=operator,
        person=person,
        reason=reason,
        opened=now,
        until=now + terms.length,
    )
    _record(made, operator, "access.opened", now)
    whose = f"sees what {person.username} sees" if person else "sees what its admins see"
    message = PeopleMessage(
        kind=OPENED,
        title=f"An operator reads the data of {tenant.name}",
        text=f"{operator.username} {whose} and can change nothing. Reason: {reason}",
        path="log?kind=operator_access",
        audience="admins",
        until=made.until,
    )
    people_message_put(tenant.id, message, now)
    return made


@transaction.atomic
def access_end(*, operator: User, access_id: UUID, now: datetime) -> OperatorAccess:
    """Ends an access. Raises Refused `not_found` or `access_over`."""
    rows = OperatorAccess.objects.select_for_update(of=("self",)).select_related("tenant")
    found = rows.filter(id=access_id).first()
    if found is None:
        raise missing("access")
    if not found.is_open(now):
        raise Refused("access_over", refusal_text("access_over"))
    _end(found, operator, now)
    return found


def access_sweep(now: datetime) -> int:
    """Writes the end of accesses whose time is over into the logs; returns how many."""
    over = OperatorAccess.objects.filter(ended_at=None, until__lte=now)

    @transaction.atomic
    def act(due: OperatorAccess) -> int:
        locked = over.select_for_update(of=("self",), skip_locked=True)
        found = locked.select_related("operator", "tenant").filter(id=due.id).first()
        if found is None:
            return 0
        _end(found, found.operator, found.until)
        return 1

    return each_apart("operators' access", over.order_by("until", "id"), act, now)


def access_view(user: User, tenant_slug: str, now: datetime) -> AccessView | None:
    """The open access of the session's operator to the tenant; None without one."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT * FROM portal_operator_access(%s, %s, %s)",
            [user.credential, tenant_slug, now],
        )
        rows = cursor.fetchall()
    if not rows:
        return None
    access_id, user_id, username, reason, until = rows[0][:5]
    actor = actor_of(user_id, tenant_slug, [row[5:] for row in rows])
    return AccessView(access_id, actor, username, reason, until, user.pk)


def access_page_read(view: AccessView, path: str, now: datetime) -> None:
    """Writes that a page was read into the tenant's log."""
    with tenant_tx(view.actor.tenant_id):
        audit_record(
            tenant_id=view.actor.tenant_id,
            actor_id=view.operator_id,
            action="access.page_read",
            target=("operator_access", view.id),
            now=now,
            detail={"after": {"page": path[:200], "as": view.person or "an admin"}},
        )


def _person(tenant: Tenant, username: str) -> User:
    user = User.objects.filter(username__iexact=username, is_active=True).first()
    if user is None or not Membership.objects.filter(tenant=tenant, user=user).exists():
        raise Refused(
            "not_a_member",
            refusal_text("not_a_member", tenant=tenant.name, username=username[:60]),
            "invalid",
            "person",
        )
    return user


def _end(access: OperatorAccess, operator: User, at: datetime) -> None:
    access.ended_at = at
    access.save(update_fields=["ended_at"])
    _record(access, operator, "access.ended", at)


def _record(access: OperatorAccess, operator: User, action: str, now: datetime) -> None:
    """Writes into the platform's log and the tenant's."""
    after = {
        "tenant": access.tenant.slug,
        "person": access.person.username if access.person else "",
        "reason": access.reason,
        "until": access.until.isoformat(),
        "ended": access.ended_at.isoformat() if access.ended_at else "",
    }
    target = ("operator_access", access.id)
    platform_record(operator.pk, action, target, now, after=after)
    audit_record(
        tenant_id=access.tenant_id,
        actor_id=operator.pk,
        action=action,
        target=target,
        now=now,
        detail={"after": after},
    )
