"""Planned maintenance: made, ended early, and shown beforehand with what it would move."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.db.models import Q

from allocation.models import (
    Allocation,
    Booking,
    Gpu,
    GpuEvent,
    Maintenance,
    Node,
    PolicyVersion,
    Rack,
)
from allocation.queries.fleet.maintenance import in_scope
from allocation.rules.ask.when.recurrence_words import recurrence_words
from allocation.rules.recurrence import Recurrence
from allocation.rules.states import State
from allocation.services.gc_paused import gc_paused
from allocation.services.operate.maintenance_dates import maintenance_dates
from allocation.services.policy.policies import policy_of
from allocation.services.runs.end import STARTED
from allocation.services.runs.interrupt import RUNNING, Interruption, drain_notify
from allocation.services.snapshot.maintenance import maintenance_rows
from allocation.services.snapshot.snapshot import instant, requests_of, seconds, snapshot_read
from allocation.solver import Plan, Snapshot, solve
from tenants.audit import platform_record
from tenants.models import User
from tenants.outbox import task_request
from tenants.platform.errors import Refused, invalid, missing

LONGEST = timedelta(days=90)
AHEAD = timedelta(days=365)
# People type and read before they press.
JUST_NOW = timedelta(minutes=15)
Starts = dict[str, int | None]
"""Start by booking, Unix seconds; None: there is no room for it."""


@dataclass(frozen=True, slots=True)
class MaintenanceTerms:
    """Maintenance as an operator says it: of a rack, or of a node, or of one GPU of that node.

    Work that runs at `starts` may go on until `drain_by`; None: until `starts`. With `repeat` it
    comes again at the same time on the wall clock of `zone`.
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
    """A booking whose start would be another. `after` None: there would be no room for it."""

    label: str
    tenant: str
    before: datetime | None
    after: datetime | None


@dataclass(frozen=True, slots=True)
class Preview:
    """What saving would do: starts that move, and running bookings that would be broken off."""

    moved: tuple[Moved, ...]
    running: tuple[Booking, ...]

    @property
    def lost(self) -> int:
        """How many planned starts find no other room and are refused."""
        return sum(moved.after is None for moved in self.moved)

    @property
    def kept(self) -> int:
        """How many planned starts move to another time or place."""
        return len(self.moved) - self.lost

    @property
    def hurt(self) -> int:
        """How many bookings lose what they have: refused starts and runs that are broken off."""
        return self.lost + len(self.running)


def maintenance_plan(*, operator: User, wish: MaintenanceTerms, now: datetime) -> Maintenance:
    """Saves maintenance, all its dates if it repeats, and returns the first. The next decision
    keeps it free; owners in its way are told.

    Raises:
        Refused: `window_past`, `end_before_start`, `too_long`, `advance_window`, `bad_deadline`,
            `reason_needed`, `not_found`, and for what repeats `no_dates`, `series_too_long`,
            `series_overlap`.
    """
    blackouts = _maintenances_of(operator, wish, now)
    Maintenance.objects.bulk_create(blackouts)
    first = blackouts[0]
    often = f", {recurrence_words(wish.repeat)}" if wish.repeat else ""
    _note(first, f"{operator.username} planned maintenance: {first.reason}{often}.", now)
    platform_record(
        operator_id=operator.id,
        action="maintenance.planned",
        target=("maintenance", first.id),
        now=now,
        after={
            "where": first.where,
            "starts": first.starts.isoformat(),
            "ends": first.ends.isoformat(),
            "drain_by": first.drain_by.isoformat(),
            "reason": first.reason,
            "dates": len(blackouts),
        },
    )
    because = Interruption("R33", f"Maintenance of {first.where}: {first.reason}.")
    told = Q(pk=None)
    for blackout in _before_last_end(blackouts):
        drain_notify(_overlapping(blackout) & ~told, blackout.drain_by, because, now)
        told |= Q(period__overlap=(blackout.starts, blackout.ends))
    task_request("allocation.cycle")
    return first


def maintenance_end(
    *, operator: User, blackout: Maintenance, now: datetime, following: bool = False
) -> Maintenance:
    """Ends it now, or calls it off when it has not begun: what it kept free is there again.

    With `following` the later dates of what repeats are called off too.

    Raises:
        Refused: `blackout_over`.
    """
    blackout = (
        Maintenance.objects.select_for_update(of=("self",))
        .select_related("rack", "node", "gpu__node")
        .get(id=blackout.id)
    )
    if blackout.ended_at is not None or blackout.ends <= now:
        raise Refused("blackout_over", f"The maintenance of {blackout.where} is over already.")
    blackout.ended_at = now
    blackout.save(update_fields=["ended_at"])
    more = 0
    if following and blackout.series is not None:
        rest = Maintenance.objects.filter(series=blackout.series, starts__gt=blackout.starts)
        more = rest.filter(ended_at=None, ends__gt=now).update(ended_at=now)
    also = f" and {more} dates that follow" if more else ""
    _note(blackout, f"{operator.username} ended maintenance: {blackout.reason}{also}.", now)
    where = {"where": blackout.where}
    platform_record(
        operator_id=operator.id,
        action="maintenance.ended",
        target=("maintenance", blackout.id),
        now=now,
        before={**where, "ends": blackout.ends.isoformat()},
        after={**where, "ends": now.isoformat(), "later_dates_called_off": more},
    )
    task_request("allocation.cycle")
    return blackout


