"""Places that a plan keeps for bookings that wait for an approval.

They are bounded, and given up in time.
"""

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from allocation.models import Booking, Decision
from allocation.rules.states import State
from allocation.services.bookings.approval.requests import place_policy
from allocation.services.record.history import Event
from allocation.services.record.places import place_data
from allocation.services.runs.transition import (
    booking_change,
    booking_lock,
)
from allocation.services.snapshot.snapshot import instant
from allocation.words.events import event_text
from solver.model.plan import SoftPlace

_NONE: dict[str, object] = {
    "planned_starts": None,
    "planned_ends": None,
    "planned_class": "",
    "planned_places": [],
}
logger = logging.getLogger(__name__)


def places_lapsed(now: datetime) -> Q:
    """Returns the filter of bookings that wait for an approval and keep their place no longer."""
    return Q(state=State.AWAITING_APPROVAL, place_until__lte=now)


def soft_places_lapse(now: datetime) -> int:
    """Gives up the places that were kept long enough; returns how many. The bookings wait on."""
    due = Booking.objects.filter(places_lapsed(now)).order_by("id").values_list("id", flat=True)
    return sum(_lapse(booking_id, now) for booking_id in list(due))


def soft_places_changed(places: Iterable[SoftPlace]) -> tuple[SoftPlace, ...]:
    """Returns those that differ from what is stored."""
    rows = {row.booking: row for row in places}
    if not rows:
        return ()
    known = {str(row.id): row for row in Booking.objects.filter(id__in=map(UUID, rows))}
    return tuple(row for name, row in rows.items() if name in known and _facts(row) != _stored(known[name]))


def soft_places_write(places: Iterable[SoftPlace], decision: Decision, now: datetime) -> None:
    """Stores the places of bookings that still wait; each in its own transaction."""
    for place in places:
        with transaction.atomic():
            booking = booking_lock(UUID(place.booking))
            until = booking.place_until
            if booking.state == State.AWAITING_APPROVAL and until is not None and until > now:
                _write(booking, place, until, decision, now)


def _write(booking: Booking, place: SoftPlace, until: datetime, decision: Decision, now: datetime) -> None:
    facts, event = {**_facts(place), "decision": decision}, None
    if place.places:
        margin = timedelta(seconds=place_policy().soft_margin)
        until = min(until, instant(place.starts) - margin)
        facts["place_until"] = until
        # One that has moved is said, too: the page and REST name the place that is kept now.
        if booking.planned_starts != facts["planned_starts"]:
            times = {"starts": instant(place.starts).isoformat(), "until": until.isoformat()}
            detail = {"decision": decision.id, **times}
            event = Event("place_kept", event_text("place_kept"), detail=detail)
    elif booking.planned_starts is not None:
        detail = {"decision": decision.id}
        event = Event("place_lost", event_text("place_passed"), detail=detail)
    booking_change(booking, event=event, now=now, **facts)


def _lapse(booking_id: UUID, now: datetime) -> int:
    with transaction.atomic():
        booking = booking_lock(booking_id)
        until = booking.place_until
        if booking.state != State.AWAITING_APPROVAL or until is None or until > now:
            return 0
        had_place = booking.planned_starts is not None
        event = Event("place_lost", event_text("place_lapsed")) if had_place else None
        booking_change(booking, event=event, now=now, place_until=None, place_from=None, **_NONE)
    return 1


def _facts(place: SoftPlace) -> dict[str, object]:
    if not place.places:
        return dict(_NONE)
    return {
        "planned_starts": instant(place.starts),
        "planned_ends": instant(place.ends),
        "planned_class": place.gpu_class,
        "planned_places": [place_data(each) for each in place.places],
    }


def _stored(booking: Booking) -> dict[str, object]:
    return {name: getattr(booking, name) for name in _NONE}
