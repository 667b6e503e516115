"""What is asked before a booking is given back: whose it is, and which time and money are lost."""

from collections.abc import Iterator

from allocation.models import Booking
from allocation.queries.bookings.bookings import node_places_of
from allocation.rules.ask import AskDocument
from allocation.web.bookings.page_context import PageContext
from allocation.web.bookings.summary import spent_so_far, what_words
from allocation.web.parts.times import length_words, moment_words
from billing.rules import money_text
from tenants.platform.confirm import Confirmation


def release_question(booking: Booking, scene: PageContext) -> Confirmation:
    """Before a running booking is released."""
    back = money_text(booking.held - spent_so_far(booking, scene.now), booking.currency)
    what = what_words(AskDocument.from_json(booking.ask), scene.labels)
    return Confirmation(
        title=f"Release {_title(booking)} now?",
        lost=(
            *_whose(booking),
            f"{what}{_where(booking)} is stopped and emptied. What is not saved is lost.",
            *_left(booking, scene),
            f"{back} comes back to {booking.project.name}; "
            f"{money_text(spent_so_far(booking, scene.now), booking.currency)} stays charged.",
            "Nobody can undo this: others may get the GPUs at once.",
        ),
        button=f"Release now, {back} back",
        back=f"{scene.base}bookings/{booking.label}",
        keep="Keep it running",
    )


def cancel_question(booking: Booking, scene: PageContext) -> Confirmation:
    """Before a booking that has not started, or is paused, is cancelled."""
    back = money_text(booking.held - spent_so_far(booking, scene.now), booking.currency)
    what = what_words(AskDocument.from_json(booking.ask), scene.labels)
    start = booking.planned_starts
    place = (
        f"Its start {moment_words(start, scene.zone, scene.now)} goes to others."
        if start is not None and start > scene.now
        else "It loses its place in the queue."
    )
    return Confirmation(
        title=f"Cancel {_title(booking)}?",
        lost=(
            *_whose(booking),
            f"{what} is given up. {place}",
            f"{back} is free again in {booking.project.name}.",
            "Nobody can undo this; a new booking gets a new place at the price of then.",
        ),
        button=f"Cancel it, {back} free again",
        back=f"{scene.base}bookings/{booking.label}",
    )


def _title(booking: Booking) -> str:
    return f"{booking.name} ({booking.label})" if booking.name else booking.label


def _whose(booking: Booking) -> Iterator[str]:
    owner = booking.owner.get_full_name() or booking.owner.username
    yield f"It is the booking of {owner} in {booking.project.name}."


def _where(booking: Booking) -> str:
    names = [place.name for place in node_places_of(booking)]
    return f" on {', '.join(names)}" if names else ""


def _left(booking: Booking, scene: PageContext) -> Iterator[str]:
    if booking.planned_ends is not None and booking.planned_ends > scene.now:
        left = length_words((booking.planned_ends - scene.now).total_seconds())
        until = moment_words(booking.planned_ends, scene.zone, scene.now)
        yield f"{left} of its time, until {until}, is given up."
