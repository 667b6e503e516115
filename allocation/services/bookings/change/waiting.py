"""Changes of bookings that wait for room: until when, and how many a person may have."""

from datetime import datetime
from uuid import UUID

from allocation.models import BookingChange
from allocation.rules.changes import MOST_WAITING
from allocation.services.record.refusals import refusal
from allocation.words.refusals import refusal_text
from tenants.access import Actor
from tenants.platform.errors import Refused, invalid


def change_wait_check(actor: Actor, change: BookingChange, until: datetime | None, now: datetime) -> None:
    """Lets a change that is not stored yet wait for room until its last start, or until the end of
    a run is near.

    Raises:
        Refused: `wait_needs_window`, `wait_too_late`, or `too_many_entries`.
    """
    if until is None:
        raise invalid("wait_needs_window", refusal_text("wait_needs_window"), "if_full")
    if until <= now:
        raise invalid("wait_too_late", refusal_text("wait_too_late"), "if_full")
    waiting = BookingChange.objects.filter(
        tenant_id=actor.tenant_id,
        asked_by=actor.user_id,
        state__in=BookingChange.OPEN,
        keep_trying_until__isnull=False,
    )
    others = waiting.exclude(booking=change.booking).values_list("group", "id")
    # Dates of a series that change together wait as one.
    if len({group or key for group, key in others} - {change.group}) >= MOST_WAITING:
        raise too_many()
    change.keep_trying_until = until


def group_wait(group: UUID, now: datetime) -> None:
    """Lets changes that are made all or none wait until one of their bookings begins, as it is or
    as it would be: then all of them are over together.

    Raises:
        Refused: `wait_too_late`.
    """
    rows = BookingChange.objects.filter(group=group, state__in=BookingChange.OPEN)
    waiting = rows.filter(keep_trying_until__isnull=False)
    times = [
        at
        for pair in waiting.values_list("keep_trying_until", "booking__planned_starts")
        for at in pair
        if at is not None
    ]
    if times and min(times) <= now:
        raise invalid("wait_too_late", refusal_text("wait_too_late"), "if_full")
    waiting.update(keep_trying_until=min(times, default=None))


def too_many() -> Refused:
    """The refusal of one more entry than a person may have."""
    return refusal(
        "too_many_entries",
        refusal_text("too_many_entries", most=MOST_WAITING),
        "conflict",
        "if_full",
        numbers={"most": MOST_WAITING},
    )
