"""Overviews: what an admin, a lead or an operator looks at first. Figures come from the same functions
as on their own pages."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Count, Max, Min, Q, Sum

from allocation.features.insights.figures import Whose
from allocation.models import Booking, Decision, PolicyVersion
from allocation.points import Task, tasks_of
from allocation.queries.bookings.approvals import approvals_to_decide
from allocation.queries.bookings.money.forecasts import history_of_budget
from allocation.queries.fleet.fleet import NodeNow, fleet_now, totals_of
from allocation.queries.fleet.in_use import in_use
from allocation.rules.states import PHASES
from allocation.services.quotes.free_times import MIN_FREE_TIME, free_times_read
from allocation.web.home.projects import MoneyCard, money_card
from allocation.web.parts.times import length_words
from billing.models import Budget
from billing.queries import budget_figures_of
from billing.rules import UNITS_PER_GPU
from tenants.access import Actor
from tenants.models import GpuClass, Invitation, Quota, Role, Webhook
from tenants.web.log import LogRow, log_lines
from tenants.web.parts import counted

LINES, READ = 6, 60
MOST_BUDGETS = 4
# The log of bookings has pages of its own.
_BOOKINGS = ("booking", "series", "array", "approval", "session", "user", "token")
_DAY = timedelta(days=1)
LATE_MS = 5_000


def sees_overview(actor: Actor) -> bool:
    """Whether the reader decides for others: an admin, or a lead of a project."""
    return actor.is_tenant_admin or Role.LEAD in actor.roles.values()


def overview_of(actor: Actor, whose: Whose, now: datetime) -> dict[str, Any]:
    """What an admin or a lead looks at: what is in use now, the budget with its forecast, what waits for
    an answer, and what others changed since yesterday."""
    base = f"/t/{actor.tenant_slug}/"
    return {
        "in_use": _in_use(actor, whose, now),
        "budgets": _budgets(actor, whose, now),
        "tasks": [*_tasks(actor, base, now), *tasks_of(actor, now)],
        "changes": _together(log_lines(actor.tenant_id, now - _DAY, _BOOKINGS, READ, base)),
        "sees_log": actor.is_tenant_admin,
    }


def site_overview_of(now: datetime) -> dict[str, Any]:
    """What an operator looks at: the fleet, the queue, late decisions, and what needs an act."""
    nodes = fleet_now(tenant_id=None, now=now)
    free = free_times_read(is_operator=True, since=now, until=now + MIN_FREE_TIME, now=now)
    return {
        "fleet": totals_of(nodes, free.during(now, now + MIN_FREE_TIME)),
        "nodes": len(nodes),
        "queue": _queue(now),
        "late": _late(now),
        "tasks": [*_site_tasks(nodes), *tasks_of(None, now)],
        "changes": _together(log_lines(None, now - _DAY, ("session", "user", "token"), READ, "")),
        "sees_log": True,
    }


def _together(rows: list[LogRow]) -> list[tuple[LogRow, int]]:
    """The newest entries; of the same act of one person the newest, and how many more there are."""
    found: dict[tuple[str, tuple[str, str]], list[LogRow]] = {}
    for row in rows:
        found.setdefault((row.who, row.words), []).append(row)
    return [(same[0], len(same) - 1) for same in found.values()][:LINES]


@dataclass(frozen=True, slots=True)
class Now:
    """What the bookings of an organisation, or of projects, have at one instant, as quotas count it; and
    how many run and wait. `guaranteed` is that of the organisation, None for projects."""

    gpus: float
    guaranteed: float | None
    running: int
    waiting: int


def _in_use(actor: Actor, whose: Whose, now: datetime) -> Now:
    projects = whose.of.projects if whose.of else None
    hosts = {*GpuClass.objects.filter(kind=GpuClass.Kind.HOST).values_list("slug", flat=True)}
    rows = [
        row
        for row in in_use(now, actor.tenant_id)
        if row.gpu_class not in hosts and (projects is None or row.project_id in projects)
    ]
    bookings = Booking.objects.filter(tenant_id=actor.tenant_id)
    if projects is not None:
        bookings = bookings.filter(project__in=projects)
    quotas = Quota.objects.filter(tenant_id=actor.tenant_id, project=None).exclude(gpu_class__in=hosts)
    units = quotas.aggregate(sum=Sum("guaranteed_units"))["sum"] or 0
    return Now(
        round(sum(row.units for row in rows) / UNITS_PER_GPU, 3),
        round(units / UNITS_PER_GPU, 3) if projects is None else None,
        bookings.filter(state__in=PHASES["running"]).count(),
        bookings.filter(state__in=PHASES["waiting"]).count(),
    )


def _budgets(actor: Actor, whose: Whose, now: datetime) -> list[tuple[str, MoneyCard]]:
    """The budget of the organisation, or the first ones of the projects whose figures are shown, with
    the names of several."""
    today = now.astimezone(UTC).date()
    rows = Budget.objects.filter(tenant_id=actor.tenant_id, starts__lte=today, ends__gt=today)
    projects = whose.of.projects if whose.of else None
    if projects is None:
        rows = rows.filter(level="tenant")
    else:
        rows = rows.filter(level="project", project__in=projects)
    found: dict[UUID | None, Budget] = {}
    for row in rows.select_related("project").order_by("project__name", "starts", "id"):
        found.setdefault(row.project_id, row)
    shown = [(row, history_of_budget(row, now)) for row in [*found.values()][:MOST_BUDGETS]]
    is_one = projects is None or len(projects) == 1
    return [
        ("" if is_one or row.project is None else row.project.name, money_card(money, actor.tenant_slug))
        for row, money in shown
        if money is not None
    ]


def _tasks(actor: Actor, base: str, now: datetime) -> Iterator[Task]:
    """What waits for the reader, the most urgent first."""
    decide = approvals_to_decide(actor, now).count()
    if decide:
        yield Task(f"{counted(decide, 'booking')} for your approval", f"{base}approvals", "check")
    if not actor.is_tenant_admin:
        return
    today = now.astimezone(UTC).date()
    budgets = Budget.objects.filter(tenant_id=actor.tenant_id, starts__lte=today, ends__gt=today)
    figures = budget_figures_of(budgets.values_list("id", flat=True)).values()
    warned = sum(each.is_warning for each in figures)
    if warned:
        yield Task(f"{counted(warned, 'budget')} over the warning", f"{base}budgets", "coin")
    off = Webhook.objects.filter(tenant_id=actor.tenant_id).exclude(disabled_at=None)
    if count := off.exclude(disabled_reason__startswith="Switched off").count():
        yield Task(f"{counted(count, 'webhook')} switched off after failures", f"{base}settings", "link")
    invited = Invitation.objects.filter(tenant_id=actor.tenant_id, state="open", expires__gt=now).count()
    if invited:
        yield Task(f"{counted(invited, 'invitation')} not answered yet", f"{base}people", "people")


@dataclass(frozen=True, slots=True)
class Queue:
    """The bookings that wait, as all pages count them: how many, of how many organisations, and for
    how long the first one; and those that are paused."""

    count: int
    tenants: int
    longest: str
    paused: int

    @property
    def first(self) -> str:
        """How long the first one waits, and how many are paused."""
        return f"{self.longest} · {self.paused} paused" if self.paused else self.longest


def _queue(now: datetime) -> Queue:
    waits = Booking.objects.filter(state__in=PHASES["waiting"])
    row = waits.aggregate(
        count=Count("id"),
        tenants=Count("tenant", distinct=True),
        first=Min("not_before", filter=Q(not_before__lte=now)),
    )
    first = row["first"]
    longest = length_words(int((now - first).total_seconds())) if first else ""
    paused = Booking.objects.filter(state__in=PHASES["paused"]).count()
    return Queue(row["count"], row["tenants"], longest, paused)


@dataclass(frozen=True, slots=True)
class Late:
    """The decisions of a day whose solver took longer than people expect to wait, and all of them."""

    count: int
    all: int
    longest: str


def _late(now: datetime) -> Late:
    row = Decision.objects.filter(at__gte=now - _DAY).aggregate(
        all=Count("id"), late=Count("id", filter=Q(solve_ms__gt=LATE_MS)), longest=Max("solve_ms")
    )
    return Late(row["late"], row["all"], f"{(row['longest'] or 0) / 1000:.2f} s")


def _site_tasks(nodes: list[NodeNow]) -> Iterator[Task]:
    """What waits for an operator, the most urgent first."""
    lost = [node for node in nodes if node.is_unreachable or node.is_locked_out]
    if lost:
        words = f"{counted(len(lost), 'node')} not reachable: {', '.join(node.name for node in lost[:3])}"
        yield Task(words, "/ops/fleet", "warn")
    stopped = [node for node in nodes if not node.in_service and node not in lost]
    if stopped:
        yield Task(f"{counted(len(stopped), 'node')} without new work", "/ops/fleet", "wrench")
    drafts = PolicyVersion.objects.filter(state=PolicyVersion.State.DRAFT).count()
    if drafts:
        yield Task(f"{counted(drafts, 'draft')} of the policy", "/ops/policy", "shield")
