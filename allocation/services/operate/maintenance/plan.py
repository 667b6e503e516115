"""Planned maintenance: created, ended early, and previewed with the bookings that it moves."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import uuid4
from zoneinfo import ZoneInfo

from django.db.models import F, Q, QuerySet

from allocation.errors import AskError
from allocation.models import (
    Allocation,
    Booking,
    Gpu,
    Maintenance,
    Node,
    PolicyVersion,
    Rack,
)
from allocation.queries.fleet.maintenance import in_scope
from allocation.rules.ask.when.recurrence_words import recurrence_words
from allocation.rules.recurrence import Recurrence, dates_of, dates_overlap
from allocation.rules.states import RUNNING, State
from allocation.services.gc_paused import gc_paused
from allocation.services.nodes.fleet import operator_event
from allocation.services.nodes.reach import nodes_check
from allocation.services.policy.policies import policy_of
from allocation.services.record.site_events import maintenance_event
from allocation.services.runs.end import STARTED
from allocation.services.runs.interrupt import Interruption, drain_notify
from allocation.services.snapshot.hardware import maintenance_rows
from allocation.services.snapshot.snapshot import instant, requests_of, seconds, snapshot_read
from allocation.words.events import event_text
from allocation.words.fleet import FleetText, fleet_text
from allocation.words.refusals import coded_text, refusal_text
from solver import Plan, Snapshot, solve
from tenants.audit import platform_record
from tenants.models import User
from tenants.outbox import task_request
from tenants.platform.errors import Refused, invalid, missing, text_within

LONGEST = timedelta(days=90)
MAX_DATES = 60
AHEAD = timedelta(days=365)
COUNTED = ("revision", "changed_at")
# A start may be this far in the past: filling in and checking the form takes time.
JUST_NOW = timedelta(minutes=15)
Starts = dict[str, int | None]
"""Start of each booking in Unix seconds; None if it has none."""


@dataclass(frozen=True, slots=True)
class MaintenanceTerms:
    """An operator's description of maintenance of a rack, a node, or one GPU of that node.

    Work that runs at `starts` may continue until `drain_by`; by default until `starts`. With
    `repeat` it repeats at the same local time in `zone`.
    """

    starts: datetime
    ends: datetime
    reason: str
    rack: str = ""
    node: str = ""
    gpu: int | None = None
    drain_by: datetime | None = None
    repeat: Recurrence | None = None
    zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class Moved:
    """A booking whose start would change. `after` None: it would be refused."""

    label: str
    tenant: str
    before: datetime | None
    after: datetime | None


@dataclass(frozen=True, slots=True)
class Preview:
    """Effects of saving: starts that move, and running bookings that would be interrupted.

    `skipped` are the days of a recurrence that do not exist.
    """

    moved: tuple[Moved, ...]
    running: tuple[Booking, ...]
    skipped: tuple[str, ...] = ()

    @property
    def lost(self) -> int:
        """Number of planned starts that can't move and are refused."""
        return sum(moved.after is None for moved in self.moved)

    @property
    def kept(self) -> int:
        """Number of planned starts that move to another time or place."""
        return len(self.moved) - self.lost

    @property
    def hurt(self) -> int:
        """Number of refused starts and interrupted runs."""
        return self.lost + len(self.running)


def maintenance_plan(*, operator: User, terms: MaintenanceTerms, now: datetime) -> Maintenance:
    """Saves maintenance with all its dates and returns the first. The next decision keeps it free;
    owners of affected bookings are notified.

    Raises:
        Refused: `window_past`, `end_before_start`, `too_long`, `advance_window`, `bad_deadline`,
            `reason_needed`, `not_found`, `not_your_nodes`, and for what repeats `no_dates`,
            `series_too_long`, `series_overlap`.
    """
    maintenances = _maintenances_of(operator, terms, now)
    Maintenance.objects.bulk_create(maintenances)
    first = maintenances[0]
    facts = {
        "operator": operator.username,
        "reason": first.reason,
        "repeated": f", {recurrence_words(terms.repeat)}" if terms.repeat else "",
    }
    history_note(first, fleet_text("maintenance_planned", **facts), now)
    after = {
        "where": first.where,
        "starts": first.starts.isoformat(),
        "ends": first.ends.isoformat(),
        "drain_by": first.drain_by.isoformat(),
        "reason": first.reason,
        "dates": len(maintenances),
    }
    platform_record(operator.id, "maintenance.planned", ("maintenance", first.id), now, after=after)
    because = cause_of(first)
    notified = Q(pk=None)
    for maintenance in _before_last_end(maintenances):
        drain_notify(overlapping(maintenance) & ~notified, maintenance.drain_by, because, now)
        notified |= Q(period__overlap=(maintenance.starts, maintenance.ends))
    maintenance_event(Maintenance.Event.PLANNED, first, now, later_dates=len(maintenances) - 1)
    task_request("allocation.cycle")
    return first


