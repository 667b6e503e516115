"""What a booking's page says about idle GPUs: what happens when, and what it costs."""

from allocation.models import Booking
from allocation.rules.states import State
from allocation.services.record.costs import cancellation_cost
from allocation.services.runs.idle_use import MOST_VETOES, is_idle_warned
from allocation.web.bookings.page_context import PageContext
from allocation.web.parts.times import clock, length_words
from billing.rules import money_text
from tenants.models import Tier


def idle_words(booking: Booking, ctx: PageContext) -> str:
    """Returns when idle GPUs can be taken and what is charged then; empty without a warning."""
    if booking.state in (State.PAUSING, State.PAUSED) and booking.awaits_check_in:
        return "Its GPUs were idle: it resumes after you check in."
    until = booking.idle_veto_until
    if not is_idle_warned(booking) or until is None:
        return ""
    what = "be paused" if booking.tier.idle_action == Tier.IdleAction.PAUSE else "end"
    when = f"from {clock(until, ctx.zone)} on" if until > ctx.now else "any moment"
    charged = money_text(cancellation_cost(booking, max(until, ctx.now)), booking.currency)
    return (
        f"All its GPUs have been idle for {length_words(booking.idle_seconds)}. If another booking "
        f"can start earlier with them, it can {what} {when}: {charged} is charged then, no fee."
    )


def can_keep_idle(booking: Booking) -> bool:
    """Returns whether the owner can say that the idle GPUs are still needed."""
    return is_idle_warned(booking) and booking.idle_vetoes < MOST_VETOES


def can_check_in(booking: Booking) -> bool:
    """Returns whether a check-in of the owner changes something."""
    if booking.state in (State.PAUSING, State.PAUSED):
        return booking.awaits_check_in
    return booking.state == State.ACTIVE and booking.checked_in_at is None
