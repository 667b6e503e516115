"""Running bookings as the solver reads them: idle GPUs, and GPUs where they can resume in place."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Q

from allocation.models import Allocation, Booking, Pause
from allocation.rules.nodes.suspending import why_not_suspendable
from allocation.rules.states import State
from allocation.services.snapshot.rows.of_bookings import Bookings, suspendable_rows
from solver import Place, Request
from solver.model.leaving import Idle
from tenants.models import Tier

_HERE = (Allocation.State.ACTIVE, Allocation.State.RELEASING)


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
        held = Allocation.objects.filter(booking__in=bookings, state__in=Allocation.LIVE, abandoned=False)
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


@dataclass(frozen=True, slots=True)
class OriginalGpus:
    """The GPUs. On others the work from `saved` to `until`, or to now, would be lost."""

    places: tuple[Place, ...]
    saved: datetime
    until: datetime | None


def running_on(now: datetime, only: Bookings) -> dict[UUID, OriginalGpus]:
    """Original GPUs of running bookings, all or some, that a pause would suspend."""
    return _homes(suspendable_rows(now, only), {})


def paused_on(pauses: Iterable[Pause]) -> dict[UUID, OriginalGpus]:
    """Original GPUs of pausing bookings that will be suspended and of those that were."""
    suspends = {each.booking_id: each for each in pauses if each.method == "suspend"}
    if not suspends:
        return {}
    rows = Allocation.objects.filter(booking__in=suspends, abandoned=False)
    there = Q(state__in=_HERE) | Q(state=Allocation.State.ENDED, suspended=True)
    rows = rows.filter(there).select_related("booking", "gpu__node").order_by("gpu_id")
    return _homes(rows, suspends)


def with_original_gpus(request: Request, home: OriginalGpus | None, now: datetime) -> Request:
    """The request with its original GPUs, if any, and how long it waits for them."""
    if home is None:
        return request
    lost = int(((home.until or now) - home.saved).total_seconds())
    return replace(request, home=home.places, home_wait=max(0, lost))


def _homes(rows: Iterable[Allocation], pauses: Mapping[UUID, Pause]) -> dict[UUID, OriginalGpus]:
    by_booking: dict[UUID, list[Allocation]] = defaultdict(list)
    for row in rows:
        by_booking[row.booking_id].append(row)
    found = {}
    for booking_id, mine in by_booking.items():
        begun = max(row.period.lower for row in mine)
        last = [row for row in mine if row.period.lower == begun]
        if _can_be_suspended(last):
            saved, until = _lost(last[0].booking, pauses.get(booking_id))
            places = tuple(Place(str(row.gpu_id), None, row.start, row.size) for row in last)
            found[booking_id] = OriginalGpus(places, saved, until)
    return found


def _can_be_suspended(rows: Sequence[Allocation]) -> bool:
    is_divided = any(row.profile is not None or row.share is not None for row in rows)
    drivers = [row.gpu.node.driver for row in rows]
    return why_not_suspendable(devices=len(rows), is_divided=is_divided, drivers=drivers) is None


def _lost(booking: Booking, pause: Pause | None) -> tuple[datetime, datetime | None]:
    """The start and end of the work that would be lost: last save and notice."""
    if pause is None:
        return booking.saved_at or booking.ready_at or booking.submitted, None
    if pause.emptied_at is None:
        return booking.saved_at or pause.ready_at, pause.notified_at
    return pause.notified_at - timedelta(seconds=pause.lost_seconds), pause.notified_at
