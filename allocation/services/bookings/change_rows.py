"""The stored changes of a booking: open ones, closed ones, and the terms that one gives."""

from datetime import datetime

from allocation.models import Booking, BookingChange
from allocation.rules.states import State
from allocation.services.record.history import Event
from allocation.services.record.terms import Terms
from allocation.services.runs.transition import booking_change, booking_move
from allocation.words.changes import differences_text
from allocation.words.events import event_text
from billing.services import hold_release
from tenants.access import Actor
from tenants.models import Tier


def is_change_open(booking: Booking) -> bool:
    """Returns whether a change waits for its decision."""
    return BookingChange.objects.filter(booking=booking, state__in=BookingChange.OPEN).exists()


def change_open(booking: Booking) -> BookingChange | None:
    """The open change of a booking, locked; None: it has none."""
    rows = BookingChange.objects.select_for_update(of=("self",))
    return rows.filter(booking=booking, state__in=BookingChange.OPEN).first()


def change_close(change: BookingChange, state: str, now: datetime, **facts: object) -> None:
    """Closes a locked change and releases the money that is held for it."""
    hold_release(tenant_id=change.tenant_id, reference=change.id, now=now)
    for name, value in {"state": state, "decided_at": now, **facts}.items():
        setattr(change, name, value)
    change.save(update_fields=["state", "decided_at", *facts])


def terms_apply(
    booking: Booking, terms: Terms, event: Event, now: datetime, **facts: object
) -> None:
    """Writes new terms of a locked booking under a new revision, with the event.

    A `state` among the facts is a step to another state.
    """
    tier = booking.tier if booking.tier_id == terms.tier else Tier.objects.get(slug=terms.tier)
    values = {**terms.facts(), "tier": tier, "revision": booking.revision + 1, **facts}
    to = values.pop("state", None)
    if isinstance(to, State):
        booking_move(booking, to, event=event, now=now, **values)
    else:
        booking_change(booking, event=event, now=now, **values)


def change_event(kind: str, change: BookingChange, actor: Actor) -> Event:
    """The event of a change that a person made or asked for."""
    text = event_text(kind, actor=actor.name, what=differences_text(change.differences))
    detail = {"change": change.id.hex, "differences": change.differences}
    return Event(kind, text, actor.user_id, detail)
