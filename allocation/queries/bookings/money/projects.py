"""A project at one instant: its budget over time, quota use, bookings and members."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

from django.db import connection
from django.db.models import Q, QuerySet

from allocation.models import Booking
from allocation.queries.bookings.booking_list import PhaseCounts, phases_of
from allocation.queries.fleet.catalogue import ask_units
from allocation.queries.fleet.in_use import in_use
from allocation.rules.ask import AskDocument, classes_asked
from allocation.rules.forecast import SpendRange, spend_range
from allocation.rules.states import OPEN, State
from billing.queries import BudgetFigures
from tenants.lab_queries import quotas_now, times_of
from tenants.models import GpuClass, Membership, Project, Quota, QuotaWindow, Role
from tenants.queries import access_to, people_in

FORECAST_DAYS = 7
RATE_WINDOW = 14
# Two-sided 80 % of a normal distribution.
Z_80 = 1.2816
ZERO = Decimal(0)


@dataclass(frozen=True, slots=True)
class Forecast:
    """The spend at the end of the period with its 80 % range.

    `tests` is the number of back-tests behind the range, zero while the history is below three
    weeks and the mean of the last days is used.

    `runs_out` is the first day without money, None if the money lasts.
    """

    spend: Decimal
    low: Decimal
    high: Decimal
    per_day: Decimal
    runs_out: date | None
    tests: int = 0


# What all other tenants use above their guarantees. A slice counts by its memory, because its
# profile is not visible to other tenants.
_OTHERS_ABOVE = """
SELECT g.gpu_class_id,
       greatest(0, sum(coalesce(b.share * 56, b.size * 7000)) - coalesce(max(l.guaranteed), 0))
FROM portal_taken(%s, %s) b JOIN allocation_gpu g ON g.id = b.gpu_id
  LEFT JOIN portal_lenders() l ON l.gpu_class = g.gpu_class_id
WHERE NOT b.mine AND NOT b.planned GROUP BY g.gpu_class_id
"""


@dataclass(frozen=True, slots=True)
class BorrowedUnits:
    """Units by class that the project borrows, that others use above their guarantees, and the
    limits of the project at some times that apply now."""

    borrowed: Mapping[str, int]
    others_above: Mapping[str, int]
    dated: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """Units of a class in use now. `limit` is the effective limit, None for no limit.

    `borrowed` is the use above guarantees; `lent` is the tenant's idle guarantee that others use.
    `of_tenant`: the limit is the tenant's, because the project has none of its own.
    """

    gpu_class: str
    label: str
    used: int
    guaranteed: int
    limit: int | None
    of_tenant: bool
    tenant_used: int
    borrowed: int
    lent: int
    is_dated: bool = False
    """A limit at some times applies now, instead of the usual one."""
    noun: str = "GPU"
    """What a unit of the class is."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of the project, or an admin of its tenant."""

    name: str
    role: str


def forecast_of(*, effect: BudgetFigures, recent: Sequence[Decimal], today: date) -> Forecast | None:
    """The spend if it continues as in `recent` (full days, oldest first), at least the amount
    already held.

    None for fewer than seven days. From three weeks on by weekday and trend, with the range that 80
    of 100 back-tests keep. Before that by the mean of two weeks; the range then contains the sum of
    that many independent days with the same variance in 80 of 100 cases.
    """
    if len(recent) < FORECAST_DAYS:
        return None
    remaining = (effect.ends - today).days
    tested = spend_range([float(day) for day in recent], today.weekday(), remaining)
    if tested is not None:
        return _tested_forecast(effect, tested, today)
    recent = recent[-RATE_WINDOW:]
    spent = effect.spent
    mean = sum(recent, ZERO) / len(recent)
    spread = (sum(((day - mean) ** 2 for day in recent), ZERO) / (len(recent) - 1)).sqrt()
    sure = spent + effect.held
    width = spread * Decimal(str(Z_80 * math.sqrt(remaining)))
    middle = spent + mean * remaining
    low = max(sure, middle - width)
    middle = max(sure, middle)
    high = max(middle, spent + mean * remaining + width)
    days = max(remaining, 1)
    return Forecast(
        spend=middle,
        low=low,
        high=high,
        per_day=mean,
        runs_out=runs_out(effect, middle, today, days),
    )


def _tested_forecast(effect: BudgetFigures, coming: SpendRange, today: date) -> Forecast:
    """The forecast of a range that was back-tested, at least the amount already held."""
    remaining = max((effect.ends - today).days, 1)
    sure = effect.spent + effect.held
    low, middle, high = (
        max(sure, effect.spent + Decimal(str(round(each, 2))))
        for each in (coming.low, coming.middle, coming.high)
    )
    return Forecast(
        spend=middle,
        low=low,
        high=high,
        per_day=Decimal(str(round(coming.middle / remaining, 2))),
        runs_out=runs_out(effect, middle, today, remaining),
        tests=coming.tests,
    )


def quota_of(*, project: Project, now: datetime, with_planned: bool = False) -> list[QuotaUse]:
    """The use of each class that the project may use or uses at `now`, in the catalogue's order.

    At a later instant, planned starts count as used `with_planned`, as they do for decisions.
    """
    every = Quota.objects.filter(Q(project=project) | Q(project=None), tenant_id=project.tenant_id)
    rows = quotas_now(every, now)
    own = {row.gpu_class_id: row for row in rows if row.project_id}
    tenant = {row.gpu_class_id: row for row in rows if not row.project_id}
    used: dict[str, int] = defaultdict(int)
    used_by_tenant: dict[str, int] = defaultdict(int)
    borrowed: dict[str, int] = defaultdict(int)
    for row in in_use(now, project.tenant_id):
        used_by_tenant[row.gpu_class] += row.units
        if row.project_id == project.id:
            used[row.gpu_class] += row.units
            borrowed[row.gpu_class] += row.borrowed
    for owner, name, units in _planned_units(project.tenant_id, now) if with_planned else ():
        used_by_tenant[name] += units
        used[name] += units if owner == project.id else 0
    dated = limits_by_time(project.tenant_id, now)
    mine = {name: units for (owner, name), units in dated.items() if owner == project.id}
    flow = BorrowedUnits(borrowed, others_above(now), mine)
    return [
        _quota_line(gpu_class, own, tenant, used[gpu_class.slug], used_by_tenant[gpu_class.slug], flow)
        for gpu_class in GpuClass.objects.all()
        if gpu_class.slug in own or gpu_class.slug in tenant or used[gpu_class.slug]
    ]


