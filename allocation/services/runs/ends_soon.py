"""Notices that a running booking ends in half an hour, so that its owner can extend it."""

from datetime import datetime, timedelta

from django.db import transaction

from allocation.models import Booking, BookingEvent
from allocation.rules.states import State
from allocation.services.record.history import Event
from allocation.services.runs.transition import booking_change, booking_lock
from allocation.words.events import event_text
from tenants.failures import each_apart

NOTICE = timedelta(minutes=30)
SHORTEST_RUN = timedelta(hours=1)
"""Shorter runs get no notice: their owners have just seen the end."""


def ends_soon_notify(now: datetime) -> int:
    """Writes the notice of each run that ends within half an hour, once for each end; returns how
    many. An extended run gets another one before its new end."""
    rows = Booking.objects.filter(
        state=State.ACTIVE,
        planned_ends__gt=now,
        planned_ends__lte=now + NOTICE,
        ready_at__isnull=False,
    )
    found = [row for row in rows.order_by("id") if row.planned_ends and _is_long(row)]
    due = [row for row in found if not _has_notice(row)]
    return each_apart("ends soon", due, lambda row: _notify(row, now), now)


def _is_long(booking: Booking) -> bool:
    began, ends = booking.ready_at, booking.planned_ends
    return began is not None and ends is not None and ends - began >= SHORTEST_RUN


def _has_notice(booking: Booking) -> bool:
    until = booking.planned_ends.isoformat() if booking.planned_ends else ""
    events = BookingEvent.objects.filter(tenant_id=booking.tenant_id, booking_id=booking.id)
    return events.filter(kind="ends_soon", detail__until=until).exists()


def _notify(row: Booking, now: datetime) -> bool:
    with transaction.atomic():
        booking = booking_lock(row.id)
        ends = booking.planned_ends
        if booking.state != State.ACTIVE or ends != row.planned_ends or ends is None:
            return False
        event = Event("ends_soon", event_text("ends_soon"), detail={"until": ends.isoformat()})
        booking_change(booking, now=now, event=event)
    return True
