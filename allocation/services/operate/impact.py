"""What an act of operators would end or move, counted before it is done. Nothing is saved."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Max, Q, QuerySet

from allocation.models import Allocation, Booking, Gpu, Maintenance, Node
from allocation.services.operate.drain import fence_check, fence_places
from allocation.services.operate.maintenance import (
    LONGEST,
    MaintenanceTerms,
    Moved,
    maintenance_preview,
)
from allocation.services.runs.end import STARTED
from allocation.services.runs.interrupt import REPLAN_AHEAD, RUNNING
from tenants.models import User
from tenants.platform.errors import invalid


@dataclass(frozen=True, slots=True)
class DrainImpact:
    """What taking a node out of planning does: runs that go on, runs that a deadline breaks off,
    starts within the hour that are placed anew, and later starts that wait for the node."""

    unaffected: tuple[Booking, ...]
    broken: tuple[Booking, ...]
    soon: tuple[Moved, ...]
    later: int
    last_end: datetime | None

    @property
    def is_any(self) -> bool:
        """Whether anybody notices."""
        return bool(self.unaffected or self.broken or self.soon or self.later)


@dataclass(frozen=True, slots=True)
class FenceImpact:
    """What the statement that hardware is off does: places that count as empty, runs that end."""

    places: int
    runs: tuple[Booking, ...]


@dataclass(frozen=True, slots=True)
class MaintenanceEndImpact:
    """What the early end of maintenance does: GPUs that take bookings again, dates called off."""

    gpus: int
    later: int


def drain_impact(*, operator: User, node: Node, by: datetime | None, now: datetime) -> DrainImpact:
    """What draining the node would do, by the solver's own answer for a node that is away.

    Raises:
        Refused: `deadline_past`.
    """
    if by is not None and by < now:
        raise invalid("deadline_past", "The deadline has passed already.", "by")
    wish = MaintenanceTerms(now, now + LONGEST, "drain", node=node.name, drain_by=now + LONGEST)
    moved = maintenance_preview(operator=operator, wish=wish, now=now).moved
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
    """What stating that the node, or one GPU of it, is off would end.

    Raises:
        Refused: as `hardware_fence`.
    """
    fence_check(node, gpu, note)
    rows = fence_places(node, gpu)
    return FenceImpact(rows.count(), tuple(_bookings(rows.filter(booking__state__in=RUNNING))))


def maintenance_end_impact(
    *, blackout: Maintenance, following: bool, now: datetime
) -> MaintenanceEndImpact:
    """What ending the maintenance now, or calling it off, would free."""
    wheres = Gpu.objects.filter(_hardware(blackout))
    rest = Maintenance.objects.filter(series=blackout.series, starts__gt=blackout.starts)
    later = rest.filter(ended_at=None, ends__gt=now).count() if blackout.series else 0
    return MaintenanceEndImpact(wheres.count(), later if following else 0)


def clock_impact(now: datetime) -> int:
    """How many runs are over by the clock as it is: they end when it counts again."""
    over = Allocation.objects.filter(state__in=STARTED, period__endswith__lte=now)
    return over.values("booking").distinct().count()


def pin_impact(*, gpu: Gpu, mode: str) -> int:
    """How many planned bookings of the GPU are in the other mode and are placed elsewhere."""
    if not mode:
        return 0
    other = Q(profile=None) if mode == "sliced" else Q(profile__isnull=False)
    rows = Allocation.objects.filter(other, gpu=gpu, state=Allocation.State.PLANNED)
    return rows.values("booking").distinct().count()


def _hardware(blackout: Maintenance) -> Q:
    if blackout.gpu_id is not None:
        return Q(id=blackout.gpu_id)
    return Q(node=blackout.node_id) if blackout.node_id else Q(node__rack=blackout.rack_id)


def _bookings(rows: QuerySet[Allocation]) -> Sequence[Booking]:
    found = Booking.objects.filter(allocations__in=rows).select_related("tenant").distinct()
    return list(found.order_by("planned_ends", "id"))


def _starts_by(booking: Booking, moment: datetime) -> bool:
    return booking.planned_starts is not None and booking.planned_starts <= moment