def cause_of(maintenance: Maintenance) -> Interruption:
    """Why work has to leave."""
    text = event_text("maintenance", where=maintenance.where, why=maintenance.reason)
    return Interruption("R33", text)


def maintenance_end(
    *, operator: User, maintenance: Maintenance, now: datetime, following: bool = False
) -> Maintenance:
    """Ends maintenance now, or cancels it before it starts; its GPUs are available again.

    With `following` the later dates of a series are cancelled too.

    Raises:
        Refused: `blackout_over` or `not_your_nodes`.
    """
    maintenance = maintenance_lock(maintenance, now)
    nodes_check(operator, nodes_under(maintenance))
    is_early = now < maintenance.starts
    if not is_early and maintenance.last_event == Maintenance.Event.PLANNED:
        # It began within the last half minute.
        maintenance_event(Maintenance.Event.STARTED, maintenance, now)
    maintenance.ended_at = now
    maintenance.last_event = Maintenance.Event.CANCELLED if is_early else Maintenance.Event.ENDED
    change_count(maintenance, now)
    maintenance.save(update_fields=["ended_at", "last_event", *COUNTED])
    more = 0
    if following and maintenance.series is not None:
        rest = Maintenance.objects.filter(series=maintenance.series, starts__gt=maintenance.starts)
        more = rest.filter(ended_at=None, ends__gt=now).update(
            ended_at=now,
            last_event=Maintenance.Event.CANCELLED,
            revision=F("revision") + 1,
            changed_at=now,
        )
    maintenance_event(Maintenance.Event(maintenance.last_event), maintenance, now, later_dates=more)
    facts = {"operator": operator.username, "reason": maintenance.reason}
    if more:
        text = fleet_text("maintenance_series_ended", **facts, dates=more)
    else:
        text = fleet_text("maintenance_ended", **facts)
    history_note(maintenance, text, now)
    where = {"where": maintenance.where}
    platform_record(
        operator_id=operator.id,
        action="maintenance.ended",
        target=("maintenance", maintenance.id),
        now=now,
        before={**where, "ends": maintenance.ends.isoformat()},
        after={**where, "ends": now.isoformat(), "later_dates_called_off": more},
    )
    task_request("allocation.cycle")
    return maintenance


def change_count(maintenance: Maintenance, now: datetime) -> None:
    """Counts a change of the locked maintenance, in the fields `COUNTED`. Calendar programs take
    an entry as newer by its number and its time."""
    maintenance.revision += 1
    maintenance.changed_at = max(now, maintenance.changed_at or now)


def maintenance_lock(maintenance: Maintenance, now: datetime) -> Maintenance:
    """The maintenance, locked. Raises Refused `blackout_over`."""
    maintenance = (
        Maintenance.objects.select_for_update(of=("self",))
        .select_related("rack", "node", "gpu__node")
        .get(id=maintenance.id)
    )
    if maintenance.ended_at is not None or maintenance.ends <= now:
        raise Refused("blackout_over", refusal_text("blackout_over", where=maintenance.where))
    return maintenance


def maintenance_preview(*, operator: User, terms: MaintenanceTerms, now: datetime) -> Preview:
    """Solves the current calendar without and with the maintenance. Saves nothing.

    Raises:
        Refused: as `maintenance_plan`.
    """
    planned = _maintenances_of(operator, terms, now)
    return replace(preview_of(planned, None, now), skipped=tuple(planned[0].skipped))


