"""What a planned start is worth, as pages word it."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, tzinfo

from allocation.models import Booking, MovedStart, PlannedStrength
from allocation.queries.bookings.holders import Holder
from allocation.queries.bookings.outcomes import start_shown
from allocation.queries.bookings.queue_ahead import Ahead
from allocation.rules.start_range import MIN_STARTS, StartRange
from allocation.services.quotes.why_waiting import Change
from allocation.web.parts.times import moment_words, window_words
from allocation.words.queue import mover_text
from tenants.web.parts import counted

MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class MovedLine:
    """A message about a later start, as the booking's page lists it."""

    at: datetime
    text: str
    sentence: str
    claimant: str
    decision: int


def moved_lines(rows: Iterable[MovedStart], zone: tzinfo, now: datetime) -> list[MovedLine]:
    """Returns the lines of these receipts."""
    return [
        MovedLine(
            row.at,
            f"{_range_words(row.was_from, row.was_until, zone, now)} → "
            f"{_range_words(row.now_from, row.now_until, zone, now)}",
            row.sentence,
            row.claimant.label if row.claimant else "",
            row.decision_id,
        )
        for row in rows
    ]


def ahead_lines(ahead: Iterable[Ahead]) -> list[str]:
    """Returns who goes first in the queue and why; only the own organisation's have numbers."""
    lines = []
    for each in ahead:
        names = ", ".join(each.labels[:MOST_NAMED])
        more = len(each.labels) - MOST_NAMED
        lines.append(f"{each.sentence} {names}{f' and {more} more' if more > 0 else ''}".strip())
    return lines


def change_lines(changes: Iterable[Change], zone: tzinfo, now: datetime) -> list[str]:
    """Returns what would let it start earlier, with the time if the clock does it."""
    lines = []
    for each in changes:
        when = f"{moment_words(each.at, zone, now).capitalize()}: " if each.at else ""
        lines.append(f"{when}{each.sentence}")
    return lines


def holder_lines(holders: Iterable[Holder], zone: tzinfo, now: datetime) -> list[str]:
    """Returns who has the planned GPUs until when; another organisation's booking has no name."""
    lines = []
    for each in holders:
        who = "A booking of another organisation"
        if each.is_own:
            who = each.label or "A booking of your organisation"
        gpus = f"{each.gpus} of its GPUs" if each.gpus > 1 else "one of its GPUs"
        lines.append(f"{who} has {gpus} until {moment_words(each.until, zone, now)}.")
    return lines


def _range_words(earliest: datetime, latest: datetime, zone: tzinfo, now: datetime) -> str:
    if earliest == latest:
        return moment_words(earliest, zone, now)
    return window_words(earliest, latest, zone, now)


def start_words(strength: str | None, found: StartRange, zone: tzinfo, now: datetime) -> str:
    """Returns `Starts today 14:00`, `Starts by today 14:00` or
    `Expected to start today 14:00 – 16:30`; of a sure start after another booking also by when its GPUs
    are ready."""
    if strength == PlannedStrength.FIRM:
        ready = f", ready by {moment_words(found.latest, zone, now)}"
        return f"Starts {moment_words(found.earliest, zone, now)}{ready * (found.earliest < found.latest)}"
    if strength == PlannedStrength.GUARANTEED:
        return f"Starts by {moment_words(found.latest, zone, now)}"
    if found.earliest == found.latest:
        return f"Expected {moment_words(found.earliest, zone, now)}"
    # Two times alone would be read as a start and an end.
    return f"Expected to start {window_words(found.earliest, found.latest, zone, now)}"


def waiting_words(booking: Booking, zone: tzinfo, now: datetime) -> str:
    """Returns the planned start of a waiting booking; empty without one."""
    starts = booking.expected_start
    if starts is None:
        return ""
    found = start_shown(booking, now) or StartRange(starts, starts)
    return start_words(booking.planned_strength, found, zone, now)


def mover_words(booking: Booking) -> str:
    """Returns who can still make the planned start later."""
    return mover_text(booking.planned_strength, booking.planned_class)


def start_basis(found: StartRange | None, strength: str | None = None) -> str:
    """Returns what the range of a start is based on; empty for a start without one."""
    if found is None or found.earliest == found.latest:
        return ""
    if strength in (PlannedStrength.FIRM, PlannedStrength.GUARANTEED):
        return "Its GPUs are cleared of the booking before it first; 9 of 10 times that took no longer."
    if found.of:
        return f"The range is based on the last {counted(found.of, 'start')} in this tier."
    return f"The range is assumed until {MIN_STARTS} bookings in this tier have had a planned start."
