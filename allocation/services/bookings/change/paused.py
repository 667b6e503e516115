"""The rest of a paused booking is made shorter; nothing else of it can change.

What the booking has to repeat stays in the rest: else it would keep the credit without repeating
it. A fixed window ends earlier, so its length counts from its start, and the pause in it.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from allocation.models import Booking, Pause
from allocation.rules.ask import MIN_DURATION_SECONDS
from allocation.rules.ask.words.times import duration_words
from allocation.rules.changes import Strength
from allocation.rules.states import State
from allocation.services.bookings.change.calendar_cuts import plan_cut, resume_cut
from allocation.services.bookings.change.refusals import while_paused
from allocation.services.bookings.change.writer import ChangeWriter
from allocation.services.bookings.checks.terms import hold_of, rest_terms, weaker_terms
from allocation.services.record.open_pauses import pause_open
from allocation.services.record.terms import Terms
from allocation.words.refusals import refusal_text
from tenants.outbox import task_request
from tenants.platform.errors import invalid

_LEAST = timedelta(seconds=MIN_DURATION_SECONDS)


def rest_shorten(writer: ChangeWriter, strength: Strength, text: str) -> Booking:
    """Shortens the rest of a locked paused booking. `text`: the request as it was typed.

    Raises:
        Refused: `extension_while_paused`, `redo_left`, `rest_too_short`.
    """
    booking, new, now = writer.booking, writer.new, writer.now
    pause = pause_open(booking)
    is_only_length = writer.old.differences(new).keys() <= {"duration", "name"}
    is_less = booking.state == State.PAUSED and strength is Strength.WEAKER and is_only_length
    if not is_less or pause is None:
        raise while_paused(booking)
    writer.replace_open()
    if booking.starts is None:
        terms = _flexible_rest(writer, pause, text)
        plan_cut(booking, terms, now)
    else:
        until = booking.starts + timedelta(seconds=new.ask.duration)
        terms = _window_rest(writer, pause, until, text)
        resume_cut(booking, until, now)
    pause.save(update_fields=["remaining_seconds", "ends_before"])
    change = writer.row(terms, Strength.WEAKER)
    change.restores = {}
    writer.store(terms, Strength.WEAKER, change)
    writer.exchange(hold_of(booking, terms))
    task_request("allocation.cycle")
    return booking


def _flexible_rest(writer: ChangeWriter, pause: Pause, text: str) -> Terms:
    _redo_check(writer.booking, writer.new.ask.duration)
    terms = weaker_terms(writer.booking, writer.new, text)
    pause.remaining_seconds = terms.duration_seconds
    return terms


def _window_rest(writer: ChangeWriter, pause: Pause, until: datetime, text: str) -> Terms:
    booking, cut = writer.booking, int((pause.ends_before - until).total_seconds())
    earliest = max(writer.now + _LEAST, pause.deadline)
    if until < earliest:
        clock = writer.actor.clock(earliest)
        sentence = refusal_text("rest_too_short", label=booking.label, earliest=clock)
        raise invalid("rest_too_short", sentence, "duration")
    rest = max(0, (pause.remaining_seconds or 0) - cut)
    _redo_check(booking, rest)
    pause.remaining_seconds, pause.ends_before = rest, until
    return replace(rest_terms(booking, writer.new, rest, until), request_text=text)


def _redo_check(booking: Booking, rest: int) -> None:
    if rest < booking.redo_seconds:
        redo = duration_words(booking.redo_seconds)
        raise invalid("redo_left", refusal_text("redo_left", redo=redo), "duration")
