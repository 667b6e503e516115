"""The timeline for one reader: own and project bookings by name, all others as anonymous blocks."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from uuid import UUID

from django.db import connection
from django.db.models import Count, Max, QuerySet

from allocation.models import Allocation, Booking, Gpu, MigPlacement, Node
from allocation.points.bookings import hours_waited_for
from allocation.queries.bookings.timelines.rows import (
    Block,
    ClassGroup,
    GpuRow,
    Kind,
    MaintenancePeriod,
    NodeRow,
    Stretch,
    Timeline,
    VisibleBooking,
    WaitingRow,
    Window,
    cut_at_pauses,
)
from allocation.queries.fleet.maintenance import maintenance_by_gpu, maintenance_open
from allocation.rules.states import State
from tenants.access import Actor

MOST_WAITING = 20
LONGEST_GAP = timedelta(minutes=10)
"""Between the elements of an array that are drawn as one bar."""


def timeline_read(
    *,
    actor: Actor,
    window: Window,
    gpu_class: str,
    now: datetime,
    free: Mapping[UUID, tuple[Stretch, ...]],
) -> Timeline:
    """The fleet over `window` for a reader. `gpu_class` "" means every class.

    `free` are the periods in which each whole GPU can be booked. Runs inside the reader's
    `tenant_tx`.
    """
    blocks: dict[UUID, list[Block]] = defaultdict(list)
    found = (
        _own_blocks(actor, window, now),
        _own_reservations(actor, window),
        _foreign_blocks(window),
    )
    for block in blocks_joined(chain.from_iterable(found)):
        blocks[block.gpu].append(block)
    gpus = gpus_read()
    classes = {gpu.gpu_class_id: gpu.gpu_class.label for gpu in gpus}
    shown = [gpu for gpu in gpus if not gpu_class or gpu.gpu_class_id == gpu_class]
    return Timeline(
        groups=tuple(groups_of(shown, blocks, away_of(shown, window), free)),
        waiting=tuple(
            waiting_rows(bookings_visible(actor), lambda row: (visible_booking(row), _kind(actor, row)))
        ),
        classes=tuple(classes.items()),
        waitlisted=hours_waited_for(actor, window.starts, window.ends),
    )


def gpus_read() -> list[Gpu]:
    """All devices in the order of the timeline."""
    rows = Gpu.objects.select_related("node__rack", "model", "gpu_class")
    return list(rows.order_by("gpu_class__order", "gpu_class_id", "node__rack__name", "node__name", "index"))


def away_of(gpus: Iterable[Gpu], window: Window) -> dict[UUID, list[MaintenancePeriod]]:
    """Open maintenance within the window, by GPU."""
    found: dict[UUID, list[MaintenancePeriod]] = defaultdict(list)
    for gpu, maintenance in maintenance_by_gpu(maintenance_open(window.starts), gpus):
        if maintenance.starts < window.ends:
            found[gpu.id].append(MaintenancePeriod(maintenance.starts, maintenance.ends, maintenance.reason))
    return found


def groups_of(
    gpus: Iterable[Gpu],
    blocks: Mapping[UUID, Sequence[Block]],
    maintenance: Mapping[UUID, Sequence[MaintenancePeriod]],
    free: Mapping[UUID, tuple[Stretch, ...]],
) -> Iterator[ClassGroup]:
    """The devices with what is on them, by class and rack."""
    placements, blocks = _placements(), cut_at_pauses(blocks)
    tree: dict[tuple[str, str, str], dict[str, list[GpuRow]]] = {}
    for gpu in gpus:
        key = (gpu.gpu_class_id, gpu.gpu_class.label, gpu.node.rack.name)
        mine = sorted(blocks.get(gpu.id, ()), key=lambda block: (block.start, block.starts))
        row = replace(
            _gpu_row(gpu, placements.get(gpu.model_id, {}), mine, maintenance.get(gpu.id, ())),
            free=free.get(gpu.id, ()),
        )
        tree.setdefault(key, {}).setdefault(gpu.node.name, []).append(row)
    for (slug, label, rack), nodes in tree.items():
        rows = tuple(NodeRow(name, rack, tuple(each)) for name, each in nodes.items())
        yield ClassGroup(slug, label, rack, rows)


def _gpu_row(
    gpu: Gpu,
    placements: Mapping[str, tuple[tuple[int, int], ...]],
    blocks: Sequence[Block],
    maintenance: Sequence[MaintenancePeriod],
) -> GpuRow:
    unusable_reason = _why_not(gpu)
    return GpuRow(
        id=gpu.id,
        index=gpu.index,
        gpu_class=gpu.gpu_class_id,
        class_label=gpu.gpu_class.label,
        model=gpu.model_id,
        domain=gpu.domain,
        usable=not unusable_reason,
        unusable_reason=unusable_reason,
        sliced=gpu.mode == Gpu.Mode.SLICED,
        compute_slices=gpu.model.compute_slices,
        placements=placements,
        blocks=tuple(blocks),
        maintenance=tuple(maintenance),
        is_of_plan=bool(gpu.node.pool),
        noun=gpu.gpu_class.noun,
    )


def _why_not(gpu: Gpu) -> str:
    if gpu.health == Gpu.Health.LOST:
        return gpu.health_words or "hardware failed"
    if gpu.health == Gpu.Health.DRAINING or gpu.node.state == Node.State.DRAINING:
        return gpu.health_words or gpu.node.state_words or "being emptied for maintenance"
    if gpu.node.state == Node.State.QUARANTINED:
        return gpu.node.state_words or "out of service"
    if gpu.node.state == Node.State.EXPECTED:
        return "not reported yet"
    return ""


def _placements() -> dict[str, dict[str, tuple[tuple[int, int], ...]]]:
    """The valid (start, size) pairs by model and profile, as listed by the driver."""
    found: dict[str, dict[str, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    rows = MigPlacement.objects.values_list("model_id", "profile", "start", "size")
    for model, profile, start, size in rows:
        found[model][profile].append((start, size))
    return {
        model: {profile: tuple(places) for profile, places in profiles.items()}
        for model, profiles in found.items()
    }


def _own_blocks(actor: Actor, window: Window, now: datetime) -> Iterator[Block]:
    rows = (
        Allocation.objects.filter(
            tenant_id=actor.tenant_id,
            period__overlap=(window.starts, window.ends),
            state__in=(*Allocation.LIVE, Allocation.State.ENDED),
        )
        .select_related("booking__tier", "booking__project", "booking__array")
        .order_by("id")
    )
    for row in rows:
        is_known = actor.role_in(row.project_id) is not None
        over = row.state == Allocation.State.ENDED
        if over and not is_known:
            continue
        ends = allocation_end(row, now)
        if ends <= row.period.lower:
            continue
        yield allocation_block(
            row,
            ends,
            kind=_kind(actor, row.booking) if is_known else "other",
            booking=visible_booking(row.booking) if is_known else None,
        )


def allocation_block(row: Allocation, ends: datetime, *, kind: Kind, booking: VisibleBooking | None) -> Block:
    """The block of an allocation until `ends`."""
    return Block(
        gpu=row.gpu_id,
        start=row.start,
        size=row.size,
        whole=row.mode != Gpu.Mode.SLICED,
        shared=row.mode == Gpu.Mode.SHARED,
        share=row.share,
        profile=row.profile,
        starts=row.period.lower,
        ends=ends,
        kind=kind,
        booking=booking,
        over=row.state == Allocation.State.ENDED,
    )


def allocation_end(row: Allocation, now: datetime) -> datetime:
    """The planned end, or the actual one if the booking ended early."""
    ends: datetime = row.period.upper
    if row.state == Allocation.State.ENDED:
        return min(ends, row.booking.ended_at or row.booking.released_at or ends)
    # A releasing allocation counts until the device is proven empty.
    return max(ends, now) if row.state == Allocation.State.RELEASING else ends


def _own_reservations(actor: Actor, window: Window) -> Iterator[Block]:
    """The planned places of the tenant's waiting bookings."""
    rows = Booking.objects.filter(
        tenant_id=actor.tenant_id,
        state__in=(State.QUEUED, State.PAUSING, State.PAUSED),
        planned_starts__lt=window.ends,
        planned_ends__gt=window.starts,
    ).select_related("tier", "project", "array")
    for row in rows.order_by("id"):
        is_known = actor.role_in(row.project_id) is not None
        yield from reservation_blocks(
            row,
            kind=_kind(actor, row) if is_known else "other",
            booking=visible_booking(row) if is_known else None,
        )


