"""The whole input of a cycle, read at one instant in a constant number of queries."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q

from allocation import wire
from allocation.models import Allocation, Booking, Gpu, GpuModel, MigPlacement, Node, Pause
from allocation.rules.ask import MIN_DURATION_SECONDS, AskDocument
from allocation.rules.states import EXTENDABLE, WAITING, State
from allocation.services.nodes.fleet import agent_supports
from allocation.services.nodes.gpu_modes import changes_modes
from allocation.services.record.open_pauses import OPEN, pauses_unneeded
from allocation.services.record.places import place_of, place_of_row
from allocation.services.record.workloads import has_run
from allocation.services.runs.lost_runs import has_earlier_run, time_remaining
from allocation.services.snapshot.compaction_orders import orders_read
from allocation.services.snapshot.intake import deferred_bookings
from allocation.services.snapshot.maintenance import maintenance_read
from allocation.services.snapshot.original_gpus import paused_on, running_on, with_original_gpus
from allocation.services.snapshot.quota_rows import caps_read, limits_read, tiers_read, used_read
from allocation.solver import (
    Ask,
    Extension,
    Held,
    Host,
    Model,
    Placement,
    PlannedStart,
    Request,
    Snapshot,
)
from allocation.solver import Gpu as SolverGpu
from allocation.solver.model.inputs import Mode, Together

EVERYWHERE = Q()
# A device that was given back is cleared within seconds. What takes longer is expected to take as
# long again as it has taken already: nobody is promised the room of a device that hangs.
CLEARING_SECONDS = 5
# The columns that say what is held: there are many rows, and most columns of theirs are wide.
_HELD_COLUMNS = (
    *("booking", "tenant", "project", "gpu", "profile", "start", "size", "share", "period"),
    *("state", "left", "booking__state", "booking__ask", "booking__tier", "booking__owner"),
    *("booking__ready_at", "booking__saved_at", "booking__pause_count"),
    "booking__extension_until",
)
# What is paused for somebody is given so long before that holds of it too.
HANDOVER = timedelta(minutes=1)


def snapshot_take(now: datetime, most_new: int | None = None) -> Snapshot:
    """Reads fleet, calendar, wishes and limits in one REPEATABLE READ, READ ONLY transaction; of
    new bookings at most so many, by turns of the tenants.

    For the system's role, which sees every tenant. Must not run inside a transaction.
    """
    with transaction.atomic(durable=True):
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        return snapshot_read(now, most_new)


def snapshot_read(now: datetime, most_new: int | None = None) -> Snapshot:
    """The same within a transaction that is there: for looking ahead, or while all that is to be
    decided is locked."""
    used = used_read(now)
    later = frozenset() if most_new is None else deferred_bookings(most_new)
    return Snapshot(
        now=seconds(now),
        models=models_read(),
        gpus=gpus_read(),
        held=held_read(now),
        requests=requests_read(now, later),
        extensions=_extensions(),
        limits=limits_read(),
        tiers=tiers_read(),
        caps=caps_read(now, used),
        used=used,
        hosts=hosts_read(),
        blackouts=maintenance_read(now),
        running=running_read(now),
        unneeded=_unneeded(now),
        orders=orders_read(),
    )


def seconds(instant: datetime) -> int:
    """Whole Unix seconds, rounded down."""
    return int(instant.timestamp())


def instant(moment: int) -> datetime:
    """The UTC time of Unix seconds."""
    return datetime.fromtimestamp(moment, UTC)


def models_read() -> tuple[Model, ...]:
    """Every model with the geometry that was enrolled for it."""
    placements: dict[str, list[Placement]] = defaultdict(list)
    for row in MigPlacement.objects.all():
        placements[row.model_id].append(
            Placement(row.profile, row.start, row.size, row.compute, row.profile_id, row.limit)
        )
    return tuple(
        Model(
            slug=model.slug,
            memory_slots=model.memory_slots,
            compute_slices=model.compute_slices,
            mode_switch="reset" if model.mode_switch == "reset" else "online",
            placements=tuple(placements[model.slug]),
            switch_seconds=model.switch_seconds,
        )
        for model in GpuModel.objects.order_by("slug")
    )


def gpus_read(where: Q = EVERYWHERE) -> tuple[SolverGpu, ...]:
    """GPUs; usable when they are healthy and their node takes work."""
    nodes = {node.id: _NodeFacts.of(node) for node in Node.objects.select_related("rack")}
    rows = Gpu.objects.filter(where).values_list(
        *("id", "number", "node_id", "index", "gpu_class_id", "model_id", "domain", "health"),
        *("mode", "mode_pinned", "model__mode_switch"),
        named=True,
    )
    return tuple(_gpu_of(row, nodes[row.node_id]) for row in rows)


@dataclass(frozen=True, slots=True)
class _NodeFacts:
    """What a node says for all of its GPUs."""

    name: str
    rack: str
    keeps_planned_work: bool
    shares: bool
    silent: bool
    changes_modes: bool

    @classmethod
    def of(cls, node: Node) -> "_NodeFacts":
        # An agent that is too old would refuse its whole document for one share in it.
        shares = not node.agent_version or agent_supports(node, wire.SHARES_SINCE)
        silent = node.unreachable_since is not None
        changes = changes_modes(node)
        return cls(node.name, node.rack.name, node.keeps_planned_work, shares, silent, changes)


def _gpu_of(row: Any, node: _NodeFacts) -> SolverGpu:  # noqa: ANN401 (a row of values)
    takes_reset = row.model__mode_switch == "reset"
    fixed = row.mode_pinned or (row.mode if takes_reset and not node.changes_modes else "")
    return SolverGpu(
        id=str(row.id),
        number=row.number,
        node=node.name,
        rack=node.rack,
        index=row.index,
        gpu_class=row.gpu_class_id,
        model=row.model_id,
        domain=row.domain,
        usable=row.health == Gpu.Health.OK and node.keeps_planned_work,
        mode=_hardware_mode(fixed) if fixed else None,
        shares=node.shares,
        silent=node.silent,
        stands=_hardware_mode(row.mode) if takes_reset else None,
        pinned=bool(row.mode_pinned),
    )


def solver_ask(document: AskDocument) -> Ask:
    """What the solver needs of an ask."""
    return Ask(
        count=document.count,
        classes=tuple(document.classes),
        profile=document.profile,
        together=document.together,
        required=document.required,
        share=document.share,
        cores=document.cores * 1_000,
        memory=document.memory * 1_024,
        pin=document.pin,
    )


def host_resources(booking: Booking) -> tuple[int, int]:
    """Cores (thousandths) and memory (MiB) that come with each of a booking's places."""
    return booking.ask.get("cores", 0) * 1_000, booking.ask.get("memory", 0) * 1_024


