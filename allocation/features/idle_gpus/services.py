"""What each GPU of a running booking does, and giving back those that do nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Avg, Count, Max, Min, Q

from allocation.access import access_booking, access_booking_to_give_back
from allocation.models import Allocation, Booking, GpuSample
from allocation.rules.states import State
from allocation.services.bookings.change.changes import Patch, booking_patch
from allocation.services.bookings.change.give_back import given_back_already
from allocation.services.runs.no_shows import presence_policy
from allocation.words.refusals import refusal_text
from tenants.access import Actor
from tenants.platform.errors import Refused

# A GPU is idle if it was less busy than the policy's bound for so long, in all readings.
WINDOW = timedelta(minutes=10)
# Readings come every 10 s; silence at the begin or the end of the window is no idleness.
SILENCE = timedelta(minutes=2)
LOOKED_BACK = timedelta(hours=6)


@dataclass(frozen=True, slots=True)
class GpuState:
    """A GPU of a running booking: `busy` percent in the last ten minutes, the most memory and programs in
    them, and since when it was idle, at most six hours ago. None: not measured, or not idle."""

    name: str
    busy: float | None
    memory_used_mb: int | None
    memory_total_mb: int | None
    processes: int | None
    idle_since: datetime | None

    @property
    def is_idle(self) -> bool:
        """Whether it did nothing in the whole window."""
        return self.idle_since is not None


def gpu_states(booking: Booking, now: datetime) -> list[GpuState]:
    """Returns the GPUs of a running booking of whole GPUs; none of others, whose parts have no use of their
    own that is measured."""
    if booking.state != State.ACTIVE or booking.ready_at is None or _is_divided(booking):
        return []
    rows = list(
        booking.allocations.filter(state=Allocation.State.ACTIVE, abandoned=False)
        .exclude(id__in=given_back_already(booking))
        .select_related("gpu__node")
        .order_by("gpu_number")
    )
    read = _read([row.id for row in rows], now)
    return [_state(booking, row, read.get(row.id, {}), now) for row in rows]


def booking_gpus(*, actor: Actor, reference: str, now: datetime) -> list[GpuState]:
    """Returns the GPUs of a booking. Raises Refused: `not_found`."""
    return gpu_states(access_booking(actor, reference), now)


def idle_gpus_give_back(*, actor: Actor, reference: str, now: datetime) -> list[GpuState]:
    """Gives back the GPUs of a running booking that are idle now; returns those that it keeps.

    Raises:
        Refused: `not_found`, `not_allowed`, `none_idle`, or as `gpus_give_back`.
    """
    booking = access_booking_to_give_back(actor, reference)
    states = gpu_states(booking, now)
    idle = tuple(each.name for each in states if each.is_idle)
    if not idle:
        raise Refused("none_idle", refusal_text("none_idle", label=booking.label))
    patch = Patch(give_back=idle)
    booking_patch(actor=actor, booking=booking, patch=patch, revision=None, now=now)
    return [each for each in states if each.name not in idle]


def _is_divided(booking: Booking) -> bool:
    ask = booking.ask
    return any(ask.get(name) for name in ("profile", "share", "groups", "host"))


def _read(rows: Sequence[Any], now: datetime) -> dict[Any, dict[str, Any]]:
    """The sums of readings by allocation, in one statement."""
    bound = presence_policy().idle_below
    lately = Q(at__gt=now - WINDOW)
    samples = GpuSample.objects.filter(allocation_id__in=rows, at__gt=now - LOOKED_BACK, at__lte=now)
    found = samples.values("allocation_id").annotate(
        busy=Avg("utilisation", filter=lately),
        memory_used_mb=Max("memory_used_mb", filter=lately),
        memory_total_mb=Max("memory_total_mb", filter=lately),
        most_processes=Max("processes", filter=lately),
        first=Min("at"),
        begins=Min("at", filter=lately),
        last=Max("at"),
        unknown=Count("id", filter=lately & Q(utilisation=None)),
        used_last=Max("at", filter=Q(utilisation__gte=bound)),
    )
    return {row["allocation_id"]: dict(row) for row in found}


def _state(booking: Booking, row: Allocation, read: dict[str, Any], now: datetime) -> GpuState:
    busy = read.get("busy")
    return GpuState(
        f"{row.gpu.node.name}/{row.gpu.index}",
        None if busy is None else float(busy),
        read.get("memory_used_mb"),
        read.get("memory_total_mb"),
        read.get("most_processes"),
        _idle_since(booking, read, now),
    )


def _idle_since(booking: Booking, read: dict[str, Any], now: datetime) -> datetime | None:
    """Since when nothing was done; None: something was, or it is not known."""
    begins, ready = read.get("begins"), booking.ready_at
    if begins is None or ready is None or read["unknown"]:
        return None
    is_covered = begins <= now - WINDOW + SILENCE and read["last"] > now - SILENCE
    since: datetime = max(read["used_last"] or read["first"], ready)
    return since if is_covered and since <= now - WINDOW + SILENCE else None
