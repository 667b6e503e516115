"""What the rules of approvals look at: what a request asks for, and its person's last 24 hours."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property
from uuid import UUID

from django.db import connection
from django.db.models import Aggregate, BooleanField, Count, ExpressionWrapper, Q, QuerySet, Sum

from allocation.models import Booking, BookingChange
from allocation.queries.fleet.catalogue import ask_units, units_at_once
from allocation.rules.approvals import SUMMED, Amounts, RequestFacts
from allocation.rules.ask import AskDocument, classes_asked
from allocation.rules.states import TERMINAL, State
from allocation.services.record.terms import Terms, booking_with
from billing.rules import UNITS_PER_GPU

# States of a booking that nobody got anything from.
_NEVER_HAD = (State.REFUSED, State.REJECTED, State.CANCELLED, State.EXPIRED)
_HOUR = 3_600
# The parts of a request that decide how many GPUs it takes.
_WHAT = ("classes", "profile", "share", "count", "groups")


def booking_as_asked(booking: Booking, change: BookingChange) -> Booking:
    """A copy of the booking as a change of it would make it."""
    return booking_with(booking, Terms.from_json(change.target))


def facts_of(
    bookings: Sequence[Booking],
    units: Mapping[UUID, Mapping[str, int]],
    now: datetime,
    *,
    are_new: bool = False,
) -> RequestFacts:
    """Returns a request as the rules see it: one booking, the dates of a series, or the first
    element of an array. `units` has by booking and class what each of its GPUs or slices takes.

    `are_new`: they are about to be written. If the last 24 hours are looked at, other requests of
    the person in the project wait until the end of the transaction, so that none overlooks another.
    """
    first = bookings[0]
    return RequestFacts(
        own=_amounts(bookings, units),
        seconds=max(_longest(booking) for booking in bookings),
        classes=frozenset(classes_asked(first.ask)),
        tier=first.tier_id,
        windows=[_window(booking) for booking in bookings],
        past=_Past(bookings, now, are_new=are_new),
    )


class _Past:
    """What the person of a request asked for before, read when a rule needs it."""

    def __init__(self, bookings: Sequence[Booking], now: datetime, *, are_new: bool) -> None:
        self._bookings, self._now, self._are_new = bookings, now, are_new

    @cached_property
    def recent(self) -> Amounts:
        """What the person asked for in the project in the last 24 hours."""
        if self._are_new:
            _others_wait(self._bookings[0])
        return _recent_amounts(self._bookings, self._now)

    @cached_property
    def is_first(self) -> bool:
        """Whether the person had nothing in the project before."""
        return _is_first(self._bookings)


def _others_wait(booking: Booking) -> None:
    """Lets other requests of the person in the project wait for the end of this transaction."""
    with connection.cursor() as cursor:
        name = f"{booking.project_id} {booking.owner_id}"
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 6))", [name])


def _amounts(bookings: Sequence[Booking], units: Mapping[UUID, Mapping[str, int]]) -> Amounts:
    """What one request asks for: its dates cost together, and need GPUs one after the other. The
    first element of an array stands for all."""
    array = bookings[0].array
    count, parallel = (1, 1) if array is None else (array.count, array.parallel)
    return Amounts(
        cost=count * sum((booking.hold_amount for booking in bookings), Decimal(0)),
        gpu_hours=count * sum((_gpu_hours(each, units[each.id]) for each in bookings), Decimal(0)),
        gpus=parallel * max(_gpus(booking, units[booking.id]) for booking in bookings),
    )


def _recent_amounts(bookings: Sequence[Booking], now: datetime) -> Amounts:
    """What the person asked for in the project in the last 24 hours and nobody has looked at."""
    first = bookings[0]
    rows = (
        Booking.objects.filter(
            tenant_id=first.tenant_id,
            project=first.project_id,
            owner=first.owner_id,
            submitted__gt=now - SUMMED,
            approved_hash="",
        )
        .exclude(state__in=[*_NEVER_HAD, State.AWAITING_APPROVAL])
        .exclude(id__in=[booking.id for booking in bookings])
    )
    asked = BookingChange.objects.filter(
        tenant_id=first.tenant_id, booking__owner=first.owner_id, state=BookingChange.State.ASKED
    )
    changes = {each.booking_id: each for each in asked}
    if not changes:
        return _alike_amounts(rows)
    total = _alike_amounts(rows.exclude(id__in=changes))
    for row in rows.filter(id__in=changes):
        wanted = booking_as_asked(row, changes[row.id])
        total = total.plus(_times(wanted, 1, wanted.hold_amount))
    return total


def _alike_amounts(rows: QuerySet[Booking]) -> Amounts:
    """The amounts of bookings, summed by the database for those that are alike in what counts: a
    program may have made hundreds in a day."""
    alike = [f"ask__{name}" for name in _WHAT]
    groups = (
        rows.annotate(is_open=ExpressionWrapper(~Q(state__in=TERMINAL), BooleanField()))
        .order_by()
        .values(*alike, "class_durations", "duration_seconds", "is_open")
        .annotate(one=_First("ask"), number=Count("id"), held=Sum("hold_amount"))
    )
    total = Amounts()
    for group in groups:
        one = Booking(
            ask=group["one"],
            class_durations=group["class_durations"],
            duration_seconds=group["duration_seconds"],
            state=State.QUEUED if group["is_open"] else State.ENDED,
        )
        total = total.plus(_times(one, group["number"], group["held"]))
    return total


def _times(booking: Booking, number: int, held: Decimal) -> Amounts:
    """The amounts of so many bookings like this one, whose holds are `held` together."""
    units = ask_units(AskDocument.from_json(booking.ask))
    gpus = Decimal(0) if booking.state in TERMINAL else _gpus(booking, units)
    return Amounts(held, number * _gpu_hours(booking, units), number * gpus)


class _First(Aggregate):
    """The value of any row of a group."""

    function = "array_agg"
    template = "(%(function)s(%(expressions)s))[1]"
    name = "First"


def _gpus(booking: Booking, units: Mapping[str, int]) -> Decimal:
    return Decimal(units_at_once(booking.ask, units)) / UNITS_PER_GPU


def _gpu_hours(booking: Booking, units: Mapping[str, int]) -> Decimal:
    seconds = dict(booking.class_durations)
    each = {name: needed * seconds.get(name, booking.duration_seconds) for name, needed in units.items()}
    return Decimal(units_at_once(booking.ask, each)) / (UNITS_PER_GPU * _HOUR)


def _longest(booking: Booking) -> int:
    lengths: list[int] = [seconds for _, seconds in booking.class_durations]
    return max(booking.duration_seconds, *lengths, 0)


def _window(booking: Booking) -> tuple[datetime, datetime | None]:
    if booking.starts is not None:
        return booking.starts, booking.starts + timedelta(seconds=booking.duration_seconds)
    return booking.not_before, booking.deadline


def _is_first(bookings: Sequence[Booking]) -> bool:
    first = bookings[0]
    earlier = Booking.objects.filter(
        tenant_id=first.tenant_id, project=first.project_id, owner=first.owner_id
    ).exclude(state__in=[*_NEVER_HAD, State.AWAITING_APPROVAL])
    return not earlier.exclude(id__in=[booking.id for booking in bookings]).exists()
