"""Changes of bookings that need an approval: whether, by which people, and how it is asked for."""

from datetime import datetime

from allocation.models import Approval, Booking, BookingChange
from allocation.queries.fleet.catalogue import ask_units
from allocation.rules.ask import AskDocument
from allocation.rules.states import State
from allocation.services.bookings.approval_requests import (
    Needed,
    approval_of,
    askable_check,
    asked_event,
    rules_in_force,
    rules_met,
)
from allocation.services.record.refusals import refusal
from allocation.services.record.terms import Terms, booking_with
from allocation.services.runs.transition import booking_change
from allocation.words.refusals import refusal_text
from tenants.access import Actor


def approval_needed(actor: Actor, booking: Booking, terms: Terms, now: datetime) -> Needed | None:
    """Returns the approval that the booking as a whole needs with these terms, if any.

    A request that waits for its approval needs one also if it is smaller now.

    Raises:
        Refused: `approval_needed` for a date of a series that waits for its approval as a whole.
    """
    changed = booking_with(booking, terms)
    units = {changed.id: ask_units(AskDocument.from_json(terms.ask))}
    rules = rules_met(rules_in_force(actor, changed.project_id), [changed], units, now)
    if rules:
        needed = Needed.of(rules)
    elif booking.state == State.AWAITING_APPROVAL:
        present = _open(booking)
        needed = Needed(tuple(present.rules), present.step_list)
    else:
        return None
    if booking.state == State.AWAITING_APPROVAL and booking.series_id is not None:
        sentence = refusal_text("change_while_approval", label=booking.label)
        raise refusal("approval_needed", sentence, "conflict", "request")
    return needed


def change_approval_request(
    actor: Actor, booking: Booking, change: BookingChange, needed: Needed, now: datetime
) -> None:
    """Asks for the approval of a stored change; the booking keeps what it has meanwhile.

    Raises:
        Refused: `too_many_approvals`, `no_approver` or `approval_too_late`.
    """
    askable_check(actor, booking.project_id, needed)
    changed = booking_with(booking, Terms.from_json(change.target))
    approval_of(actor, changed, needed, now, change=change).save(force_insert=True)
    booking_change(booking, event=asked_event(actor, needed), now=now)


def approval_replace(actor: Actor, booking: Booking, needed: Needed, now: datetime) -> None:
    """Asks anew for the approval of a booking whose request has changed while it waits for one.

    The time for which its place is kept does not begin again.

    Raises:
        Refused: `no_approver` or `approval_too_late`.
    """
    approval = _open(booking)
    approval.state, approval.decided = Approval.State.WITHDRAWN, now
    approval.save(update_fields=["state", "decided"])
    askable_check(actor, booking.project_id, needed)
    approval_of(actor, booking, needed, now).save(force_insert=True)
    booking_change(booking, event=asked_event(actor, needed), now=now)


def _open(booking: Booking) -> Approval:
    """The open request of a booking that waits for its approval, locked."""
    rows = Approval.objects.select_for_update(of=("self",))
    return rows.get(booking=booking, change=None, state=Approval.State.OPEN)
