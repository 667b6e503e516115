"""Requests for approval as their approvers and askers see them."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID

from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Sum

from allocation.models import Allocation, Approval, ApprovalAct, Booking
from allocation.points import deputies_of, stood_in_by
from allocation.queries.bookings.money.held_use import NO_HOURS, HeldHours, people_use
from allocation.queries.bookings.money.spending import PAID
from allocation.rules.states import State
from tenants.access import Actor, acting_members
from tenants.models import Role

HISTORY = timedelta(days=90)
_RUNS = Allocation.objects.filter(
    booking=OuterRef("pk"), state__in=("active", "releasing", "ended"), abandoned=False
)


@dataclass(frozen=True, slots=True)
class PersonHistory:
    """What a person did in a project in the last 90 days: how many bookings of these days ran, what
    all of them were charged with corrections, and the GPU time that they had."""

    bookings: int = 0
    charged: Decimal = Decimal(0)
    no_shows: int = 0
    declined: int = 0
    use: HeldHours = NO_HOURS


NO_HISTORY = PersonHistory()


def approvals_visible(actor: Actor, now: datetime) -> QuerySet[Approval]:
    """The requests that the actor made, or that they may decide, also as a stand-in."""
    # With all nine tables in one statement PostgreSQL takes longer to plan it than to answer it.
    rows = Approval.objects.filter(tenant_id=actor.tenant_id).select_related("booking", "project", "asker")
    rows = rows.prefetch_related("booking__project", "booking__tier", "decided_by", "change")
    if actor.is_tenant_admin:
        return rows
    if actor.only_project is not None:
        rows = rows.filter(project=actor.only_project)
    led = [project for project, role in actor.roles.items() if role == Role.LEAD]
    return rows.filter(Q(project__in=led) | Q(asker=actor.user_id) | _stood_in(actor, now))


def approvals_to_decide(actor: Actor, now: datetime) -> QuerySet[Approval]:
    """The open requests that the actor may decide now, the oldest first."""
    rows = approvals_visible(actor, now).filter(state=Approval.State.OPEN)
    rows = rows.exclude(asker=actor.user_id)
    rows = rows.exclude(acts__person=actor.user_id).exclude(acts__principal=actor.user_id)
    if not actor.is_tenant_admin:
        led = [project for project, role in actor.roles.items() if role == Role.LEAD]
        rows = rows.filter(Q(project__in=led) & ~_OF_ADMINS | _stood_in(actor, now, to_decide=True))
    return rows.order_by("asked", "booking__number")


_OF_ADMINS = Q(step=1, steps__0__role="admin") | Q(step=2, steps__1__role="admin")


def _stood_in(actor: Actor, now: datetime, *, to_decide: bool = False) -> Q:
    """The requests that an approver decides that the actor stands in for."""
    found = Q(id__in=[])
    for deputy in stood_in_by(actor.user_id, actor.tenant_id, now):
        approver, project = deputy.approver, deputy.project
        roles = acting_members(actor.tenant_id).filter(user=approver)
        led = roles.filter(role=Role.LEAD).values("project")
        allowed = Q(project__in=led)
        if to_decide:
            allowed &= ~_OF_ADMINS
        if roles.filter(role=Role.TENANT_ADMIN).exists():
            allowed = Q(tenant=actor.tenant_id)
        if project is not None:
            allowed &= Q(project=project)
        if to_decide:
            acts = ApprovalAct.objects.filter(Q(person=approver) | Q(principal=approver))
            allowed &= ~Q(id__in=acts.values("approval"))
        found |= allowed & ~Q(asker=approver)
    return found


def approvers_of(approval: Approval, now: datetime) -> list[int]:
    """The open accounts that may decide the present step, and their stand-ins."""
    roles = Q(role=Role.TENANT_ADMIN)
    if approval.present_step.role == "lead":
        roles |= Q(role=Role.LEAD, project=approval.project_id)
    people = acting_members(approval.tenant_id).filter(roles)
    done: set[int | None] = {approval.asker_id}
    for act in approval.acts.all():
        done |= {act.person_id, act.principal_id}
    able = set(people.values_list("user_id", flat=True)) - done
    named = {
        each.person
        for each in deputies_of(approval.tenant_id, now)
        if each.is_for(approval.project_id) and each.approver in able
    }
    if named:
        acting = acting_members(approval.tenant_id).filter(user__in=named)
        able |= set(acting.values_list("user_id", flat=True)) - done
    return sorted(able)


def dates_of_series(approvals: Iterable[Approval]) -> dict[UUID, list[Approval]]:
    """All requests that are decided together with each of these, by its id; itself included."""
    of: dict[tuple[UUID | None, datetime], UUID] = {
        (each.series_id, each.asked): each.id for each in approvals if each.series_id
    }
    found: dict[UUID, list[Approval]] = defaultdict(list)
    rows = Approval.objects.filter(series__in={series for series, _ in of})
    for row in rows.select_related("booking").order_by("booking__number"):
        first = of.get((row.series_id, row.asked))
        if first is not None:
            found[first].append(row)
    return found


def histories_of(approvals: Sequence[Approval], now: datetime) -> dict[tuple[UUID, int], PersonHistory]:
    """The history of each asker in the project, without what waits for an approval."""
    people = {each.asker_id for each in approvals}
    projects = {each.project_id for each in approvals}
    rows = (
        Booking.objects.filter(owner__in=people, project__in=projects, submitted__gt=now - HISTORY)
        .exclude(state=State.AWAITING_APPROVAL)
        .order_by()
        .values("project_id", "owner_id")
        .annotate(
            bookings=Count("id", filter=Exists(_RUNS)),
            charged=Sum(PAID),
            no_shows=Count("id", filter=Q(outcome="no_show")),
            declined=Count("id", filter=Q(state=State.REJECTED)),
        )
    )
    used = people_use(projects, people, now - HISTORY, now)
    return {
        (row["project_id"], row["owner_id"]): PersonHistory(
            row["bookings"],
            row["charged"] or Decimal(0),
            row["no_shows"],
            row["declined"],
            used.get((row["project_id"], row["owner_id"]), NO_HOURS),
        )
        for row in rows
    }