def hosts_read() -> tuple[Host, ...]:
    """What each node that has reported has beside its GPUs."""
    return tuple(
        Host(node.name, node.cores * 1_000, node.memory_mb)
        for node in Node.objects.filter(cores__gt=0).order_by("name")
    )


def _hardware_mode(mode: str) -> Mode:
    return "sliced" if mode == Gpu.Mode.SLICED else "whole"


def held_read(now: datetime) -> tuple[Held, ...]:
    """Every live allocation; under the wall, of one tenant."""
    rows = Allocation.objects.filter(state__in=Allocation.LIVE).select_related("booking")
    rows = rows.only(*_HELD_COLUMNS).order_by("id")
    return tuple(
        _held_of(row, seconds(now))
        for row in rows
        if not is_handover(row.period.upper, now, is_pausing=row.booking.state == State.PAUSING)
    )


def is_handover(ends: datetime, now: datetime, *, is_pausing: bool) -> bool:
    """Paused for somebody, and its time has just come: the room is theirs in the calendar, so that
    nobody's start moves for the seconds that clearing takes. On the hardware it is theirs on the
    proof of empty."""
    return is_pausing and timedelta(0) <= now - ends < HANDOVER


def _held_of(row: Allocation, now: int) -> Held:
    """What a booking has left behind keeps its place, but is nobody's use any more."""
    booking = row.booking
    started = row.state != Allocation.State.PLANNED
    # What ends gives its room back by itself; what was left behind is not the run that is on.
    is_had = booking.state in (State.ACTIVE, State.PAUSING) and not row.left
    ends = seconds(row.period.upper)
    cores, memory = host_resources(booking)
    return Held(
        id=str(row.id),
        booking=f"left {row.id}" if row.left else str(row.booking_id),
        tenant="" if row.left else str(row.tenant_id),
        project="" if row.left else str(row.project_id),
        place=place_of_row(row),
        starts=seconds(row.period.lower),
        ends=expected_clear(ends, now) if started else ends,
        started=started,
        tier=booking.tier_id,
        since=seconds(booking.ready_at) if booking.ready_at and is_had else None,
        saved=seconds(booking.saved_at) if booking.saved_at else None,
        pauses=booking.pause_count,
        pausing=booking.state == State.PAUSING and not row.left,
        cores=cores,
        memory=memory,
        owner=str(row.booking.owner_id),
        pinned=bool(booking.ask.get("pin")),
        level=_level(row),
    )