def reservation_blocks(row: Booking, *, kind: Kind, booking: VisibleBooking | None) -> Iterator[Block]:
    """The blocks of a waiting booking's planned places."""
    if row.planned_starts is None or row.planned_ends is None:
        return
    for place in row.planned_places:
        yield Block(
            gpu=UUID(place["gpu"]),
            start=place["start"],
            size=place["size"],
            whole=place["profile"] is None,
            profile=place["profile"],
            shared=place.get("share") is not None,
            share=place.get("share"),
            starts=row.planned_starts,
            ends=row.planned_ends,
            kind=kind,
            booking=booking,
            expected=True,
        )


_FOREIGN = """
SELECT gpu_id, mode, start, size, period_start, period_end, false
  FROM portal_busy(%(since)s, %(until)s) WHERE NOT mine
UNION ALL
SELECT gpu_id, mode, start, size, period_start, period_end, true
  FROM portal_planned(%(since)s, %(until)s) WHERE NOT mine
"""


def _foreign_blocks(window: Window) -> Iterator[Block]:
    """Places and reservations of other tenants, without their owners and reasons."""
    with connection.cursor() as cursor:
        cursor.execute(_FOREIGN, {"since": window.starts, "until": window.ends})
        for gpu, mode, start, size, starts, ends, expected in cursor.fetchall():
            yield Block(
                gpu=gpu,
                start=start,
                size=size,
                whole=mode != Gpu.Mode.SLICED,
                shared=mode == Gpu.Mode.SHARED,
                profile=None,
                starts=starts,
                ends=ends,
                kind="other",
                booking=None,
                expected=expected,
            )


