"""Reads the bookings of a past: as they were asked for, with their runs, their changes and their arrays."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice

from django.db import connection
from django.db.models import Q

from allocation.features.policy_lab.plays.past import Changed, Past
from allocation.models import Booking, BookingArray, BookingChange
from allocation.models.bookings import booking_label
from allocation.rules.arrays import element_id
from allocation.rules.ask import MIN_DURATION_SECONDS
from allocation.rules.changes import Strength
from allocation.rules.states import State
from allocation.services.record.terms import Terms
from allocation.services.snapshot.snapshot import requests_of, seconds
from solver import Request
from tenants.models import Tier

# What never waited for the solver is no demand on it.
_NEVER_ASKED = (State.AWAITING_APPROVAL, State.WAITLISTED, State.OFFERED, State.REJECTED, State.EXPIRED)
# Of an array that has not ended, at most so many elements are added that have not come yet.
MOST_ADDED = 5_000
_RUNS = """
SELECT r.booking_id, lower(r.spans), upper(r.spans),
       (SELECT sum(extract(epoch FROM upper(each) - lower(each))) FROM unnest(r.spans) AS each)::bigint
FROM (
  SELECT a.booking_id, range_agg(a.period * tstzrange('-infinity', %(now)s)) AS spans
  FROM allocation_allocation a
  WHERE a.state IN ('active', 'releasing', 'ended') AND a.period && tstzrange(%(since)s, %(now)s)
  GROUP BY 1) r
