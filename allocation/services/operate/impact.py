"""Impact of an operator's action: the bookings that it would end or move. Nothing is saved."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Max, Q, QuerySet

from allocation.models import Allocation, Booking, Gpu, Maintenance, Node
from allocation.rules.states import RUNNING
from allocation.services.operate.drain import deadline_check, fence_check, fence_places
from allocation.services.operate.maintenance.plan import (
    LONGEST,
    MaintenanceTerms,
    Moved,
    maintenance_preview,
)
from allocation.services.runs.end import STARTED
from allocation.services.runs.interrupt import REPLAN_AHEAD
from tenants.models import User


@dataclass(frozen=True, slots=True)
class DrainImpact:
    """Impact of draining a node: runs that continue, runs that a deadline interrupts, starts within
    the hour that move to other GPUs, and later starts that wait for the node."""

    unaffected: tuple[Booking, ...]
    broken: tuple[Booking, ...]
    soon: tuple[Moved, ...]
    later: int
    last_end: datetime | None

    @property
    def is_any(self) -> bool:
        """Whether any booking is affected."""
        return bool(self.unaffected or self.broken or self.soon or self.later)


@dataclass(frozen=True, slots=True)
class FenceImpact:
    """Impact of fencing hardware: places that count as empty, and runs that end."""

    places: int
    runs: tuple[Booking, ...]


@dataclass(frozen=True, slots=True)
class MaintenanceEndImpact:
    """Impact of ending maintenance early: GPUs that are available again, and cancelled dates."""

    gpus: int
    later: int


def drain_impact(*, operator: User, node: Node, by: datetime | None, now: datetime) -> DrainImpact:
    """Impact of draining the node, by solving the calendar without it.

    Raises:
        Refused: `deadline_past`.
    """
    deadline_check(by, now)
    terms = MaintenanceTerms(now, now + LONGEST, "drain", node=node.name, drain_by=now + LONGEST)
    moved = maintenance_preview(operator=operator, terms=terms, now=now).moved
    rows = Allocation.objects.filter(gpu__node=node)
    planned = _bookings(rows.filter(state=Allocation.State.PLANNED))
    labels = {booking.label for booking in planned if _starts_by(booking, now + REPLAN_AHEAD)}
    running = rows.filter(state__in=STARTED)
    beyond = Q(period__endswith__gt=by) if by is not None else Q(pk=None)
    broken = _bookings(running.filter(beyond))
    unaffected = [each for each in _bookings(running) if each not in broken]
    return DrainImpact(
        tuple(unaffected),
        tuple(broken),
        tuple(each for each in moved if each.label in labels),
        len(planned) - len(labels),
        running.aggregate(last=Max("period__endswith"))["last"],
    )


def fence_impact(*, node: Node, gpu: Gpu | None, note: str) -> FenceImpact:
    """Impact of fencing the node, or one of its GPUs.

    Raises:
        Refused: as `hardware_fence`.
    """
    fence_check(node, gpu, note)
    rows = fence_places(node, gpu)
    return FenceImpact(rows.count(), tuple(_bookings(rows.filter(booking__state__in=RUNNING))))


def maintenance_end_impact(
    *, maintenance: Maintenance, following: bool, now: datetime
) -> MaintenanceEndImpact:
    """Impact of ending or cancelling the maintenance now."""
    wheres = Gpu.objects.filter(_hardware(maintenance))
    rest = Maintenance.objects.filter(series=maintenance.series, starts__gt=maintenance.starts)
    later = rest.filter(ended_at=None, ends__gt=now).count() if maintenance.series else 0
    return MaintenanceEndImpact(wheres.count(), later if following else 0)


def clock_impact(now: datetime) -> int:
    """Number of runs that are over by the current clock: they end once it is accepted."""
    over = Allocation.objects.filter(state__in=STARTED, period__endswith__lte=now)
    return over.values("booking").distinct().count()


def pin_impact(*, gpu: Gpu, mode: str) -> int:
    """Number of planned bookings on the GPU in the other mode, which move to other GPUs."""
    if not mode:
        return 0
    other = Q(profile=None) if mode == "sliced" else Q(profile__isnull=False)
    rows = Allocation.objects.filter(other, gpu=gpu, state=Allocation.State.PLANNED)
    return rows.values("booking").distinct().count()


def _hardware(maintenance: Maintenance) -> Q:
    if maintenance.gpu_id is not None:
        return Q(id=maintenance.gpu_id)
    return Q(node=maintenance.node_id) if maintenance.node_id else Q(node__rack=maintenance.rack_id)


def _bookings(rows: QuerySet[Allocation]) -> Sequence[Booking]:
    found = Booking.objects.filter(allocations__in=rows).select_related("tenant").distinct()
    return list(found.order_by("planned_ends", "id"))


def _starts_by(booking: Booking, moment: datetime) -> bool:
    return booking.planned_starts is not None and booking.planned_starts <= moment