def waiting_rows(
    bookings: QuerySet[Booking], seen_as: Callable[[Booking], tuple[VisibleBooking, Kind]]
) -> Iterator[WaitingRow]:
    """Those of the bookings that wait, by start; the elements of an array are one row."""
    waiting = bookings.filter(state__in=(State.REQUESTED, State.QUEUED))
    rows = waiting.select_related("tenant", "tier", "project", "array")
    of_arrays = rows.filter(array__isnull=False).order_by("array_id", "planned_starts", "array_index")
    seen = {
        row["array"]: (int(row["runs"]), row["ends"])
        for row in waiting.filter(array__isnull=False)
        .order_by()
        .values("array")
        .annotate(runs=Count("id"), ends=Max("planned_ends"))
    }
    alone = rows.filter(array=None).order_by("planned_starts", "submitted")[:MOST_WAITING]
    found = [*alone, *of_arrays.distinct("array_id")[:MOST_WAITING]]
    late = datetime.max.replace(tzinfo=UTC)
    for row in sorted(found, key=lambda each: (each.planned_starts or late, each.submitted)):
        runs, ends = seen[row.array_id] if row.array_id else (1, row.planned_ends)
        booking, kind = seen_as(row)
        yield WaitingRow(
            booking=booking.of_array(runs),
            kind=kind,
            starts=None if row.is_unplanned else row.planned_starts,
            ends=ends,
            gpu_class=row.planned_class,
        )


def bookings_visible(actor: Actor) -> QuerySet[Booking]:
    """Bookings in all projects in which the reader has a role."""
    bookings = Booking.objects.filter(tenant_id=actor.tenant_id)
    if actor.is_tenant_admin:
        return bookings
    return bookings.filter(project_id__in=list(actor.roles))


def visible_booking(booking: Booking) -> VisibleBooking:
    """The booking as a reader may see it. Needs `tier` and `project` loaded."""
    return VisibleBooking(
        label=booking.label,
        name=booking.name,
        state=booking.state,
        tier=booking.tier.name,
        # A booking within its guarantee can't be paused; one on borrowed GPUs can.
        pausable=booking.tier.pausable
        and (booking.borrowed_units > 0 or not booking.tier.counts_against_guarantee),
        project=booking.project.name,
        array=booking.array.label if booking.array is not None else "",
    )


def blocks_joined(blocks: Iterable[Block]) -> Iterator[Block]:
    """The blocks, with the elements of an array that follow each other on a GPU as one."""
    rows: dict[object, list[Block]] = defaultdict(list)
    for block in blocks:
        if block.booking is None or not block.booking.array:
            yield block
            continue
        place = (block.gpu, block.start, block.size, block.shared, block.expected, block.over)
        rows[(*place, block.booking.array, block.booking.state)].append(block)
    for elements in rows.values():
        yield from _runs(sorted(elements, key=lambda each: each.starts))


def _runs(elements: Sequence[Block]) -> Iterator[Block]:
    """Elements of one place by their starts; without a long gap between them they are one block."""
    run = [elements[0]]
    for block in (*elements[1:], None):
        if block is not None and timedelta(0) <= block.starts - run[-1].ends <= LONGEST_GAP:
            run.append(block)
            continue
        first = run[0]
        booking = first.booking.of_array(len(run)) if first.booking else None
        yield replace(first, ends=run[-1].ends, booking=booking)
        run = [block] if block is not None else []


def _kind(actor: Actor, booking: Booking) -> Kind:
    return "mine" if booking.owner_id == actor.user_id else "project"