def _level(row: Allocation) -> Together | None:
    """How near its gang must lie wherever it lies; None: it has begun, may be frozen on its node,
    or is about to be extended where it is."""
    booking, ask = row.booking, row.booking.ask
    is_settled = row.state == Allocation.State.PLANNED and booking.extension_until is None
    if not is_settled or booking.state != State.SCHEDULED:
        return None
    together: Together = ask["together"]
    return together if ask["required"] and ask["count"] > 1 else "any"


def expected_clear(ends: int, now: int) -> int:
    """When what should be out at `ends` is expected to be: a device may take long to be cleared."""
    return max(ends, now + max(CLEARING_SECONDS, now - ends))


def requests_read(now: datetime, without: frozenset[UUID] = frozenset()) -> tuple[Request, ...]:
    """Every booking that waits; under the wall, of one tenant."""
    rows = Booking.objects.filter(state__in=WAITING).select_related("tier", "series")
    if without:
        rows = rows.exclude(id__in=without)
    found = [_request_of(row, now) for row in rows]
    found += pauses_requested(now)
    return tuple(sorted(found, key=lambda request: request.booking))


def requests_of(rows: Iterable[Booking], now: datetime) -> tuple[Request, ...]:
    """Bookings, with their tiers loaded, as if they were waiting."""
    return tuple(_request_of(row, now) for row in rows)


def _request_of(row: Booking, now: datetime) -> Request:
    ask = AskDocument.from_json(row.ask)
    duration, latest = row.duration_seconds, row.deadline
    order = tuple((name, length) for name, length in row.lengths)
    if ask.workload is not None and has_run(row):
        # It is in the middle of its work on one class.
        order = ((row.planned_class, duration),) if row.planned_class else ()
    elif ask.workload is not None:
        duration = min((length for _, length in order), default=duration)
    if order:
        ask = replace(ask, classes=tuple(name for name, _ in order))
    if has_earlier_run(row):
        # What is left of a fixed window is taken where it fits, if it is worth a start at all.
        duration, latest = time_remaining(row, now)
        duration = max(MIN_DURATION_SECONDS, duration)
    return Request(
        booking=str(row.id),
        tenant=str(row.tenant_id),
        project=str(row.project_id),
        tier=row.tier_id,
        priority=row.tier.priority,
        submitted=seconds(row.submitted),
        ask=solver_ask(ask),
        duration=duration,
        earliest=seconds(row.not_before),
        latest=seconds(latest) if latest else None,
        fixed=row.starts is not None and not has_earlier_run(row),
        promise=_promise_of(row),
        owner=str(row.owner_id),
        durations=order if ask.workload is not None and len(order) > 1 else (),
        cheapest=bool(order) and row.deadline is not None,
        series=_series_of(row),
    )


