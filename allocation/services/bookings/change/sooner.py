"""A fixed window that waits for any earlier start: its own change, which stays open until there is
room."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from allocation.models import Booking
from allocation.rules.ask import AskDocument
from allocation.rules.changes import Target
from allocation.rules.states import State
from allocation.services.bookings.approval.requests import Needed
from allocation.services.bookings.change.refusals import not_changeable
from allocation.services.bookings.change_rows import Accept
from allocation.services.record.refusals import refusal
from allocation.services.record.workloads import has_run
from allocation.words.refusals import refusal_text
from tenants.platform.errors import invalid

# An earlier start is at least so much earlier.
LEAST = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Sooner:
    """A request for any start from `since` on that is earlier than the present one."""

    since: datetime

    def ask(self, booking: Booking, old: Target, now: datetime) -> AskDocument:
        """The request that the locked booking waits for.

        Raises:
            Refused: `sooner_flexible`, `sooner_no_time`, `not_changeable`, or `booking_over`.
        """
        if booking.state not in (State.QUEUED, State.SCHEDULED) or has_run(booking):
            raise not_changeable(booking)
        starts = old.ask.starts
        if starts is None:
            raise invalid("sooner_flexible", _text("sooner_flexible", booking), "sooner")
        since = max(self.since, now)
        if since > starts - LEAST:
            raise invalid("sooner_no_time", _text("sooner_no_time", booking), "not_before")
        return replace(old.ask, starts=None, not_before=since, deadline=None)


def is_sooner_possible(booking: Booking, now: datetime) -> bool:
    """Whether a booking can wait for an earlier start."""
    starts, is_planned = booking.starts, booking.state in (State.QUEUED, State.SCHEDULED)
    return is_planned and starts is not None and starts - LEAST > now and not has_run(booking)


def sooner_accept(accept: Accept, old: Target) -> Accept:
    """The bounds: earlier than the present start, and fixed as it is."""
    starts = old.ask.starts
    if starts is None:
        return accept
    last = starts - LEAST
    return replace(accept, start_by=min(accept.start_by or last, last))


def approval_refuse(needed: Needed | None) -> None:
    """Raises Refused `approval_needed`: nobody approves a start that is not known yet."""
    if needed is not None:
        names = ", ".join(rule["name"] for rule in needed.named)
        sentence = refusal_text("sooner_needs_approval", rules=names)
        raise refusal("approval_needed", sentence, "conflict", "sooner")


def _text(code: str, booking: Booking) -> str:
    return refusal_text(code, label=booking.label)