def preview_of(maintenances: Sequence[Maintenance], replaced: Maintenance | None, now: datetime) -> Preview:
    """The effects of unsaved maintenance, in place of the saved one that it replaces."""
    policy = policy_of(PolicyVersion.objects.get(state=PolicyVersion.State.LIVE))
    without = snapshot_read(now)
    planned = Booking.objects.filter(state=State.SCHEDULED)
    starts = dict(planned.values_list("id", "planned_starts"))
    before: Starts = {str(key): seconds(at) for key, at in starts.items() if at is not None}
    with gc_paused():
        after = {
            **before,
            **_starts(solve(_with_maintenance(without, maintenances, replaced, now), policy)),
        }
        before |= _starts(solve(without, policy))
    moved = [key for key in sorted(after) if after[key] != before.get(key)]
    rows = Booking.objects.filter(id__in=moved).select_related("tenant")
    running = Allocation.objects.filter(_broken_by(maintenances), state__in=STARTED)
    return Preview(
        tuple(_moved(row, before, after) for row in rows.order_by("planned_starts", "id")),
        tuple(
            Booking.objects.filter(allocations__in=running, state__in=RUNNING)
            .select_related("tenant")
            .distinct()
            .order_by("planned_ends", "id")
        ),
    )


def _moved(booking: Booking, before: Starts, after: Starts) -> Moved:
    was, becomes = before.get(str(booking.id)), after[str(booking.id)]
    return Moved(
        booking.label,
        booking.tenant.name,
        None if was is None else instant(was),
        None if becomes is None else instant(becomes),
    )


def _broken_by(maintenances: Sequence[Maintenance]) -> Q:
    """Allocations that would still run at a deadline of the maintenance."""
    found = Q(pk=None)
    for maintenance in maintenances:
        found |= overlapping(maintenance) & Q(period__endswith__gt=maintenance.drain_by)
    return found


def _before_last_end(maintenances: Sequence[Maintenance]) -> Sequence[Maintenance]:
    """The dates that start before all work that now runs there ends."""
    running = Allocation.objects.filter(in_scope(maintenances[0]), state__in=STARTED)
    ends = running.order_by("-period__endswith").values_list("period__endswith", flat=True)
    last = ends.first()
    return [each for each in maintenances if last is not None and each.starts < last]


def _with_maintenance(
    snapshot: Snapshot,
    maintenances: Sequence[Maintenance],
    replaced: Maintenance | None,
    now: datetime,
) -> Snapshot:
    """The snapshot of the next cycle with the maintenance: planned starts in its way are waiting
    again."""
    kept = list(snapshot.blackouts)
    for row in maintenance_rows([] if replaced is None else [replaced]):
        kept.remove(row)
    reaching = Q(pk=None)
    for maintenance in maintenances:
        reaching |= overlapping(maintenance)
    rows = Allocation.objects.filter(reaching, state=Allocation.State.PLANNED)
    waiting = Booking.objects.filter(allocations__in=rows, state=State.SCHEDULED)
    waiting = waiting.select_related("tier").distinct()
    gone = {str(booking.id) for booking in waiting}
    return replace(
        snapshot,
        held=tuple(held for held in snapshot.held if held.booking not in gone),
        requests=(*snapshot.requests, *requests_of(waiting, now)),
        blackouts=(*kept, *maintenance_rows(maintenances)),
    )


def _starts(plan: Plan) -> Starts:
    found: Starts = {row.booking: row.starts for row in plan.assigns}
    found |= {row.booking: row.starts for row in plan.waits}
    return found | {row.booking: None for row in plan.refusals}


def overlapping(maintenance: Maintenance) -> Q:
    """Allocations on the hardware of a maintenance that overlap it."""
    return in_scope(maintenance) & Q(period__overlap=(maintenance.starts, maintenance.ends))


def _maintenances_of(operator: User, terms: MaintenanceTerms, now: datetime) -> tuple[Maintenance, ...]:
    """The first date and, if it repeats, all others. Not saved."""
    first = _maintenance_of(operator, terms, now)
    if terms.repeat is None:
        return (first,)
    return _dates(first, terms.repeat, terms.zone, now + AHEAD)


