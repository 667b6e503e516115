"""What of an owner's bookings does not fit a limit next to those that go first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Q

from allocation.models import Allocation, Booking
from allocation.queries.fleet.catalogue import ask_units
from allocation.rules.ask import AskDocument
from allocation.rules.states import State
from allocation.services.snapshot.limits_in_time import HORIZON_DAYS, CapRule, caps_at
from allocation.services.snapshot.override_rows import overrides_read
from allocation.services.snapshot.quota_rows import tiers_of, used_read
from solver import Cap, Limit, Override, Quota, Snapshot, Use, Used
from tenants.lab_queries import times_of
from tenants.models import PersonQuota, Project, QuotaWindow, Tier
from tenants.rules.limit_times import FOREVER
from tenants.services import gpus_text
from tenants.services.limit_changes import LimitOf, Most

# Without it the idle guarantees of others would limit the owner, too.
_BOUNDLESS = 1 << 50
_OWNER = "owner"
_PLANNED = (State.QUEUED, State.PAUSED, State.SCHEDULED)


@dataclass(frozen=True, slots=True)
class Booked:
    """What a booking has of a class in [starts, ends), with its tier; `is_planned`: it has not begun, or is
    paused. `node` names whose use it is: one limit of each person, or one of all."""

    booking: Booking
    units: int
    starts: datetime
    ends: datetime
    is_planned: bool
    node: str = _OWNER

    @property
    def gpus(self) -> str:
        """What it has, in GPUs."""
        return gpus_text(self.units)

    @property
    def rank(self) -> tuple[bool, bool, bool, int, datetime, UUID]:
        """The order in which bookings have the limit: who runs, who is never paused, the higher tier, who
        began earlier. Who has notice leaves first."""
        tier = self.booking.tier
        is_leaving = self.booking.state == State.PAUSING
        is_pausable = tier.pausable and not self.is_planned
        return self.is_planned, is_leaving, is_pausable, -tier.priority, self.starts, self.booking.id

    @property
    def rank_inside(self) -> tuple[bool, int, bool, datetime, UUID]:
        """The order in which bookings have a guarantee: who runs, the higher tier, who is never paused, who
        began earlier."""
        tier = self.booking.tier
        return self.is_planned, -tier.priority, tier.pausable, self.starts, self.booking.id


def booked_of(of: LimitOf, now: datetime) -> list[Booked]:
    """Returns what the bookings that a limit counts run on, or are planned on, in their order."""
    rows = Allocation.objects.filter(
        _scope(of, "booking__"), state__in=Allocation.LIVE, abandoned=False, model__gpu_class=of.gpu_class
    )
    held: dict[UUID, tuple[int, datetime, datetime, bool]] = {}
    for booking, units, period, state in rows.values_list("booking_id", "units", "period", "state"):
        is_planned = state == Allocation.State.PLANNED and period.lower > now
        known = held.get(booking, (0, period.lower, period.upper, is_planned))
        span = (min(known[1], period.lower), max(known[2], period.upper))
        held[booking] = (known[0] + units, *span, known[3] and is_planned)
    waits = Q(state__in=_PLANNED, planned_starts__isnull=False) & (
        Q(planned_class=of.gpu_class) | Q(ask__groups__contains=[{"gpu_class": of.gpu_class}])
    )
    found = []
    bookings = Booking.objects.filter(_scope(of), Q(id__in=held) | waits).select_related("tier", "owner")
    for row in bookings:
        units, starts, ends, is_planned = held.get(row.id) or (*_planned(row, of.gpu_class), True)
        if units and ends > now:
            found.append(Booked(row, units, starts, ends, is_planned))
    if of.persons:
        found = [replace(each, node=str(each.booking.owner_id)) for each in found]
    return sorted(found, key=lambda each: each.rank)


def above(of: LimitOf, most: Most, booked: Iterable[Booked], now: datetime) -> list[Booked]:
    """Returns those of the bookings that do not fit a limit, or a cap of GPU-hours, next to those before
    them; the solver's own quota counts. Of a limit at some times these times count."""
    rows, spans = list(booked), spans_of(of, now)
    nodes = sorted({each.node for each in rows})
    quota = Quota(_site(of, most, nodes, now), {of.gpu_class: _BOUNDLESS})
    found = []
    for each in rows:
        use = Use((each.node, str(each.booking.id)), each.booking.tier_id, of.gpu_class, each.units)
        windows = [
            (int(max(each.starts, now, since).timestamp()), int(min(each.ends, until).timestamp()))
            for since, until in spans
        ]
        windows = [window for window in windows if window[0] < window[1]]
        if any(quota.over(use, window) is not None for window in windows):
            found.append(each)
            continue
        for window in windows:
            quota.add(use, window)
    return found


