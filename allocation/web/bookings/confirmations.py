"""The confirmations before a booking is released or cancelled."""

from collections.abc import Iterator
from decimal import Decimal

from allocation.models import Booking
from allocation.queries.bookings.bookings import node_places_of
from allocation.rules.ask import AskDocument
from allocation.services.runs.late_shares import late_fee
from allocation.web.bookings.costs import spent_so_far
from allocation.web.bookings.dependencies import dependents_lost
from allocation.web.bookings.page_context import PageContext
from allocation.web.bookings.summary import what_words
from allocation.web.parts.times import length_words, moment_words
from billing.rules import money_text
from tenants.platform.forms.confirm import Confirmation


def release_question(booking: Booking, ctx: PageContext) -> Confirmation:
    """Returns the confirmation before a running booking is released."""
    fee = late_fee(booking, None, ctx.now)
    rest = booking.hold_amount - spent_so_far(booking, ctx.now) - fee
    back = money_text(rest, booking.currency)
    what = what_words(AskDocument.from_json(booking.ask), ctx.labels)
    return Confirmation(
        title=f"Release {_title(booking)} now?",
        lost=(
            *_whose(booking),
            f"{what}{_where(booking)} is stopped and cleared. Unsaved work is lost.",
            *_left(booking, ctx),
            *_fee(booking, fee),
            f"{back} is returned to {booking.project.name}; "
            f"{money_text(spent_so_far(booking, ctx.now), booking.currency)} stays charged.",
            "This can't be undone: others can get the GPUs immediately.",
        ),
        button=f"Release and get {back} back",
        back=f"{ctx.base}bookings/{booking.label}",
        keep="Keep running",
    )


def cancel_question(booking: Booking, ctx: PageContext) -> Confirmation:
    """Returns the confirmation before a waiting or paused booking is cancelled."""
    fee = late_fee(booking, None, ctx.now)
    rest = booking.hold_amount - spent_so_far(booking, ctx.now) - fee
    back = money_text(rest, booking.currency)
    what = what_words(AskDocument.from_json(booking.ask), ctx.labels)
    start = booking.planned_starts
    place = (
        f"Others can get its start {moment_words(start, ctx.zone, ctx.now)}."
        if start is not None and start > ctx.now
        else "It loses its place in the queue."
    )
    return Confirmation(
        title=f"Cancel {_title(booking)}?",
        lost=(
            *_whose(booking),
            f"{what} is cancelled. {place}",
            *dependents_lost(booking),
            *_fee(booking, fee),
            f"{back} is returned to the budget of {booking.project.name}.",
            "This can't be undone: a new booking is planned anew at current prices.",
        ),
        button=f"Cancel and return {back}",
        back=f"{ctx.base}bookings/{booking.label}",
    )


def _fee(booking: Booking, fee: Decimal) -> Iterator[str]:
    if fee:
        amount, notice = money_text(fee, booking.currency), length_words(booking.notice_seconds)
        yield (
            f"{amount} is charged: {booking.late_share} % of the price of GPUs that are given up "
            f"less than {notice} before."
        )


def _title(booking: Booking) -> str:
    return f"{booking.name} ({booking.label})" if booking.name else booking.label


def _whose(booking: Booking) -> Iterator[str]:
    owner = booking.owner.get_full_name() or booking.owner.username
    yield f"This booking belongs to {owner} in {booking.project.name}."


def _where(booking: Booking) -> str:
    names = [place.name for place in node_places_of(booking)]
    return f" on {', '.join(names)}" if names else ""


def _left(booking: Booking, ctx: PageContext) -> Iterator[str]:
    if booking.planned_ends is not None and booking.planned_ends > ctx.now:
        left = length_words((booking.planned_ends - ctx.now).total_seconds())
        until = moment_words(booking.planned_ends, ctx.zone, ctx.now)
        yield f"{left} of its time, until {until}, is given up."
