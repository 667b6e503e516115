"""Entries of the waiting list: what new bookings wait for if their windows are full."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID

from django.db import connection

from allocation.models import Booking, WaitEntry, WaitMode
from allocation.rules.waiting import MOST_ENTRIES
from allocation.services.record.refusals import refusal
from allocation.words.refusals import refusal_text
from tenants.access import Actor
from tenants.platform.errors import Refused, invalid

Windows = tuple[tuple[datetime, datetime], ...]
"""[from, until) in which all of a booking's time must be."""


def entries_of(
    actor: Actor, bookings: Mapping[UUID, Booking], windows: Mapping[UUID, Windows], now: datetime
) -> tuple[list[WaitEntry], dict[UUID, Refused]]:
    """Returns the entries of new bookings that wait, and the bookings that can't have one.

    Without `windows` a booking waits for its own. Nothing is written: `entries_write` does that
    once the bookings are there.
    """
    entries: list[WaitEntry] = []
    refused: dict[UUID, Refused] = {}
    waiting = {key: booking for key, booking in bookings.items() if booking.waitlist}
    slots = _free_slots(actor) if waiting else []
    for key, booking in waiting.items():
        mine = windows.get(key) or _own_window(booking)
        problem = entry_problem(booking, mine, now) or (None if slots else too_many())
        if problem is not None:
            refused[key] = problem
            continue
        length = timedelta(seconds=booking.duration_seconds)
        entries.append(
            WaitEntry(
                tenant_id=booking.tenant_id,
                booking=booking,
                owner_id=booking.owner_id,
                mode=booking.waitlist,
                slot=slots.pop(0),
                windows=[[since.isoformat(), until.isoformat()] for since, until in mine],
                until=max(until for _, until in mine) - length,
                cost=booking.hold_amount,
                created_at=now,
            )
        )
        if booking.waitlist == WaitMode.OFFER:
            # Nothing is held before an offer is accepted.
            booking.hold_amount = Decimal(0)
    return entries, refused


def _own_window(booking: Booking) -> Windows:
    if booking.starts is None:
        return ()
    return ((booking.starts, booking.starts + timedelta(seconds=booking.duration_seconds)),)


def entry_problem(booking: Booking, windows: Windows, now: datetime) -> Refused | None:
    """Why a booking can't wait for these windows; None: it can."""
    length = timedelta(seconds=booking.duration_seconds)
    if booking.series_id is not None or booking.array_id is not None:
        return invalid("wait_in_series", refusal_text("wait_in_series"), "if_full")
    if not windows or (booking.waitlist == WaitMode.AUTO and booking.starts is None):
        return invalid("wait_needs_window", refusal_text("wait_needs_window"), "if_full")
    if booking.ask.get("groups") and booking.waitlist == WaitMode.OFFER:
        return invalid("wait_mixed", refusal_text("wait_mixed"), "if_full")
    if booking.class_durations or booking.ask.get("workload"):
        return invalid("wait_needs_length", refusal_text("wait_needs_length"), "if_full")
    if all(until - length <= max(now, since - length) for since, until in windows):
        return invalid("wait_too_late", refusal_text("wait_too_late"), "if_full")
    return None


def too_many() -> Refused:
    """The refusal of one more entry than a person may have."""
    return refusal(
        "too_many_entries",
        refusal_text("too_many_entries", most=MOST_ENTRIES),
        "conflict",
        "if_full",
        numbers={"most": MOST_ENTRIES},
    )


def _free_slots(actor: Actor) -> list[int]:
    """The slots that a person has left, under a lock that lasts as long as the transaction."""
    with connection.cursor() as cursor:
        key = f"waitlist {actor.tenant_id} {actor.user_id}"
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [key])
    open_entries = WaitEntry.objects.filter(
        tenant_id=actor.tenant_id, owner=actor.user_id, slot__isnull=False
    )
    taken = set(open_entries.values_list("slot", flat=True))
    return [slot for slot in range(1, MOST_ENTRIES + 1) if slot not in taken]
