"""Offers of a plan: written, and withdrawn where a claim inside its guarantee needs the place."""

import logging
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from django.db import transaction

from allocation.features.waiting_list.models import WaitOffer
from allocation.features.waiting_list.offers import offer_withdraw
from allocation.models import Booking, Decision
from allocation.rules.states import State
from allocation.services.plans.assignments import (
    Fleet,
    PlanStale,
    allocations_write,
    class_price_facts,
)
from allocation.services.record.history import Event
from allocation.services.runs.transition import booking_lock, booking_move, planned_rows_supersede
from allocation.services.snapshot.snapshot import instant
from allocation.words.events import event_text
from solver import Assign, Plan, Snapshot
from solver.model.plan import Offered
from tenants.outbox import task_request

logger = logging.getLogger(__name__)


def offers_of_plan(plan: Plan, snapshot: Snapshot, decision: Decision, now: datetime) -> None:
    """Carries out what a written plan says of offers."""
    _offers_write(plan, snapshot, decision, now)
    _offers_take_back(plan, decision, now)


def _offers_write(plan: Plan, snapshot: Snapshot, decision: Decision, now: datetime) -> None:
    """Writes each offer in its own transaction. One whose place is taken by now, or whose booking has
    left the list, is decided again in the next turn."""
    if not plan.offers:
        return
    placed = replace(plan, assigns=tuple(_assigns(plan.offers)), moves=())
    fleet = Fleet.read(snapshot, placed, now)
    for offered in plan.offers:
        _write_offer(offered, fleet, decision, now)


def _offers_take_back(plan: Plan, decision: Decision, now: datetime) -> None:
    """Withdraws the offers of a plan without which a claim inside its guarantee starts; the next
    turn gives it the place. One that was accepted meanwhile stays."""
    if sum(_take_back(UUID(each), decision, now) for each in plan.offers_withdrawn):
        task_request("allocation.cycle")


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


def _assigns(offers: Iterable[Offered]) -> list[Assign]:
    return [Assign(o.booking, o.gpu_class, o.places, o.starts, o.ends) for o in offers]


def _write_offer(offered: Offered, fleet: Fleet, decision: Decision, now: datetime) -> None:
    try:
        with transaction.atomic():
            booking = booking_lock(UUID(offered.booking), "tier")
            if booking.state == State.WAITLISTED:
                allocations_write({offered.booking: booking}, _assigns([offered]), fleet, decision)
                _offer(booking, offered, decision, now)
    except PlanStale as stale:
        logger.info("An offer was dropped: %s", stale)


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