WHERE NOT isempty(r.spans)
"""
Run = tuple[datetime, datetime, int]
"""The first start, the last end, and the seconds between them in which it had GPUs."""


@dataclass(frozen=True, slots=True)
class Bookings:
    """The bookings of a past, the rows that they are of, and their labels by id."""

    past: tuple[Past, ...]
    rows: tuple[Booking, ...]
    labels: dict[str, str]


def bookings_read(since: datetime, until: datetime) -> Bookings:
    """What was asked for, waited or ran in [since, until)."""
    rows = tuple(
        Booking.objects.filter(submitted__lt=until)
        .filter(Q(ended_at=None) | Q(ended_at__gt=since))
        .exclude(state__in=_NEVER_ASKED)
        .select_related("tier", "series", "tenant", "project", "array")
        .order_by("id")
    )
    reader = _Reader(since, until, _runs(since, until), _made(since, until))
    past = [reader.past(row) for row in rows]
    labels = {str(row.id): row.label for row in rows}
    last = {row.array: row for row in rows if row.array is not None}
    for array, row in last.items():
        for label, element in reader.to_come(array, row):
            past.append(element)
            labels[element.request.booking] = label
    return Bookings(tuple(past), rows, labels)


def _runs(since: datetime, until: datetime) -> dict[str, Run]:
    with connection.cursor() as cursor:
        cursor.execute(_RUNS, {"since": since, "now": until})
        return {str(row[0]): (row[1], row[2], int(row[3])) for row in cursor.fetchall()}


def _made(since: datetime, until: datetime) -> dict[str, list[BookingChange]]:
    """The changes that were made of each booking, the first first; those of words change nothing."""
    rows = BookingChange.objects.filter(state=BookingChange.State.CHANGED, decided_at__lt=until)
    rows = rows.exclude(strength=Strength.WORD.value).filter(
        Q(booking__ended_at=None) | Q(booking__ended_at__gt=since)
    )
    found: dict[str, list[BookingChange]] = {}
    for row in rows.order_by("booking_id", "asked_at", "id"):
        found.setdefault(str(row.booking_id), []).append(row)
    return found


class _Reader:
    """Reads bookings of [since, until), with their runs and the changes that were made of them."""

    def __init__(
        self,
        since: datetime,
        until: datetime,
        runs: Mapping[str, Run],
        made: Mapping[str, Sequence[BookingChange]],
    ) -> None:
        self._since, self._until, self._runs, self._changes = since, until, runs, made
        self._tiers = {tier.slug: tier for tier in Tier.objects.all()}

    def past(self, row: Booking) -> Past:
        """A booking as it was asked for; one that ran before the begin continues with what was left."""
        request, changes = self._asked(row)
        run = self._runs.get(str(row.id))
        is_over = row.ended_at is not None and row.ended_at <= self._until
        if run is None:
            is_dropped = is_over and row.state != State.REFUSED
            cancelled = seconds(row.ended_at) if is_dropped and row.ended_at else None
            past = Past(self._from(request), cancelled=cancelled, changes=changes)
            return _in_array(row, past, self._since)
        began, _, length = run
        if began < self._since:
            return _in_array(row, self._first(request, changes, run, is_over=is_over), self._since)
        # It ran for longer than the last change says where its end was late.
        more = max(0, length - (changes[-1].request if changes else request).duration)
        past = Past(request, max(1, length) if is_over else None, least=length, changes=changes)
        longer = [replace(each, duration=each.duration + more) for each in past.requests]
        past = past.with_requests([self._from(longer[0]), *longer[1:]])
        return _in_array(row, past, self._since)

    def to_come(self, array: BookingArray, row: Booking) -> Iterator[tuple[str, Past]]:
        """Yields the elements that an array would still have booked, with their labels; `row` is one that
        it has."""
        if array.state != BookingArray.State.OPEN or array.outcome:
            return
        asked = self._request(self._with(row, Terms.from_json(array.terms)), array.submitted)
        asked = replace(_element(asked, array, self._since), override="")
        indexes = (
            index
            for index in range(array.next_index, array.count + 1)
            if not any(first <= index <= last for first, last in array.cancelled)
        )
        for index in islice(indexes, MOST_ADDED):
            request = replace(asked, booking=str(element_id(array.id, index)))
            yield (
                booking_label(array.number, index),
                Past(request, array=str(array.id), parallel=array.parallel),
            )

    def _first(self, request: Request, changes: tuple[Changed, ...], run: Run, *, is_over: bool) -> Past:
        """A run that had begun: what was left of it, as it was known then."""
        begin, left = seconds(self._since), max(1, seconds(run[1]) - seconds(self._since))
        last = (changes[-1].request if changes else request).duration
        # What its changes add to it, they add to the rest.
        rest = max(left - max(0, last - request.duration), request.duration - (begin - seconds(run[0])), 1)
        by = rest - request.duration
        later = tuple(
            replace(each, request=replace(each.request, duration=max(1, each.request.duration + by)))
            for each in changes
        )
        asked = replace(request, submitted=begin, earliest=begin, duration=rest, latest=None, fixed=False)
        return Past(asked, left if is_over else None, least=left, is_first=True, changes=later)

    def _asked(self, row: Booking) -> tuple[Request, tuple[Changed, ...]]:
        """The request when the past begins, or later when it was made, and the changes after that."""
        made = self._changes.get(str(row.id), ())
        if not made:
            return self._request(row, row.ranked_at or row.submitted), ()
        earlier = [each for each in made if each.asked_at < self._since]
        later = [each for each in made if each.asked_at >= self._since]
        ranked = _rank(row.submitted, earlier)
        terms = Terms.from_json(earlier[-1].target if earlier else made[0].before)
        request = self._request(self._with(row, terms), ranked)
        changes = []
        for at, each in enumerate(later):
            target = self._with(row, Terms.from_json(each.target))
            asked = self._request(target, _rank(ranked, later[: at + 1]))
            changes.append(Changed(seconds(each.asked_at), asked))
        return request, tuple(changes)

    def _with(self, row: Booking, terms: Terms) -> Booking:
        changed = copy(row)
        for name, value in {**terms.facts(), "tier": self._tiers[terms.tier]}.items():
            setattr(changed, name, value)
        return changed

    def _request(self, row: Booking, ranked: datetime) -> Request:
        (request,) = requests_of((row,), self._until)
        return replace(
            request,
            submitted=seconds(ranked),
            duration=max(MIN_DURATION_SECONDS, row.duration_seconds),
            latest=seconds(row.deadline) if row.deadline else None,
            fixed=row.starts is not None,
            planned=None,
            series=None,
            revision=0,
        )

    def _from(self, request: Request) -> Request:
        """The request, asked for at the earliest when the history begins."""
        begin = seconds(self._since)
        if request.submitted >= begin:
            return request
        return replace(request, submitted=begin, earliest=max(begin, request.earliest))


def _rank(first: datetime, made: Iterable[BookingChange]) -> datetime:
    """The place in the queue after changes: one that asks for more gives another one."""
    times = [each.asked_at for each in made if each.strength == Strength.STRONGER.value]
    return times[-1] if times else first


def _in_array(row: Booking, past: Past, since: datetime) -> Past:
    """An element comes when its array has room for it, from when the array was asked for."""
    if row.array is None:
        return past
    found = replace(past, array=str(row.array_id), parallel=row.array.parallel)
    return found if past.is_first else replace(found, request=_element(past.request, row.array, since))


def _element(request: Request, array: BookingArray, since: datetime) -> Request:
    begin = max(seconds(array.submitted), seconds(since))
    earliest = max(begin, seconds(Terms.from_json(array.terms).not_before))
    return replace(request, submitted=begin, earliest=earliest)
