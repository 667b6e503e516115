"""The elements of arrays: each becomes a booking when one before it has ended.

At most `parallel` elements are open, so a long array costs the queue and a cycle no more than
those. The turn of the solver advances every array before its snapshot.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from uuid import UUID

from django.db import transaction
from django.db.models import Count, Min, Q, QuerySet

from allocation.models import Booking, BookingArray
from allocation.rules.arrays import element_id
from allocation.rules.states import OPEN, WAITING, State
from allocation.services.bookings.checks.persons import elements_within
from allocation.services.bookings.checks.tiers import TierUse
from allocation.services.bookings.withdrawals import booking_withdraw
from allocation.services.record.history import Event, event_add, events_add
from allocation.services.record.terms import Terms
from allocation.services.runs.transition import booking_lock
from allocation.words.events import event_text
from billing.rules import money_text
from billing.services import (
    HoldRequest,
    hold_release,
    hold_settle_partially,
    holds_place,
    new_holds_place,
)
from tenants.access import access_project_to_book, actor_by_id
from tenants.outbox import task_request
from tenants.platform.errors import Refused

NOT_BEGUN = (*WAITING, State.AWAITING_APPROVAL)
FAILED = Q(state=State.FAILED) | Q(result="failure")
# Elements that the solver refused or that never started: the following ones would fare alike.
_UNPLACED = (State.REFUSED, State.EXPIRED)
FAILURES_EVERY = timedelta(hours=1)
_State, _Outcome = BookingArray.State, BookingArray.Outcome


def arrays_open(now: datetime) -> QuerySet[BookingArray]:
    """Returns the arrays that are not over."""
    return BookingArray.objects.exclude(state=_State.ENDED)


def arrays_advance(now: datetime) -> int:
    """Books the next elements of all arrays; returns how many. For the turn of the solver."""
    ids = arrays_open(now).order_by("id").values_list("id")
    booked = 0
    for (array_id,) in list(ids):
        with transaction.atomic():
            booked += array_advance(array_lock(array_id), now, is_turn=True)
    return booked


def array_lock(array_id: UUID) -> BookingArray:
    """Returns the array, locked. Lock it before its elements."""
    rows = BookingArray.objects.select_for_update(of=("self",))
    return rows.select_related("tenant", "project").get(id=array_id)


def array_advance(array: BookingArray, now: datetime, *, is_turn: bool = False) -> int:
    """Brings a locked array up to date and books what may enter the queue; returns how many.

    `is_turn`: in the turn of the solver, which checks that the owner may still book.
    """
    if array.state == _State.ENDED or not _approved(array, now):
        return 0
    seen = _progress(array)
    if not array.outcome:
        _stop_if_due(array, seen, now, is_turn=is_turn)
    _rank(array, seen["begun"], now)
    booked = 0
    if not array.outcome and seen["live"] < array.parallel and not _awaits_parents(array, now):
        booked = _book(array, array.parallel - seen["live"], now)
        if booked:
            seen = _progress(array)
    _announce(array, seen, now)
    if seen["live"] == 0 and (array.outcome or not any(_next_indexes(array))):
        _end(array, now)
    return booked


def _awaits_parents(array: BookingArray, now: datetime) -> bool:
    """Whether the first element waits for other bookings. If these failed, no other is booked."""
    first = Booking.objects.get(array=array, array_index=1)
    if first.outcome == "dependency":
        array_stop(array, _Outcome.CANCELLED, now)
        return True
    return first.awaits_parents


def array_stop(array: BookingArray, outcome: BookingArray.Outcome, now: datetime) -> None:
    """Books no further element of a locked array, and releases the money that is held for them."""
    array.outcome, array.reasons = outcome, []
    array.save(update_fields=["outcome", "reasons"])
    if array.holds_all:
        hold_release(tenant_id=array.tenant_id, reference=array.id, now=now)


def _approved(array: BookingArray, now: datetime) -> bool:
    """Whether nothing is left to approve. The first element stands for all."""
    if array.state != _State.AWAITING_APPROVAL:
        return True
    first = Booking.objects.get(array=array, array_index=1)
    if first.state == State.AWAITING_APPROVAL:
        return False
    array.state, array.approved_hash = _State.OPEN, first.approved_hash
    array.save(update_fields=["state", "approved_hash"])
    if not first.approved_hash:
        array_stop(array, _Outcome.REJECTED, now)
    return True


def _progress(array: BookingArray) -> dict[str, int]:
    """Counts of elements: open, begun, failed, and those that found no place."""
    found: dict[str, int] = Booking.objects.filter(array=array).aggregate(
        live=Count("id", filter=Q(state__in=OPEN)),
        begun=Count("id", filter=~Q(state__in=NOT_BEGUN)),
        failed=Count("id", filter=FAILED),
        unplaced=Count("id", filter=Q(state__in=_UNPLACED)),
    )
    return found


def _stop_if_due(array: BookingArray, seen: dict[str, int], now: datetime, *, is_turn: bool) -> None:
    terms = Terms.from_json(array.terms)
    most = array.stop_after_failures
    if most is not None and seen["failed"] >= most:
        array_stop(array, _Outcome.FAILURES, now)
        _withdraw_waiting(array, now)
    elif seen["unplaced"]:
        array_stop(array, _Outcome.REFUSED, now)
    elif terms.deadline is not None and now + terms.longest() > terms.deadline:
        array_stop(array, _Outcome.DEADLINE, now)
    elif is_turn and not _may_book(array):
        array_stop(array, _Outcome.OWNER_LEFT, now)


def _may_book(array: BookingArray) -> bool:
    try:
        access_project_to_book(actor_by_id(array.owner_id, array.tenant.slug), array.project.slug)
    except Refused:
        return False
    return True


def _withdraw_waiting(array: BookingArray, now: datetime) -> None:
    """Cancels the elements that have not started, because too many have failed."""
    rows = array.elements.filter(state__in=(*WAITING, State.SCHEDULED)).order_by("id")
    for booking_id in list(rows.values_list("id", flat=True)):
        booking = booking_lock(booking_id, "project", "tier", "owner")
        if booking.state in (*WAITING, State.SCHEDULED):
            text = event_text("array_stopped", failures=array.stop_after_failures)
            booking_withdraw(booking, text, now, outcome="cancelled")


def _rank(array: BookingArray, begun: int, now: datetime) -> None:
    """Makes the waiting elements as old as the last start of one: an array ages as one booking, so
    that its many elements do not pass newer bookings of others together."""
    if begun == array.begun:
        return
    array.elements.filter(state__in=NOT_BEGUN).update(ranked_at=now)
    array.begun = begun
    array.save(update_fields=["begun"])


def _next_indexes(array: BookingArray) -> Iterator[int]:
    """The indexes that are neither booked nor cancelled, in order."""
    gone = array.cancelled
    for index in range(array.next_index, array.count + 1):
        if not any(first <= index <= last for first, last in gone):
            yield index


def _book(array: BookingArray, most: int, now: datetime) -> int:
    """Books the next elements, with their money; returns how many."""
    terms = Terms.from_json(array.terms)
    rows: Sequence[Booking] = [
        _element(array, terms, index, now) for index in islice(_next_indexes(array), most)
    ]
    if not rows:
        return 0
    allowed, beyond = elements_within(rows, _tier_use(array, now))
    try:
        with transaction.atomic():
            rows, why = _hold(array, terms, allowed, now) if allowed else ([], None)
            Booking.objects.bulk_create(rows)
    except Refused as refusal:
        rows, why = [], refusal
    why = why or beyond
    reasons = [] if why is None else [_reason_of(why)]
    if rows:
        text = event_text(
            "array_element", label=array.label, held=money_text(terms.hold_amount, terms.currency)
        )
        events_add([Event("requested", text).row(row, now) for row in rows])
        array.next_index = (rows[-1].array_index or 0) + 1
        task_request("allocation.cycle")
    if rows or array.reasons != reasons:
        array.reasons = reasons
        array.save(update_fields=["next_index", "reasons"])
    return len(rows)


def _tier_use(array: BookingArray, now: datetime) -> TierUse:
    """The limits of the tier when the array was asked for."""
    first = Booking.objects.select_related("tier").get(array=array, array_index=1)
    return TierUse.of(array.project, first.tier, array.owner_id, first, now)


def _element(array: BookingArray, terms: Terms, index: int, now: datetime) -> Booking:
    not_before = max(terms.not_before, now.replace(microsecond=0))
    return Booking(
        **{**terms.facts(), "not_before": not_before},
        id=element_id(array.id, index),
        tenant_id=array.tenant_id,
        number=array.number,
        array=array,
        array_index=index,
        project_id=array.project_id,
        owner_id=array.owner_id,
        campaign_id=array.campaign_id,
        labels=array.labels,
        external_ref=array.external_ref,
        zone=array.zone,
        tier_id=terms.tier,
        state=State.REQUESTED,
        submitted=now,
        approved_hash=array.approved_hash,
    )


def _hold(
    array: BookingArray, terms: Terms, rows: Sequence[Booking], now: datetime
) -> tuple[Sequence[Booking], Refused | None]:
    """Holds the money of elements. Returns those that have it, and why the next has not.

    Raises:
        Refused: the money that is held for all does not fit the budgets of their time.
    """
    if array.holds_all:
        booked = rows[-1].array_index or 0
        left = sum(1 for index in _next_indexes(array) if index > booked)
        hold_settle_partially(
            tenant_id=array.tenant_id,
            reference=array.id,
            amount=terms.hold_amount * 0,
            keep=terms.hold_amount * left,
            now=now,
        )
    requests = [
        HoldRequest(
            row.id,
            row.hold_amount,
            row.not_before,
            row.not_before + terms.longest(),
            row.owner_id,
            row.campaign_id,
        )
        for row in rows
    ]
    to = {"tenant_id": array.tenant_id, "project_id": array.project_id}
    if array.holds_all:
        refused = holds_place(**to, requests=requests, now=now)
    else:
        refused = new_holds_place(**to, requests=requests, now=now).refused
    if not refused:
        return rows, None
    first = next(at for at, row in enumerate(rows) if row.id in refused)
    why = refused[rows[first].id]
    if array.holds_all:
        raise why
    for row in rows[first:]:
        hold_release(tenant_id=array.tenant_id, reference=row.id, now=now)
    return rows[:first], why


def _reason_of(why: Refused) -> dict[str, str | None]:
    return {"rule": why.rule, "code": why.code, "sentence": why.sentence}


def _announce(array: BookingArray, seen: dict[str, int], now: datetime) -> None:
    """Writes the events that stand for many: the first start, and failures once an hour."""
    if array.started_at is None:
        started = Booking.objects.filter(array=array).aggregate(at=Min("ready_at"))["at"]
        if started is not None:
            array.started_at = started
            array.save(update_fields=["started_at"])
            _event(array, "array_started", now, count=array.count)
    last = array.failures_announced_at
    if seen["failed"] > array.failures_announced and (last is None or now - last >= FAILURES_EVERY):
        array.failures_announced, array.failures_announced_at = seen["failed"], now
        array.save(update_fields=["failures_announced", "failures_announced_at"])
        _event(array, "array_failures", now, failures=seen["failed"], count=array.count)


def _end(array: BookingArray, now: datetime) -> None:
    """Ends an array of which nothing is open and nothing follows."""
    if not array.outcome:
        array_stop(array, _Outcome.COMPLETED, now)
    array.state, array.ended_at = _State.ENDED, now
    array.save(update_fields=["state", "ended_at"])
    ended = array.elements.filter(state=State.ENDED).exclude(FAILED).count()
    failed = array.elements.filter(FAILED).count()
    _event(array, "array_ended", now, ended=ended, failures=failed, count=array.count)


def _event(array: BookingArray, kind: str, now: datetime, **facts: int) -> None:
    """Writes an event of the array into the history of its first element."""
    first = Booking.objects.get(array=array, array_index=1)
    event_add(first, kind=kind, sentence=event_text(kind, label=array.label, **facts), now=now)
