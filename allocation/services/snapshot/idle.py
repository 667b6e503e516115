"""Running bookings with idle GPUs whose owners were warned, as the solver reads them."""

from collections import defaultdict
from datetime import datetime, timedelta
from uuid import UUID

from allocation.models import Allocation, Booking
from allocation.rules.states import State
from allocation.solver.model.leaving import Idle
from tenants.models import Tier


def idle_read(now: datetime) -> tuple[Idle, ...]:
    """Every warned booking of a tier that pauses or ends idle ones, in two statements.

    One whose use is unknown for two minutes is left out: silence is no idleness.
    """
    rows = Booking.objects.filter(
        state=State.ACTIVE,
        idle_veto_until__isnull=False,
        idle_counted_at__gt=now - timedelta(minutes=2),
        planned_ends__gt=now,
    ).exclude(tier__idle_action=Tier.IdleAction.TELL)
    bookings = list(rows.select_related("tier").order_by("id"))
    gpus: dict[UUID, set[str]] = defaultdict(set)
    if bookings:
        held = Allocation.objects.filter(
            booking__in=bookings, state__in=Allocation.LIVE, abandoned=False
        )
        for booking, gpu in held.values_list("booking_id", "gpu_id"):
            gpus[booking].add(str(gpu))
    return tuple(_idle_of(each, tuple(sorted(gpus[each.id]))) for each in bookings if gpus[each.id])


def _idle_of(booking: Booking, gpus: tuple[str, ...]) -> Idle:
    counted, until = booking.idle_counted_at, booking.idle_veto_until
    if counted is None or until is None:
        raise LookupError(f"{booking.id} is not idle")
    is_paused = booking.tier.idle_action == Tier.IdleAction.PAUSE
    return Idle(
        booking=str(booking.id),
        gpus=gpus,
        since=int(counted.timestamp()) - booking.idle_seconds,
        veto_until=int(until.timestamp()) + bool(until.microsecond),
        grace=booking.tier.grace_seconds if is_paused else 0,
    )
