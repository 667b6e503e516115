"""Carries out what a plan says about idle bookings: their tier ends or pauses them."""

from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from allocation.models import Booking, Decision
from allocation.rules.states import TERMINAL, State
from allocation.services.plans.assignments import PlanStale
from allocation.services.plans.pauses import pause_begin
from allocation.services.record.counters import counter_add
from allocation.services.record.history import Event
from allocation.services.runs.idle_use import IDLE_RULE
from allocation.services.runs.transition import booking_lock, booking_move
from allocation.words.events import event_text
from solver import Plan
from solver.model.plan import IdleRelease
from tenants.models import Tier
from tenants.outbox import task_request


def idle_write(plan: Plan, decision: Decision, now: datetime) -> int:
    """Ends or pauses each idle booking of a plan in its own transaction; returns how many.

    One that is in use again, or whose owner still needs it, keeps its GPUs.
    """
    taken = sum(_write(each, decision, now) for each in plan.idle)
    if taken:
        task_request("allocation.cycle")
    return taken


def _write(release: IdleRelease, decision: Decision, now: datetime) -> bool:
    with transaction.atomic():
        booking = booking_lock(UUID(release.booking), "tier")
        until = booking.idle_veto_until
        if booking.state != State.ACTIVE or until is None or until > now:
            return False
        beneficiary = Booking.objects.get(id=UUID(release.beneficiary))
        if beneficiary.state in TERMINAL:
            return False
        if booking.tier.idle_action == Tier.IdleAction.PAUSE:
            return _pause(booking, beneficiary, release, decision, now)
        _end(booking, decision, now)
    return True


def _pause(
    booking: Booking, beneficiary: Booking, release: IdleRelease, decision: Decision, now: datetime
) -> bool:
    at = now + timedelta(seconds=booking.tier.grace_seconds)
    try:
        with transaction.atomic():
            pause_begin(booking, beneficiary, at, release.reasons, decision, now)
    except PlanStale:
        return False
    Booking.objects.filter(id=booking.id).update(awaits_check_in=True)
    counter_add("idle_releases")
    return True


def _end(booking: Booking, decision: Decision, now: datetime) -> None:
    event = Event(
        "idle_ended",
        event_text("idle_ended", minutes=booking.idle_seconds // 60),
        detail={"rule": IDLE_RULE.id, "idle": booking.idle_seconds, "decision": decision.id},
    )
    booking_move(booking, State.ENDING, event=event, now=now, outcome="idle", released_at=now)
    counter_add("idle_releases")
