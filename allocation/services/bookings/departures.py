"""Bookings of people who have left, and of projects that were closed.

Nothing of theirs starts, resumes or grows any more: what is planned is cancelled by the next turn,
with all of its money, and what runs ends at its time or when somebody releases it.
"""

from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Coalesce

from allocation.models import Booking, BookingChange
from allocation.points.bookings import before_cancel
from allocation.rules.states import BEFORE_RUN, ON_WAITLIST, OPEN, State
from allocation.services.bookings.approval.decisions import approval_withdraw
from allocation.services.bookings.change_rows import change_close, change_open
from allocation.services.record.costs import waiting_settle
from allocation.services.record.history import Event
from allocation.services.record.open_pauses import pause_end
from allocation.services.runs.transition import (
    booking_change,
    booking_lock,
    booking_move,
    planned_rows_supersede,
)
from allocation.words.events import EventText, event_text
from allocation.words.refusals import refusal_text
from billing.rules import money_text
from tenants.access import may_still_book, require_open
from tenants.models import Departure
from tenants.outbox import task_request
from tenants.platform.errors import Refused

PLANNED = (*BEFORE_RUN, *ON_WAITLIST, State.PAUSED)
"""States of bookings that are on no hardware and would get some."""
_CHANGES = BookingChange.objects.filter(booking=OuterRef("pk"), state__in=BookingChange.OPEN)
_GROWS = Q(state__in=PLANNED) | Exists(_CHANGES)


def departures_due() -> QuerySet[Departure]:
    """The departures after which something is still planned."""
    theirs = Booking.objects.filter(
        _GROWS,
        state__in=OPEN,
        tenant=OuterRef("tenant"),
        owner=Coalesce(OuterRef("user"), F("owner")),
        project=Coalesce(OuterRef("project"), F("project")),
    )
    return Departure.objects.filter(Q(is_seen=False) | Exists(theirs))


def departures_apply(now: datetime) -> int:
    """Cancels what is planned for people who have left; returns how many bookings. What their tokens have
    set up is shown as ended soon after, and not at the sweep's next time.

    For the turn of the solver, before it starts or decides anything.
    """
    due = list(departures_due().order_by("id"))
    if any(not row.is_seen for row in due):
        task_request("tenants.sweep")
    return sum(_apply(row, now) for row in due)


def growth_check(booking: Booking) -> None:
    """Lets a booking grow only for a person who may still book, in an open project.

    Raises:
        Refused: `not_allowed` (a closed project) or `owner_left`.
    """
    project = booking.project
    require_open(project)
    if not may_still_book(booking.owner_id, project):
        owner = booking.owner.display_name
        sentence = refusal_text("owner_left", owner=owner, project=project.name)
        raise Refused("owner_left", sentence)


def _apply(departure: Departure, now: datetime) -> int:
    """Cancels what is planned; the row is kept as long as something of theirs runs."""
    rows = Booking.objects.filter(tenant=departure.tenant_id, state__in=OPEN)
    if departure.user_id is not None:
        rows = rows.filter(owner=departure.user_id)
    if departure.project_id is not None:
        rows = rows.filter(project=departure.project_id)
    cancelled = 0
    ids = list(rows.order_by("id").values_list("id", flat=True))
    left = [booking_id for booking_id in ids if _has_left(booking_id)]
    for booking_id in left:
        with transaction.atomic():
            cancelled += _end(booking_lock(booking_id, "project", "tier", "owner"), now)
    still = Departure.objects.filter(id=departure.id)
    if len(left) > cancelled:
        still.update(is_seen=True)
    else:
        still.delete()
    return cancelled


def _has_left(booking_id: UUID) -> bool:
    booking = Booking.objects.select_related("project").get(id=booking_id)
    return not may_still_book(booking.owner_id, booking.project)


def _end(booking: Booking, now: datetime) -> bool:
    """Cancels a locked booking that is planned; of a running one, withdraws what would grow."""
    if booking.state not in PLANNED:
        _change_withdraw(booking, now)
        return False
    if booking.state == State.AWAITING_APPROVAL:
        approval_withdraw(booking, now)
    before_cancel(booking, now)
    planned_rows_supersede(booking)
    charged = waiting_settle(booking, now)
    pause_end(booking, now)
    freed = money_text(booking.hold_amount - charged, booking.currency)
    booking_move(
        booking,
        State.CANCELLED,
        event=Event("cancelled", _why(booking, "cancelled", freed=freed)),
        now=now,
        outcome="owner_left" if booking.project.is_open else "project_closed",
        charged=charged,
        ended_at=now,
    )
    task_request("allocation.cycle")
    return True


def _change_withdraw(booking: Booking, now: datetime) -> None:
    change = change_open(booking)
    if change is None:
        return
    approval_withdraw(booking, now)
    change_close(change, BookingChange.State.WITHDRAWN, now)
    event = Event("change_withdrawn", _why(booking, "change_withdrawn"))
    booking_change(booking, event=event, now=now, extension_until=None)


def _why(booking: Booking, what: str, **facts: str) -> EventText:
    if booking.project.is_open:
        facts["owner"] = booking.owner.display_name
        return event_text(f"{what}_owner_left", project=booking.project.name, **facts)
    return event_text(f"{what}_project_closed", project=booking.project.name, **facts)
