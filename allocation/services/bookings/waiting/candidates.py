"""The waiting list in time: entries whose windows have passed leave it."""

from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from allocation.models import Booking, WaitEntry, WaitMode
from allocation.rules.states import State
from allocation.rules.waiting import is_night, night_ends
from allocation.services.record.costs import waiting_settle
from allocation.services.record.history import Event
from allocation.services.runs.transition import booking_lock, booking_move
from allocation.words.events import event_text
from billing.rules import money_text, rest_in_cents


def entries_due(now: datetime) -> QuerySet[WaitEntry]:
    """Returns the entries for which the time has come: their last possible start has passed, or
    their owner's night."""
    return WaitEntry.objects.filter(
        Q(until__lte=now) | Q(quiet_until__lte=now),
        slot__isnull=False,
        booking__state=State.WAITLISTED,
    )


def entries_expire(now: datetime) -> int:
    """Ends the bookings whose windows have passed, and releases their money. Returns how many."""
    due = entries_due(now).filter(until__lte=now).order_by("booking_id")
    return sum(_expire(booking_id, now) for booking_id in list(due.values_list("booking_id", flat=True)))


def nights_due(now: datetime) -> QuerySet[WaitEntry]:
    """Returns the entries of which it is not known whether it is night where their owner is."""
    return WaitEntry.objects.filter(
        Q(quiet_until=None) | Q(quiet_until__lte=now), slot__isnull=False, mode=WaitMode.OFFER
    )


def nights_note(now: datetime) -> None:
    """Notes until when an entry gets no offer, because it is night where its owner is."""
    for entry, was, zone in nights_due(now).values_list("id", "quiet_until", "booking__zone"):
        until = night_ends(now, zone) if is_night(now, zone) else None
        if until != was:
            WaitEntry.objects.filter(id=entry).update(quiet_until=until)


def _expire(booking_id: UUID, now: datetime) -> int:
    with transaction.atomic():
        booking = booking_lock(booking_id, "tier", "project")
        if booking.state != State.WAITLISTED:
            return 0
        _missed(booking, now)
    return 1


def _missed(booking: Booking, now: datetime) -> None:
    charged = waiting_settle(booking, now)
    freed = money_text(rest_in_cents(booking.hold_amount, charged), booking.currency)
    booking_move(
        booking,
        State.EXPIRED,
        event=Event("expired", event_text("wait_missed", freed=freed)),
        now=now,
        outcome="missed",
        charged=charged,
        ended_at=now,
    )