def _dates(first: Maintenance, rule: Recurrence, zone: str, latest: datetime) -> tuple[Maintenance, ...]:
    """Maintenance at every date of the rule, from and until the same local times. Not saved.

    Raises:
        Refused: `series_too_long`, `series_overlap`, `no_dates`, `advance_window`.
    """
    try:
        dates = dates_of(rule, first.starts, ZoneInfo(zone), "repeat")
    except AskError as error:
        raise invalid(error.code, coded_text(error.text), "repeat") from error
    if len(dates.starts) > MAX_DATES:
        sentence = refusal_text("series_too_long", max_dates=MAX_DATES)
        raise invalid("series_too_long", sentence, "repeat")
    ends, drains = dates.at_local(first.ends), dates.at_local(first.drain_by)
    if dates_overlap(dates.starts, ends):
        sentence = refusal_text("maintenance_overlap")
        raise invalid("series_overlap", sentence, "repeat")
    if dates.starts[-1] > latest:
        raise invalid("advance_window", refusal_text("maintenance_far"), "repeat")
    series, found = uuid4(), []
    for starts, end, drain_by in zip(dates.starts, ends, drains, strict=True):
        each = copy(first)
        each.id, each.series = uuid4(), series
        each.rule, each.zone, each.skipped = dates.rule.text, zone, list(dates.skipped)
        # Where clocks skip the deadline's time, it can move past the end.
        each.starts, each.ends, each.drain_by = starts, end, min(drain_by, end)
        found.append(each)
    return tuple(found)


def _maintenance_of(operator: User, terms: MaintenanceTerms, now: datetime) -> Maintenance:
    window_check(terms, now)
    reason = reason_read(terms.reason)
    drain_by = deadline_read(terms)
    rack, node, gpu = _target(terms)
    made = Maintenance(
        rack=rack,
        node=node,
        gpu=gpu,
        starts=terms.starts,
        ends=terms.ends,
        drain_by=drain_by,
        reason=reason,
        created=now,
        created_by=operator,
    )
    nodes_check(operator, nodes_under(made))
    return made


def reason_read(text: str) -> str:
    """The reason as it is stored. Raises Refused `reason_needed`."""
    reason = text.strip().rstrip(".")
    if not reason:
        raise invalid("reason_needed", refusal_text("maintenance_reason"), "reason")
    return text_within(reason, 120, "reason")


def deadline_read(terms: MaintenanceTerms) -> datetime:
    """When running work has to have left. Raises Refused `bad_deadline`."""
    drain_by = terms.drain_by or terms.starts
    if not terms.starts <= drain_by <= terms.ends:
        raise invalid("bad_deadline", refusal_text("maintenance_deadline"), "drain_by")
    return drain_by


def window_check(terms: MaintenanceTerms, now: datetime) -> None:
    """Raises Refused as `length_check`, `window_past` or `advance_window`."""
    length_check(terms)
    if terms.starts < now - JUST_NOW:
        raise invalid("window_past", refusal_text("maintenance_past"), "starts")
    if terms.starts - now > AHEAD:
        raise invalid("advance_window", refusal_text("maintenance_far"), "starts")


def length_check(terms: MaintenanceTerms) -> None:
    """Raises Refused `end_before_start` or `too_long`."""
    if terms.ends <= terms.starts:
        raise invalid("end_before_start", refusal_text("end_before_start"), "ends")
    if terms.ends - terms.starts > LONGEST:
        raise invalid("too_long", refusal_text("maintenance_long"), "ends")


def _target(terms: MaintenanceTerms) -> tuple[Rack | None, Node | None, Gpu | None]:
    if bool(terms.rack) == bool(terms.node):
        raise invalid("one_target", refusal_text("one_target"), "rack")
    if terms.rack:
        rack = Rack.objects.filter(name=terms.rack).first()
        if rack is None or terms.gpu is not None:
            raise missing("rack", "rack")
        return rack, None, None
    node = Node.objects.filter(name=terms.node).first()
    if node is None:
        raise missing("node", "node")
    if terms.gpu is None:
        return None, node, None
    gpu = Gpu.objects.select_related("node").filter(node=node, index=terms.gpu).first()
    if gpu is None:
        raise missing("GPU", "gpu")
    return None, None, gpu


def nodes_under(maintenance: Maintenance) -> QuerySet[Node]:
    """The nodes that it covers: its own, or those of its rack."""
    gpu = maintenance.gpu
    node = maintenance.node_id if gpu is None else gpu.node_id
    return Node.objects.filter(Q(id=node) | Q(rack=maintenance.rack_id))


def history_note(maintenance: Maintenance, text: FleetText, now: datetime) -> None:
    """Adds an entry to the history of each node that the maintenance covers."""
    for node in nodes_under(maintenance):
        operator_event(node, maintenance.gpu, text, now)
