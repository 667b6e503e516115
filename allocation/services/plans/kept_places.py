"""Places that a plan keeps for bookings without GPUs: for an approval, or as an offer.

They are bounded, and given up in time.
"""

import logging
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from allocation.models import Booking, Decision, WaitOffer
from allocation.rules.states import State
from allocation.services.bookings.approval.requests import place_policy
from allocation.services.bookings.waiting.offers import offer_withdraw
from allocation.services.plans.assignments import (
    Fleet,
    PlanStale,
    allocations_write,
    class_price_facts,
)
from allocation.services.record.history import Event
from allocation.services.record.places import place_data
from allocation.services.runs.transition import (
    booking_change,
    booking_lock,
    booking_move,
    planned_rows_supersede,
)
from allocation.services.snapshot.snapshot import instant
from allocation.words.events import event_text
from solver import Assign, Plan, Snapshot
from solver.model.plan import Offered, SoftPlace
from tenants.outbox import task_request

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


def offers_write(plan: Plan, snapshot: Snapshot, decision: Decision, now: datetime) -> int:
    """Writes each offer in its own transaction; returns how many. One whose place is taken by now,
    or whose booking has left the list, is decided again in the next turn."""
    if not plan.offers:
        return 0
    offered = replace(plan, assigns=tuple(_assigns(plan.offers)), moves=())
    fleet = Fleet.read(snapshot, offered, now)
    return sum(_write_offer(offered, fleet, decision, now) for offered in plan.offers)


def offers_take_back(plan: Plan, decision: Decision, now: datetime) -> int:
    """Withdraws the offers of a plan without which a claim inside its guarantee starts; the next
    turn gives it the place. Returns how many. One that was accepted meanwhile stays."""
    taken = sum(_take_back(UUID(each), decision, now) for each in plan.offers_withdrawn)
    if taken:
        task_request("allocation.cycle")
    return taken


def _take_back(booking_id: UUID, decision: Decision, now: datetime) -> bool:
    with transaction.atomic():
        booking = booking_lock(booking_id, "tier", "project")
        if booking.state != State.OFFERED:
            return False
        offer_withdraw(booking, now)
        planned_rows_supersede(booking)
        text, detail = event_text("offer_withdrawn"), {"decision": decision.id}
        event = Event("offer_withdrawn", text, detail=detail)
        booking_move(booking, State.WAITLISTED, event=event, now=now)
    return True


def _assigns(offers: Iterable[Offered]) -> Iterable[Assign]:
    return (Assign(o.booking, o.gpu_class, o.places, o.starts, o.ends) for o in offers)


def _write_offer(offered: Offered, fleet: Fleet, decision: Decision, now: datetime) -> bool:
    try:
        with transaction.atomic():
            booking = booking_lock(UUID(offered.booking), "tier")
            if booking.state != State.WAITLISTED:
                return False
            (assign,) = _assigns([offered])
            allocations_write({offered.booking: booking}, [assign], fleet, decision)
            _offer(booking, offered, decision, now)
    except PlanStale as stale:
        logger.info("An offer was dropped: %s", stale)
        return False
    return True


def _offer(booking: Booking, offered: Offered, decision: Decision, now: datetime) -> None:
    starts, ends, until = map(instant, (offered.starts, offered.ends, offered.until))
    offer = WaitOffer(
        tenant_id=booking.tenant_id,
        booking=booking,
        owner_id=booking.owner_id,
        gpu_class=offered.gpu_class,
        starts=starts,
        ends=ends,
        # Whole seconds, as the clock of REST: an answer in the same second is not before it.
        made_at=now.replace(microsecond=0),
        until=until,
        decision=decision,
    )
    offer.save(force_insert=True)
    times = {"starts": starts.isoformat(), "until": until.isoformat()}
    detail = {"decision": decision.id, "offer": str(offer.id), **times}
    booking_move(
        booking,
        State.OFFERED,
        event=Event("offered", event_text("offered"), detail=detail),
        now=now,
        decision=decision,
        planned_starts=starts,
        planned_ends=ends,
        planned_class=offered.gpu_class,
        **class_price_facts(booking, offered.gpu_class),
    )
