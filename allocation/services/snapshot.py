"""The whole input of a cycle, read at one instant in a constant number of queries."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from django.db import connection, transaction

from allocation.models import Allocation, Booking, Gpu, GpuModel, MigPlacement, Node
from allocation.rules.ask import AskDocument
from allocation.rules.states import State
from allocation.services.bookings import EXTENDABLE
from allocation.services.replace import WORTH_SECONDS, time_left
from allocation.services.snapshot_blackouts import blackouts_read
from allocation.services.snapshot_quota import caps_read, limits_read, tiers_read, used_read
from allocation.solver import (
    Ask,
    Extension,
    Held,
    Host,
    Model,
    Place,
    Placement,
    Promise,
    Request,
    Snapshot,
)
from allocation.solver import Gpu as SolverGpu
from allocation.solver.types import Mode

# A device that was given back is cleared within seconds. What takes longer is expected to take as
# long again as it has taken already: nobody is promised the room of a device that hangs.
CLEARING_SECONDS = 5


def snapshot_take(now: datetime) -> Snapshot:
    """Reads fleet, calendar, wishes and limits in one REPEATABLE READ, READ ONLY transaction.

    For the system's role, which sees every tenant. Must not run inside a transaction.
    """
    with transaction.atomic(durable=True):
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        return snapshot_read(now)


def snapshot_read(now: datetime) -> Snapshot:
    """The same within a transaction that is there: for looking ahead, not for deciding."""
    used = used_read(now)
    return Snapshot(
        now=seconds(now),
        models=models_read(),
        gpus=gpus_read(),
        held=_held(now),
        requests=_requests(now),
        extensions=_extensions(),
        limits=limits_read(),
        tiers=tiers_read(),
        caps=caps_read(now, used),
        used=used,
        hosts=hosts_read(),
        blackouts=blackouts_read(now),
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
        )
        for model in GpuModel.objects.order_by("slug")
    )


def gpus_read() -> tuple[SolverGpu, ...]:
    """Every GPU; usable when it is healthy and its node takes work."""
    return tuple(
        SolverGpu(
            id=str(gpu.id),
            number=gpu.number,
            node=gpu.node.name,
            rack=gpu.node.rack.name,
            index=gpu.index,
            gpu_class=gpu.gpu_class_id,
            model=gpu.model_id,
            domain=gpu.domain,
            usable=gpu.health == Gpu.Health.OK and gpu.node.takes_work,
            mode=_fixed_mode(gpu),
        )
        for gpu in Gpu.objects.select_related("node__rack", "model")
    )


def place_of(data: dict[str, Any]) -> Place:
    """A place as it is stored on a booking."""
    return Place(data["gpu"], data["profile"], data["start"], data["size"], data.get("share"))


def place_data(place: Place) -> dict[str, Any]:
    """A place as JSON, for the booking."""
    return {
        "gpu": place.gpu,
        "profile": place.profile,
        "start": place.start,
        "size": place.size,
        "share": place.share,
    }


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
    )


def of_host(booking: Booking) -> tuple[int, int]:
    """Cores (thousandths) and memory (MiB) that come with each of a booking's places."""
    return booking.ask.get("cores", 0) * 1_000, booking.ask.get("memory", 0) * 1_024


def hosts_read() -> tuple[Host, ...]:
    """What each node that has reported has beside its GPUs."""
    return tuple(
        Host(node.name, node.cores * 1_000, node.memory_mb)
        for node in Node.objects.filter(cores__gt=0).order_by("name")
    )


def _fixed_mode(gpu: Gpu) -> Mode | None:
    if gpu.model.mode_switch != "reset":
        return None
    return "sliced" if gpu.mode == Gpu.Mode.SLICED else "whole"


def _held(now: datetime) -> tuple[Held, ...]:
    rows = Allocation.objects.filter(state__in=Allocation.LIVE).select_related("booking")
    rows = rows.order_by("id")
    return tuple(_held_of(row, seconds(now)) for row in rows)


def _held_of(row: Allocation, now: int) -> Held:
    """What a booking has left behind keeps its place, but is nobody's use any more."""
    started = row.state != Allocation.State.PLANNED
    ends = seconds(row.period.upper)
    cores, memory = of_host(row.booking)
    return Held(
        id=str(row.id),
        booking=f"left {row.id}" if row.left else str(row.booking_id),
        tenant="" if row.left else str(row.tenant_id),
        project="" if row.left else str(row.project_id),
        place=Place(str(row.gpu_id), row.profile, row.start, row.size, row.share),
        starts=seconds(row.period.lower),
        ends=max(ends, now + max(CLEARING_SECONDS, now - ends)) if started else ends,
        started=started,
        tier=row.booking.tier_id,
        cores=cores,
        memory=memory,
        owner=str(row.booking.owner_id),
    )


def _requests(now: datetime) -> tuple[Request, ...]:
    rows = Booking.objects.filter(state__in=[State.REQUESTED, State.QUEUED]).select_related("tier")
    return tuple(_request_of(row, now) for row in rows.order_by("id"))


def requests_of(rows: Iterable[Booking], now: datetime) -> tuple[Request, ...]:
    """Bookings, with their tiers loaded, as if they were waiting."""
    return tuple(_request_of(row, now) for row in rows)


def _request_of(row: Booking, now: datetime) -> Request:
    duration, latest = row.duration_seconds, row.deadline
    if row.replaced:
        # What is left of a fixed window is taken where it fits, if it is worth a start at all.
        duration, latest = time_left(row, now)
        duration = max(WORTH_SECONDS, duration)
    return Request(
        booking=str(row.id),
        tenant=str(row.tenant_id),
        project=str(row.project_id),
        tier=row.tier_id,
        priority=row.tier.priority,
        submitted=seconds(row.submitted),
        ask=solver_ask(AskDocument.from_json(row.ask)),
        duration=duration,
        earliest=seconds(row.not_before),
        latest=seconds(latest) if latest else None,
        fixed=row.starts is not None and not row.replaced,
        promise=_promise_of(row),
        owner=str(row.owner_id),
    )


def _promise_of(row: Booking) -> Promise | None:
    if not row.planned_places or row.planned_starts is None or row.planned_ends is None:
        return None
    return Promise(
        starts=seconds(row.planned_starts),
        ends=seconds(row.planned_ends),
        places=tuple(place_of(place) for place in row.planned_places),
    )


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