def limits_by_time(tenant_id: UUID, at: datetime) -> dict[tuple[UUID, str], int]:
    """The limits at some times that apply at an instant, by owner and class; none of persons."""
    found: dict[tuple[UUID, str], int] = {}
    for row in QuotaWindow.objects.filter(tenant_id=tenant_id, user=None):
        if any(times_of(row).spans(at, at + timedelta(seconds=1))):
            key = (row.project_id or row.lab_id or row.tenant_id, row.gpu_class_id)
            found[key] = min(row.limit_units, found.get(key, row.limit_units))
    return found


def _planned_units(tenant_id: UUID, at: datetime) -> Iterator[tuple[UUID, str, int]]:
    """(Project, class, units) of the tenant's planned starts at an instant."""
    known: dict[str, dict[str, int]] = {}
    rows = Booking.objects.filter(
        tenant_id=tenant_id,
        state__in=(State.QUEUED, State.PAUSING, State.PAUSED),
        planned_starts__lte=at,
        planned_ends__gt=at,
    ).exclude(planned_places=[])
    for owner, gpu_class, ask in rows.values_list("project_id", "planned_class", "ask"):
        groups = ask.get("groups")
        key = repr((ask["count"], ask["classes"], ask["profile"], ask.get("share"), groups))
        if key not in known:
            known[key] = ask_units(AskDocument.from_json(ask))
        for name in classes_asked(ask) if groups else [gpu_class]:
            yield owner, name, known[key].get(name, 0)


def open_counts(*, project: Project) -> PhaseCounts:
    """The open bookings of a project."""
    return phases_of(Booking.objects.filter(project=project, state__in=OPEN))


def open_bookings(*, project: Project, limit: int = 12) -> list[Booking]:
    """The open bookings of a project, earliest first."""
    rows = (
        Booking.objects.filter(project=project, state__in=OPEN)
        .select_related("owner", "tier")
        .order_by("planned_starts", "starts", "not_before", "number")
    )
    return list(rows[:limit])


def members_of(*, project: Project) -> list[Member]:
    """The people with access to the project, leads first, then the admins of its tenant."""
    return _members(people_in(access_to(project)))


def programs_of(*, project: Project) -> list[Member]:
    """The project's open service accounts."""
    rows = access_to(project).filter(user__is_active=True)
    return _members(rows.filter(user__service_account__closed=None, user__service_account__isnull=False))


def _members(rows: QuerySet[Membership]) -> list[Member]:
    """Each account once, with its first role in this order."""
    order = [Role.LEAD, Role.RESEARCHER, Role.VIEWER, Role.TENANT_ADMIN]
    found: dict[int, tuple[int, str, Role]] = {}
    for row in rows.select_related("user"):
        role = Role(row.role)
        member = (order.index(role), row.user.display_name, role)
        found[row.user_id] = min(member, found.get(row.user_id, member))
    return [Member(name, role.label) for _, name, role in sorted(found.values())]


def runs_out(effect: BudgetFigures, spend: Decimal, today: date, days: int) -> date | None:
    """The day on which a constant pace from today's spend to `spend` exceeds the amount."""
    if spend <= effect.amount:
        return None
    if effect.spent >= effect.amount:
        return today
    share = (effect.amount - effect.spent) / (spend - effect.spent)
    return today + timedelta(days=math.ceil(share * days))


def _quota_line(
    gpu_class: GpuClass,
    own: Mapping[str, Quota],
    tenant: Mapping[str, Quota],
    used: int,
    used_by_tenant: int,
    flow: BorrowedUnits,
) -> QuotaUse:
    dated = flow.dated.get(gpu_class.slug)
    mine, above = own.get(gpu_class.slug), tenant.get(gpu_class.slug)
    own_limit = mine.limit_units if mine and dated is None else dated
    return QuotaUse(
        gpu_class=gpu_class.slug,
        label=gpu_class.label,
        noun=gpu_class.noun,
        used=used,
        guaranteed=mine.guaranteed_units if mine else 0,
        limit=own_limit if own_limit is not None else above.limit_units if above else None,
        of_tenant=own_limit is None,
        is_dated=dated is not None,
        tenant_used=used_by_tenant,
        borrowed=min(used, flow.borrowed.get(gpu_class.slug, 0)),
        lent=_lent(above, used_by_tenant, flow.others_above.get(gpu_class.slug, 0)),
    )


def _lent(tenant: Quota | None, used: int, others_above: int) -> int:
    """The idle guarantee that others use: at most their use above their own guarantees."""
    if tenant is None:
        return 0
    idle = max(0, tenant.guaranteed_units - used)
    lends = tenant.lend_limit_units
    return min(idle if lends is None else min(idle, lends), others_above)


def others_above(now: datetime) -> dict[str, int]:
    """By class, the units that other organisations use above their guarantees."""
    with connection.cursor() as cursor:
        cursor.execute(_OTHERS_ABOVE, [now, now + timedelta(seconds=1)])
        return {gpu_class: int(units) for gpu_class, units in cursor.fetchall()}
