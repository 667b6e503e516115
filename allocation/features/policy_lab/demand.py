"""Demand that never came: the past of a site with more work, larger work, or bursts of it.

What is added is drawn from the site's own bookings, so that its mix of organisations, tiers, shapes and
lengths stays. Pure: the same history and demand give the same work, which both versions then play.
"""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from allocation.features.policy_lab.plays.jobs import DAY
from allocation.features.policy_lab.plays.past import Changed, History, Past
from solver import Request
from tenants.platform.terms import term, terms

PERCENT = 100
# A burst comes within so many seconds.
BURST = 600
# What is added comes on another day at about the same time of day.
AROUND = 1_800
SOURCE = "~"


@terms
class DemandTerms:
    """How the demand of a trial differs from that of the past, in percent."""

    load: int = term(
        "Bookings, % of the past's",
        says="Percent of the past's bookings: 150 adds half as many, drawn from them; 50 leaves out half.",
        default=100,
        min_value=10,
        max_value=300,
    )
    sizes: int = term(
        "GPUs of a booking, %",
        says="Percent of the GPUs that each booking of whole GPUs asks for, one at least.",
        default=100,
        min_value=10,
        max_value=400,
    )
    bursts: int = term(
        "Bookings in bursts, %",
        says="Percent of the bookings that come within ten minutes of a day, another time each day.",
        default=0,
        min_value=0,
        max_value=100,
    )


PAST = DemandTerms()


def history_under(history: History, demand: DemandTerms) -> History:
    """The past with this demand. Runs that had begun before it stay as they are."""
    if demand == PAST:
        return history
    past = (each for row in history.past for each in _copies(row, history, demand.load))
    return replace(history, past=tuple(_changed(row, history, demand) for row in past))


def source_of(booking: str) -> str:
    """The booking of the past that one was drawn from; itself, if it was there."""
    return booking.partition(SOURCE)[0]


def _copies(row: Past, history: History, load: int) -> Iterator[Past]:
    """The booking as often as the load says: once and no more at 100 %."""
    if row.is_first:
        yield row
        return
    draw = _draw("load", row)
    whole, rest = divmod(load, PERCENT)
    many = whole + (draw.randrange(PERCENT) < rest)
    for number in range(many):
        if number == 0:
            yield row
            continue
        moved = _moved(row, _elsewhen(row, history, draw))
        named = [replace(each, booking=f"{row.request.booking}{SOURCE}{number}") for each in moved.requests]
        array = f"{row.array}{SOURCE}{number}" if row.array else ""
        yield replace(moved.with_requests(named), array=array)


def _elsewhen(row: Past, history: History, draw: Random) -> int:
    """Another day of the history, at about the same time of day."""
    begin, days = history.site.now, max(1, (history.ends - history.site.now) // DAY)
    time = (row.request.submitted - begin) % DAY + draw.randrange(-AROUND, AROUND)
    return min(max(begin, begin + draw.randrange(days) * DAY + time), history.ends - 1)


def _changed(row: Past, history: History, demand: DemandTerms) -> Past:
    if row.is_first:
        return row
    draw = _draw("change", row)
    if draw.randrange(PERCENT) < demand.bursts:
        day = row.request.submitted // DAY * DAY
        at = Random(f"burst {day}").randrange(DAY)  # noqa: S311 (not a secret)
        moved = day + at + draw.randrange(BURST)
        row = _moved(row, min(max(history.site.now, moved), history.ends - 1))
    ask = row.request.ask
    if demand.sizes == PERCENT or ask.groups or ask.shape is not None or ask.pin:
        return row
    part = draw.randrange(PERCENT)
    return row.with_requests([_sized(each, demand.sizes, part) for each in row.requests])


def _sized(request: Request, percent: int, part: int) -> Request:
    """The request for so many percent of its GPUs, of which a part is rounded up."""
    whole, rest = divmod(request.ask.count * percent, PERCENT)
    return replace(request, ask=replace(request.ask, count=max(1, whole + (part < rest))))


def _moved(row: Past, at: int) -> Past:
    """The booking with its request, and all of its other times, moved to another time."""
    by = at - row.request.submitted
    requests = [
        replace(
            each,
            submitted=each.submitted + by,
            earliest=each.earliest + by,
            latest=None if each.latest is None else each.latest + by,
        )
        for each in row.requests
    ]
    changes = tuple(Changed(each.at + by, each.request) for each in row.changes)
    moved = replace(row, changes=changes).with_requests(requests)
    return replace(moved, cancelled=None if row.cancelled is None else row.cancelled + by)


def _draw(what: str, row: Past) -> Random:
    """A chance of its own for each booking; elements of an array have the same."""
    return Random(f"{what} {row.array or row.request.booking}")  # noqa: S311 (not a secret)
