"""Cancellation and release: owners end their bookings before the planned end."""

from datetime import datetime, timedelta

from django.db import transaction

from allocation.models import Booking, PolicyVersion
from allocation.points.bookings import before_cancel
from allocation.rules.states import ON_HARDWARE, TERMINAL, State
from allocation.services.bookings.approval.decisions import approval_withdraw
from allocation.services.bookings.change.calendar_cuts import is_awaited
from allocation.services.record.costs import unused_seconds, waiting_settle
from allocation.services.record.history import Event
from allocation.services.record.open_pauses import pause_end
from allocation.services.runs.late_shares import late_fee, late_fee_take
from allocation.services.runs.transition import booking_lock, booking_move, planned_rows_supersede
from allocation.words.events import event_text
from allocation.words.refusals import refusal_text
from billing.rules import money_text, rest_in_cents
from solver import Policy
from tenants.access import Actor
from tenants.audit import actor_record
from tenants.outbox import task_request
from tenants.platform.errors import Refused


def booking_cancel(*, actor: Actor, booking: Booking, now: datetime) -> Booking:
    """Cancels the booking: before its start at once. What it gives up later than the notice of its
    tier costs the late share.

    A booking that has started ends, and is over when its devices are proven empty. Idempotent.

    Raises:
        Refused: `booking_over`.
    """
    with transaction.atomic():
        booking = booking_lock(booking.id, "project", "tier", "owner")
        state = State(booking.state)
        if state is State.CANCELLED or state is State.ENDING:
            return booking
        if state in TERMINAL:
            raise _already_over(booking)
        if state in ON_HARDWARE:
            return _end_on_hardware(actor, booking, "cancelled", now)
        if state is State.AWAITING_APPROVAL:
            approval_withdraw(booking, now)
        before_cancel(booking, now)
        return _end_off_hardware(actor, booking, State.CANCELLED, now)


def booking_release(*, actor: Actor, booking: Booking, now: datetime) -> Booking:
    """Releases the devices early. Only the time until now, or until a pause's notice, is charged.

    A paused booking is over at once.

    Raises:
        Refused: `not_started` (cancel it instead) or `booking_over`.
    """
    with transaction.atomic():
        booking = booking_lock(booking.id, "project", "tier", "owner")
        state = State(booking.state)
        if state is State.ENDING:
            return booking
        if state in TERMINAL:
            raise _already_over(booking)
        if state is State.PAUSED:
            return _end_off_hardware(actor, booking, State.ENDED, now)
        if state not in ON_HARDWARE:
            raise Refused("not_started", refusal_text("not_started", label=booking.label))
        return _end_on_hardware(actor, booking, "released", now)


def _end_on_hardware(actor: Actor, booking: Booking, outcome: str, now: datetime) -> Booking:
    late_fee_take(booking, late_fee(booking, None, now), now)
    text = event_text("released", actor=actor.name)
    booking_move(
        booking,
        State.ENDING,
        event=Event("ending", text, actor.user_id),
        now=now,
        outcome=outcome,
        released_at=min(now, booking.planned_ends or now),
    )
    _audit(actor, f"booking.{outcome}", booking, now)
    task_request("allocation.cycle")
    return booking


def _end_off_hardware(actor: Actor, booking: Booking, state: State, now: datetime) -> Booking:
    """Ends a booking that is on no device, and releases the rest of its hold."""
    is_cancelled = state is State.CANCELLED
    cooling = _cooling_until(booking, now) if is_cancelled else None
    planned_rows_supersede(booking)
    late_fee_take(booking, late_fee(booking, None, now), now)
    charged = waiting_settle(booking, now, unused_seconds(booking, now))
    pause_end(booking, now)
    text = event_text(
        "cancelled" if is_cancelled else "released_paused",
        actor=actor.name,
        freed=money_text(rest_in_cents(booking.hold_amount, charged), booking.currency),
    )
    booking_move(
        booking,
        state,
        event=Event(str(state), text, actor.user_id),
        now=now,
        outcome="cancelled" if is_cancelled else "released",
        charged=charged,
        ended_at=now,
        cooling_until=cooling,
    )
    _audit(actor, "booking.cancel" if is_cancelled else "booking.released", booking, now)
    task_request("allocation.cycle")
    return booking


def _cooling_until(booking: Booking, now: datetime) -> datetime | None:
    """Until when nobody is paused for the owner of a booking on its class, because it is cancelled
    although others had notice for it; None: nobody had."""
    if booking.state not in (State.QUEUED, State.SCHEDULED) or not is_awaited(booking):
        return None
    live = PolicyVersion.objects.get(state=PolicyVersion.State.LIVE)
    seconds = live.document.get("cool_down", Policy(live.number).cool_down)
    return now + timedelta(seconds=seconds)


def _already_over(booking: Booking) -> Refused:
    state = booking.get_state_display().lower()
    return Refused("booking_over", refusal_text("booking_over", label=booking.label, state=state))


def _audit(actor: Actor, action: str, booking: Booking, now: datetime) -> None:
    detail = {"label": booking.label, "state": booking.state}
    actor_record(actor, action, ("booking", booking.id), now, detail)