def _series_of(row: Booking) -> str | None:
    """The series whose dates are decided together; once decided, each goes its own way."""
    is_bound = row.state == State.REQUESTED and row.starts is not None and not row.replaced
    if not is_bound or row.series is None or row.series.is_partial:
        return None
    return str(row.series_id)


def running_read(now: datetime) -> tuple[Request, ...]:
    """What each running booking that may be paused would still want if it were paused now."""
    rows = Booking.objects.filter(state=State.ACTIVE, tier__pausable=True).select_related("tier")
    found = []
    original_gpus = running_on()
    for row in rows.order_by("id"):
        left = seconds(row.planned_ends) - seconds(now) if row.planned_ends else 0
        if left > 0:
            request = _resume_request(row, now, left, seconds(now) + left)
            found.append(with_original_gpus(request, original_gpus.get(row.id), now))
    return tuple(found)


def _resume_request(row: Booking, now: datetime, left: int, ends: int) -> Request:
    """The wish for the time that is left of a booking; a fixed window never goes past `ends`."""
    latest = seconds(row.deadline) if row.deadline else None
    return replace(
        _request_of(row, now),
        duration=left,
        earliest=seconds(now),
        latest=ends if row.starts is not None else latest,
        fixed=False,
        pauses=row.pause_count,
        promise=None,
    )


def pauses_requested(now: datetime) -> list[Request]:
    """Bookings that are told to pause, or are paused, and have no place to go on yet.

    They want the time that is left to them as soon as they are out. A fixed window is what is left
    of it, by its end at the latest.
    """
    placed = Allocation.objects.filter(state=Allocation.State.PLANNED).values("booking_id")
    open_pauses = Pause.objects.filter(OPEN).select_related("booking__tier").order_by("id")
    rows = open_pauses.filter(booking__state__in=[State.PAUSING, State.PAUSED])
    pauses = list(rows.exclude(booking__in=placed))
    original_gpus = paused_on(pauses)
    found = (
        with_original_gpus(_paused(row, now), original_gpus.get(row.booking_id), now)
        for row in pauses
    )
    return [request for request in found if request.duration > 0]


def _paused(pause: Pause, now: datetime) -> Request:
    booking = pause.booking
    is_out, ends = pause.remaining_seconds is not None, seconds(pause.ends_before)
    out = seconds(now)
    if not is_out:
        out = expected_clear(seconds(pause.acknowledged_at or pause.deadline), out)
    left = ends - seconds(pause.deadline)
    if pause.remaining_seconds is not None:
        left = pause.remaining_seconds
    if booking.starts is not None:
        left = min(left, ends - out)
    request = _resume_request(booking, now, left, ends)
    return replace(request, earliest=out, paused=True, promise=_promise_of(booking))


def _promise_of(row: Booking) -> PlannedStart | None:
    """What it was promised; without places a start that nothing proves, for flexible ones only."""
    is_one = bool(row.planned_places) or row.starts is None
    if not is_one or row.planned_starts is None or row.planned_ends is None:
        return None
    return PlannedStart(
        starts=seconds(row.planned_starts),
        ends=seconds(row.planned_ends),
        places=tuple(place_of(place) for place in row.planned_places),
    )


def _unneeded(now: datetime) -> tuple[Extension, ...]:
    rows = pauses_unneeded(now).order_by("booking_id").values_list("booking_id", "ends_before")
    return tuple(Extension(str(booking), seconds(ends)) for booking, ends in rows)


def _extensions() -> tuple[Extension, ...]:
    rows = (
        Booking.objects.filter(
            extension_until__isnull=False,
            state__in=EXTENDABLE,
        )
        .order_by("id")
        .values_list("id", "extension_until")
    )
    return tuple(Extension(str(booking), seconds(until)) for booking, until in rows if until)
