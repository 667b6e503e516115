"""Changes for which there was no room: they are asked for again, to wait for it."""

from datetime import datetime

from django.db import transaction
from django.db.models import F

from allocation.models import Booking, BookingChange
from allocation.rules.ask import AskDocument
from allocation.rules.changes import Strength
from allocation.rules.states import State
from allocation.services.bookings.change.changes import Patch, booking_patch
from allocation.services.bookings.change_rows import WAITED_FOR, Accept
from allocation.services.record.terms import Terms
from allocation.services.runs.transition import booking_lock
from allocation.words.refusals import refusal_text
from tenants.access import Actor
from tenants.platform.errors import Refused


def can_wait(change: BookingChange, booking: Booking, now: datetime) -> bool:
    """Whether a change that was not possible can be asked for again, to wait for room."""
    terms = Terms.from_json(change.target)
    until = terms.starts or change.start_by
    is_same = change.base_revision == booking.revision and change.group is None
    is_same = is_same and not change.is_sooner
    is_kept = change.state == BookingChange.State.KEPT and change.until is None
    is_full = bool(change.reasons) and change.reasons[0]["code"] in WAITED_FOR
    is_planned = booking.state in (State.QUEUED, State.SCHEDULED)
    return is_same and is_kept and is_full and is_planned and until is not None and until > now


def change_ask_again(*, actor: Actor, booking: Booking, now: datetime) -> Booking:
    """Asks again for the latest change, for which there was no room, so that it waits.

    Raises:
        Refused: `not_waitable` if the booking has changed since, or as `booking_patch`.
    """
    with transaction.atomic():
        booking = booking_lock(booking.id, "project", "tier", "owner", "campaign")
        rows = booking.changes.filter(strength=Strength.STRONGER)
        change = rows.order_by("-asked_at", F("decided_at").desc(nulls_first=True)).first()
        if change is None or not can_wait(change, booking, now):
            raise Refused("not_waitable", refusal_text("not_waitable"))
        asked = change.target
        patch = Patch(
            AskDocument.from_json(asked["ask"]),
            asked["tier"],
            accept=Accept(change.start_by, change.least_strength),
            waits=True,
        )
        return booking_patch(actor=actor, booking=booking, patch=patch, revision=None, now=now)