def above_guarantee(
    of: LimitOf, before: Most, after: Most, booked: Iterable[Booked], now: datetime
) -> list[Booked]:
    """Returns those of the bookings that were inside a guarantee and do not fit the lower one."""
    rows = [each for each in booked if each.booking.tier.counts_against_guarantee]
    rows.sort(key=lambda each: each.rank_inside)
    borrowed = {each.booking.id for each in above(of, before, rows, now)}
    return [each for each in above(of, after, rows, now) if each.booking.id not in borrowed]


def spans_of(of: LimitOf, now: datetime) -> list[tuple[datetime, datetime]]:
    """Returns the times to come at which a limit holds; none if the row that says them is gone."""
    if of.since is not None and of.until is not None:
        return [(of.since, of.until)] if of.until > now else []
    if of.source is None:
        return [(now, FOREVER)]
    row = QuotaWindow.objects.filter(id=of.source).first()
    return [] if row is None else list(times_of(row).spans(now, now + timedelta(days=HORIZON_DAYS)))


def is_on(of: LimitOf, now: datetime) -> bool:
    """Returns whether a limit holds now."""
    return any(since <= now < until for since, until in spans_of(of, now))


def scope_name(of: LimitOf, booking: Booking) -> str:
    """Returns the name of the limit's owner in the solver's quota tree."""
    scope = str(of.project_id or of.lab_id or of.tenant_id)
    return f"{scope} {booking.owner_id}" if of.persons else scope


def _site(of: LimitOf, most: Most, nodes: Sequence[str], now: datetime) -> Snapshot:
    limits: tuple[Limit, ...] = ()
    if most.units is not None:
        limits = tuple(Limit(node, None, of.gpu_class, most.units, 0, 0) for node in nodes)
    used, caps = _caps(of, most, now)
    return Snapshot(
        int(now.timestamp()),
        *((), (), (), (), ()),
        limits,
        tiers_of(Tier.objects.order_by("slug")),
        caps,
        used,
        overrides=_exceptions(of, nodes, now),
    )


def _exceptions(of: LimitOf, nodes: Sequence[str], now: datetime) -> tuple[Override, ...]:
    """Returns the granted exceptions from the limit, under the names of the nodes; none of a guarantee."""
    if of.guarantee:
        return ()
    scope = str(of.project_id or of.lab_id or of.tenant_id)
    names = {f"{scope} {node}": node for node in nodes} if of.persons else {scope: _OWNER}
    rows = (row for row in overrides_read(now) if row.gpu_class == of.gpu_class and row.owner in names)
    return tuple(replace(row, owner=names[row.owner]) for row in rows)


def _caps(of: LimitOf, most: Most, now: datetime) -> tuple[tuple[Used, ...], tuple[Cap, ...]]:
    if most.gpu_hours is None:
        return (), ()
    projects = _projects_of(of)
    used = tuple(
        replace(row, tenant=_OWNER, project="")
        for row in used_read(now)
        if row.gpu_class == of.gpu_class and row.project in projects
    )
    rule = CapRule(_OWNER, of.gpu_class, most.gpu_hours, most.days, most.carries)
    return used, caps_at([rule], used, now)


def _projects_of(of: LimitOf) -> set[str]:
    rows = Project.objects.filter(tenant=of.tenant_id)
    if of.project_id is not None:
        rows = rows.filter(id=of.project_id)
    if of.lab_id is not None:
        rows = rows.filter(lab=of.lab_id)
    return {str(each) for each in rows.values_list("id", flat=True)}


def _planned(row: Booking, gpu_class: str) -> tuple[int, datetime, datetime]:
    units = ask_units(AskDocument.from_json(row.ask)).get(gpu_class, 0)
    if row.planned_starts is None or row.planned_ends is None:
        return 0, row.submitted, row.submitted
    return units, row.planned_starts, row.planned_ends


def _scope(of: LimitOf, at: str = "") -> Q:
    """Returns the bookings that the limit counts, which are not on rented machines; `at` leads to them."""
    named: dict[str, Any] = {f"{at}tenant": of.tenant_id, f"{at}pool": ""}
    if of.project_id is not None:
        named[f"{at}project"] = of.project_id
    if of.lab_id is not None:
        named[f"{at}project__lab"] = of.lab_id
    if of.person_id is not None:
        named[f"{at}owner"] = of.person_id
    found = Q(**named)
    if of.persons and of.person_id is None:
        own = PersonQuota.objects.filter(
            tenant=of.tenant_id, project=of.project_id, gpu_class=of.gpu_class, user__isnull=False
        )
        found &= ~Q(**{f"{at}owner__in": own.values("user")})
    return found


def units_now(booked: Iterable[Booked]) -> int:
    """Returns the units that run."""
    return sum(each.units for each in booked if not each.is_planned)