def maintenance_preview(*, operator: User, wish: MaintenanceTerms, now: datetime) -> Preview:
    """Decides on the calendar as it is now, without the maintenance and with it. Saves nothing.

    Raises:
        Refused: as `maintenance_plan`.
    """
    blackouts = _maintenances_of(operator, wish, now)
    policy = policy_of(PolicyVersion.objects.get(state=PolicyVersion.State.LIVE))
    without = snapshot_read(now)
    planned = Booking.objects.filter(state=State.SCHEDULED)
    starts = dict(planned.values_list("id", "planned_starts"))
    before: Starts = {str(key): seconds(at) for key, at in starts.items() if at is not None}
    with gc_paused():
        after = {**before, **_starts(solve(_with_maintenance(without, blackouts, now), policy))}
        before |= _starts(solve(without, policy))
    moved = [key for key in sorted(after) if after[key] != before.get(key)]
    rows = Booking.objects.filter(id__in=moved).select_related("tenant")
    running = Allocation.objects.filter(_broken_by(blackouts), state__in=STARTED)
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


def _broken_by(blackouts: Sequence[Maintenance]) -> Q:
    """Allocations that would still be there when work must have left for one of them."""
    found = Q(pk=None)
    for blackout in blackouts:
        found |= _overlapping(blackout) & Q(period__endswith__gt=blackout.drain_by)
    return found


def _before_last_end(blackouts: Sequence[Maintenance]) -> Sequence[Maintenance]:
    """Those that begin before all that runs there now is over."""
    running = Allocation.objects.filter(in_scope(blackouts[0]), state__in=STARTED)
    ends = running.order_by("-period__endswith").values_list("period__endswith", flat=True)
    last = ends.first()
    return [each for each in blackouts if last is not None and each.starts < last]


def _with_maintenance(
    snapshot: Snapshot, blackouts: Sequence[Maintenance], now: datetime
) -> Snapshot:
    """The snapshot that the next cycle would see: places in the way are given back."""
    reaching = Q(pk=None)
    for blackout in blackouts:
        reaching |= _overlapping(blackout)
    rows = Allocation.objects.filter(reaching, state=Allocation.State.PLANNED)
    waiting = Booking.objects.filter(allocations__in=rows, state=State.SCHEDULED)
    waiting = waiting.select_related("tier").distinct()
    gone = {str(booking.id) for booking in waiting}
    return replace(
        snapshot,
        held=tuple(held for held in snapshot.held if held.booking not in gone),
        requests=(*snapshot.requests, *requests_of(waiting, now)),
        blackouts=(*snapshot.blackouts, *maintenance_rows(blackouts)),
    )


def _starts(plan: Plan) -> Starts:
    found: Starts = {row.booking: row.starts for row in plan.assigns}
    found |= {row.booking: row.starts for row in plan.waits}
    return found | {row.booking: None for row in plan.refusals}


def _overlapping(blackout: Maintenance) -> Q:
    """Allocations on its hardware that overlap it."""
    return in_scope(blackout) & Q(period__overlap=(blackout.starts, blackout.ends))


def _maintenances_of(
    operator: User, wish: MaintenanceTerms, now: datetime
) -> tuple[Maintenance, ...]:
    """The first and, if it repeats, every other date. Not saved."""
    first = _maintenance_of(operator, wish, now)
    if wish.repeat is None:
        return (first,)
    return maintenance_dates(first, wish.repeat, wish.zone, now + AHEAD)


def _maintenance_of(operator: User, wish: MaintenanceTerms, now: datetime) -> Maintenance:
    _window_check(wish, now)
    reason = wish.reason.strip().rstrip(".")
    if not reason:
        raise invalid("reason_needed", "Say what is done: users read it.", "reason")
    drain_by = wish.drain_by or wish.starts
    if not wish.starts <= drain_by <= wish.ends:
        sentence = "Work has to leave between the start and the end of the maintenance."
        raise invalid("bad_deadline", sentence, "drain_by")
    rack, node, gpu = _target(wish)
    return Maintenance(
        rack=rack,
        node=node,
        gpu=gpu,
        starts=wish.starts,
        ends=wish.ends,
        drain_by=drain_by,
        reason=reason[:120],
        created=now,
        created_by=operator,
    )


def _window_check(wish: MaintenanceTerms, now: datetime) -> None:
    if wish.ends <= wish.starts:
        raise invalid("end_before_start", "The end must be after the start.", "ends")
    if wish.starts < now - JUST_NOW:
        raise invalid("window_past", "Maintenance can't begin in the past.", "starts")
    if wish.starts - now > AHEAD:
        raise invalid("advance_window", "Plan at most a year ahead.", "starts")
    if wish.ends - wish.starts > LONGEST:
        raise invalid("too_long", "One maintenance lasts at most 90 days.", "ends")


def _target(wish: MaintenanceTerms) -> tuple[Rack | None, Node | None, Gpu | None]:
    if bool(wish.rack) == bool(wish.node):
        raise invalid("one_target", "Name either a rack or a node.", "rack")
    if wish.rack:
        rack = Rack.objects.filter(name=wish.rack).first()
        if rack is None or wish.gpu is not None:
            raise missing("rack", "rack")
        return rack, None, None
    node = Node.objects.filter(name=wish.node).first()
    if node is None:
        raise missing("node", "node")
    if wish.gpu is None:
        return None, node, None
    gpu = Gpu.objects.select_related("node").filter(node=node, index=wish.gpu).first()
    if gpu is None:
        raise missing("GPU", "gpu")
    return None, None, gpu


def _note(blackout: Maintenance, sentence: str, now: datetime) -> None:
    """A line in the history of each node that it covers."""
    gpu = blackout.gpu
    nodes = Node.objects.filter(Q(id=blackout.node_id) | Q(rack=blackout.rack_id))
    for node in [gpu.node] if gpu is not None else nodes:
        GpuEvent.objects.create(
            node=node, gpu=gpu, kind=GpuEvent.Kind.OPERATOR, at=now, sentence=sentence[:300]
        )
