"""The model's waiting list: see allocation/features/waiting_list."""

import dataclasses
from collections.abc import Callable

from allocation.features.waiting_list.rules import MOST_EXPIRED
from solver import Assign, Plan
from tests.simulation.requests.tables import EntryRow, OfferRow, Waits
from tests.simulation.tables.rows import Booking, Tables

Writes = Callable[[Tables, Booking, Assign], bool]
"""Writes the rows of an offer; False: a place is taken."""


def entry_make(booking: Booking, waits: Waits) -> EntryRow:
    """See entries_of."""
    starts = booking.requested.starts
    own = () if starts is None else ((starts, starts + booking.duration),)
    windows = waits.windows or own
    return EntryRow(
        mode=waits.mode,
        windows=windows,
        until=max(until for _, until in windows) - booking.duration,
    )


def accept(tables: Tables, booking: Booking, now: float) -> None:
    """See offer_accept."""
    offer = tables.offers.get(booking.id)
    if offer is None or now >= offer.until:
        return
    del tables.offers[booking.id]
    tables.entries.pop(booking.id)
    booking.state, booking.strength, booking.reasons = "scheduled", "firm", ()
    booking.requested = dataclasses.replace(booking.requested, starts=offer.starts)
    booking.not_before, booking.requested_from = offer.starts, None


def decline(tables: Tables, booking: Booking, now: float) -> None:
    """See offer_decline."""
    offer = tables.offers.get(booking.id)
    if offer is None or now >= offer.until:
        return
    back_to_the_list(tables, booking)
    entry = tables.entries[booking.id]
    left = [
        part
        for since, until in entry.windows
        for part in _without((since, until), (offer.starts, offer.ends))
        if part[1] - part[0] >= booking.duration
    ]
    entry.windows, entry.expired = tuple(sorted(left)), 0
    if not left:
        tables.entries.pop(booking.id)
        booking.state, booking.outcome = "cancelled", "declined"


def _without(window: tuple[int, int], taken: tuple[int, int]) -> list[tuple[int, int]]:
    (since, until), (starts, ends) = window, taken
    if not (since < ends and starts < until):
        return [window]
    return [(since, min(until, starts)), (max(since, ends), until)]


def back_to_the_list(tables: Tables, booking: Booking) -> None:
    """The offer is over; its room is free."""
    tables.offers.pop(booking.id, None)
    tables.supersede(booking)
    booking.state = "waitlisted"
    booking.starts = booking.ends = booking.strength = None
    booking.places = ()


def leave(tables: Tables, booking: Booking) -> None:
    """What a booking that is over, or has its window, had on the list."""
    tables.offers.pop(booking.id, None)
    tables.entries.pop(booking.id, None)


def offers_expire(tables: Tables, now: float) -> None:
    """See offers_expire."""
    for name, offer in sorted(tables.offers.items()):
        if offer.until <= now:
            back_to_the_list(tables, tables.bookings[name])
            tables.entries[name].expired += 1


def entries_expire(tables: Tables, now: float) -> None:
    """See entries_expire."""
    for name, entry in sorted(tables.entries.items()):
        booking = tables.bookings[name]
        if booking.state == "waitlisted" and entry.until <= now:
            del tables.entries[name]
            booking.state, booking.outcome = "expired", "missed"
            tables.outcomes["windows missed"] += 1


def is_asking(tables: Tables, booking: Booking) -> bool:
    """Whether it asks for an offer in this turn."""
    entry = tables.entries.get(booking.id)
    waits = entry is not None and entry.mode == "offer" and entry.expired < MOST_EXPIRED
    return waits and booking.state == "waitlisted"


def offers_write(tables: Tables, plan: Plan, write: Writes) -> None:
    """See offers_write and offers_take_back."""
    for offered in plan.offers:
        booking = tables.bookings[offered.booking]
        assign = Assign(offered.booking, offered.gpu_class, offered.places, offered.starts, offered.ends)
        if booking.state != "waitlisted" or not write(tables, booking, assign):
            continue
        booking.state = "offered"
        tables.outcomes["offers"] += 1
        booking.starts, booking.ends = offered.starts, offered.ends
        tables.offers[booking.id] = OfferRow(
            booking=booking.id,
            gpu_class=offered.gpu_class,
            starts=offered.starts,
            ends=offered.ends,
            until=offered.until,
        )
    for name in plan.offers_withdrawn:
        booking = tables.bookings[name]
        if booking.state == "offered":
            back_to_the_list(tables, booking)
