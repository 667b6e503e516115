"""Stops in force: which requests and bookings they cover, and what they say."""

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q
from django.utils.timezone import get_current_timezone

from allocation.models import Booking, Stop
from allocation.rules.ask import classes_asked
from allocation.rules.states import State
from allocation.words.reasons import reason_data, reason_shown
from solver.reasons.reason import Reason, reason
from tenants.platform.reference import by_version
from tenants.rules.moments import instant_text

# A run that is handed over already continues; a paused one does not resume.
STARTS_LATER = (
    *(State.REQUESTED, State.QUEUED, State.WAITLISTED, State.SCHEDULED),
    *(State.PAUSING, State.PAUSED),
)
# Codes of the reasons that `stop_why` gives.
STOP_CODES = ("stopped", "operator_paused")


@by_version
def _stops_open() -> tuple[Stop, ...]:
    """Stops that no operator has ended, the oldest first; the reader's tenant and all's."""
    return tuple(Stop.objects.filter(ended_at=None).order_by("since", "id"))


def stops_in_force(now: datetime) -> list[Stop]:
    """The current stops, the oldest first."""
    return [stop for stop in _stops_open() if stop.is_in_force(now)]


def stops_covering(tenant_id: UUID, tier: str, classes: Collection[str], now: datetime) -> list[Stop]:
    """The current stops of a request that names these classes; none is of one booking."""
    return [stop for stop in stops_in_force(now) if _covers(stop, tenant_id, tier, classes)]


def stops_of(booking: Booking, now: datetime) -> list[Stop]:
    """The current stops that cover a booking, that of the booking alone first."""
    classes = classes_asked(booking.ask)
    alone = [stop for stop in stops_in_force(now) if stop.booking_id == booking.id]
    return alone + stops_covering(booking.tenant_id, booking.tier_id, classes, now)


def bookings_covered(stops: Iterable[Stop]) -> Q:
    """The bookings that any of these stops covers."""
    found = Q(id__in=())
    alone: list[UUID] = []
    for stop in stops:
        if stop.scope == Stop.Scope.SITE:
            found |= Q(id__isnull=False)
        elif stop.booking_id is not None:
            alone.append(stop.booking_id)
        elif stop.tenant_id is not None:
            found |= Q(tenant=stop.tenant_id)
        elif stop.tier_id is not None:
            found |= Q(tier=stop.tier_id)
        else:
            found |= Q(ask__classes__contains=stop.gpu_class_id)
            found |= Q(ask__groups__contains=[{"gpu_class": stop.gpu_class_id}])
    return found | Q(id__in=alone) if alone else found


def stop_reason(booking: Booking, now: datetime) -> dict[str, Any] | None:
    """The stop that keeps the booking from starting, as a reason of a decision.

    None if the booking's own reasons state it already.
    """
    if booking.state not in STARTS_LATER or any(each.get("code") in STOP_CODES for each in booking.reasons):
        return None
    stops = stops_of(booking, now)
    if not stops:
        return None
    return reason_shown(reason_data(stop_why(stops[0])))


def stop_why(stop: Stop) -> Reason:
    """The stop as the reason of what does not start."""
    if stop.booking_id is not None:
        return reason("operator_paused", stop_frees_at(stop), why=stop_facts(stop)["why"])
    return reason("stopped", stop_frees_at(stop), **stop_facts(stop))


def stop_facts(stop: Stop) -> dict[str, str]:
    """What is stopped, and the operator's reason."""
    return {"owner": stop.of, "why": stop.reason.rstrip(".")}


def stop_frees_at(stop: Stop) -> int | None:
    """The Unix second at which the stop ends by itself; None if an operator has to end it."""
    return None if stop.until is None else int(stop.until.timestamp())


def stop_sentence(stop: Stop, now: datetime) -> str:
    """`Operators have stopped new work of the tier spot since 22 Nov 14:05 CET: …`."""
    since, why = instant_text(stop.since, get_current_timezone(), now), stop.reason.rstrip(".")
    return f"Operators have stopped new work of {stop.of} since {since}: {why}."


def _covers(stop: Stop, tenant_id: UUID, tier: str, classes: Collection[str]) -> bool:
    if stop.scope == Stop.Scope.SITE:
        return True
    if stop.booking_id is not None:
        return False
    if stop.tenant_id is not None:
        return stop.tenant_id == tenant_id
    return stop.tier_id == tier or stop.gpu_class_id in classes
