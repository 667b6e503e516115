"""Withdrawals of changes that wait for a decision, an approval or room."""

from datetime import datetime

from django.db import transaction

from allocation.models import Booking, BookingChange
from allocation.services.bookings.change_rows import change_close, change_open
from allocation.services.record.history import Event
from allocation.services.runs.transition import booking_change, booking_lock
from allocation.words.events import event_text
from tenants.access import Actor


def change_withdraw(*, actor: Actor, booking: Booking, now: datetime) -> Booking:
    """Withdraws the open change, and those of other dates that are made with it or not at all; the
    bookings keep what they have. Idempotent."""
    with transaction.atomic():
        if booking.series_id is not None:
            # Dates are locked in one order, before one of them.
            dates = Booking.objects.filter(series=booking.series_id)
            list(dates.select_for_update().order_by("id").values_list("id"))
        booking = booking_lock(booking.id, "project", "tier", "owner", "campaign")
        change = change_open(booking)
        if change is not None:
            for each in _together(booking, change):
                _withdraw(actor, each, now)
            booking.refresh_from_db()
    return booking


def _together(booking: Booking, change: BookingChange) -> list[Booking]:
    """The booking, and those whose changes are made with its or not at all, locked in one order."""
    if change.whole_group is None:
        return [booking]
    rows = BookingChange.objects.filter(group=change.whole_group, state__in=BookingChange.OPEN)
    ids = sorted(rows.values_list("booking_id", flat=True))
    return [booking_lock(each, "project", "tier", "owner", "campaign") for each in ids]


def _withdraw(actor: Actor, booking: Booking, now: datetime) -> None:
    change = change_open(booking)
    if change is None:
        return
    change_close(change, BookingChange.State.WITHDRAWN, now)
    text = event_text("change_withdrawn", actor=actor.name)
    event = Event("change_withdrawn", text, actor.user_id)
    booking_change(booking, event=event, now=now, extension_until=None)
