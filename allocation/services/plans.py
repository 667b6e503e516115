"""Making a plan true: one short transaction, conditional on what the plan was made from."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from django.db import transaction
from django.db.backends.postgresql.psycopg_any import DateTimeTZRange

from allocation.models import Allocation, Booking, Decision, SolverState
from allocation.rules.catalogue import UNPROVEN
from allocation.rules.states import TERMINAL, WAITING, State
from allocation.services.assigning import (
    Fleet,
    PlanStale,
    assigns_write,
    plan_fields,
    rows_write,
)
from allocation.services.borrowing import marks_write
from allocation.services.changes import Changes, reason_data
from allocation.services.compaction_orders import order_answer
from allocation.services.costs import booking_cost, earlier_settle
from allocation.services.history import event_add
from allocation.services.lifecycle import nodes_bump
from allocation.services.live import decided_hint
from allocation.services.moves import move_tell, row_leave
from allocation.services.pauses import pause_over
from allocation.services.pausing import pause_begin, pause_withdraw
from allocation.services.places import place_data
from allocation.services.runs import run_none_left
from allocation.services.snapshot import instant
from allocation.solver import (
    Assign,
    Carried,
    Extend,
    Move,
    Refuse,
    Snapshot,
    Waiting,
)
from billing.rules import money_text
from billing.services import hold_place
from tenants.errors import Refused


def plan_apply(
    *, changes: Changes, snapshot: Snapshot, decision: Decision, term: int, now: datetime
) -> None:
    """Writes the decision and everything that follows from it, or nothing.

    Raises:
        PlanStale: another leader has taken over, a booking has changed, or a place is gone.
    """
    with transaction.atomic():
        if not SolverState.objects.select_for_update().filter(id=1, leader_term=term).exists():
            raise PlanStale("another cycle leads now")
        decision.save(force_insert=True)
        bookings = _bookings_locked(changes)
        fleet = Fleet.read(snapshot, changes)
        # Shortened first, so that the room is free for who it is paused for.
        for pause in changes.pauses:
            victim, beneficiary = bookings[pause.booking], bookings[pause.beneficiary]
            pause_begin(victim, beneficiary, instant(pause.at), pause.reasons, decision, now)
        for withdrawn in changes.withdrawn:
            _withdraw(bookings[withdrawn], now)
        _move_all(changes.moves, bookings, fleet, decision, now)
        assigns_write(bookings, changes.assigns, fleet, decision, now)
        for wait in changes.waits:
            _wait(bookings[wait.booking], wait, decision, now)
        for refuse in changes.refusals:
            _refuse(bookings[refuse.booking], refuse, decision, now)
        for extend in changes.extensions:
            _extend(extend, decision, now)
        _orders_answer(changes.orders, decision, now)
        marks_write(changes.marks, now)
        decided_hint()


def _orders_answer(orders: Sequence[Carried], decision: Decision, now: datetime) -> None:
    if not all(order_answer(each, decision, now) for each in orders):
        raise PlanStale("an order has its answer already")


def _withdraw(booking: Booking, now: datetime) -> None:
    if not pause_withdraw(booking, now):
        raise PlanStale("a pause is out, or all was saved")


def _move_all(
    moves: Sequence[Move],
    bookings: Mapping[str, Booking],
    fleet: Fleet,
    decision: Decision,
    now: datetime,
) -> None:
    """All that move leave before any of them comes in: they may change places."""
    for move in moves:
        if not row_leave(bookings[move.booking], move):
            raise PlanStale("a booking to be moved has other places by now")
    rows_write(bookings, moves, fleet, decision)
    for move in moves:
        move_tell(bookings[move.booking], move, fleet.gpus, decision, now)


def _wait(booking: Booking, wait: Waiting, decision: Decision, now: datetime) -> None:
    moved = booking.planned_starts is not None and booking.planned_starts != instant(wait.starts)
    # Where no start can be planned there is none that is worth telling.
    is_proven = all(reason.code not in UNPROVEN for reason in wait.reasons[:1])
    has_start = bool(wait.places) and is_proven
    had_start = bool(booking.planned_places) and not booking.is_unplanned
    is_new = booking.state == State.REQUESTED
    if is_new:
        booking.state = State.QUEUED
    plan_fields(booking, wait, decision)
    booking.planned_places = [place_data(place) for place in wait.places]
    booking.reasons = [reason_data(reason) for reason in wait.reasons]
    _store(booking, "planned_places")
    if is_new or (moved and (has_start or had_start)):
        because = f" {wait.delayed_by.sentence}" if wait.delayed_by else ""
        starts = {"starts": instant(wait.starts).isoformat()} if has_start else {}
        event_add(
            booking,
            kind="queued" if is_new else "moved",
            sentence=f"Waiting, with{'' if has_start else 'out'} a planned start.{because}",
            now=now,
            detail={"decision": decision.id, **starts},
        )


def _refuse(booking: Booking, refuse: Refuse, decision: Decision, now: datetime) -> None:
    if booking.state == State.PAUSED:
        booking.decision = decision
        booking.reasons = [reason_data(reason) for reason in refuse.reasons]
        _store(booking)
        because = refuse.reasons[0].sentence if refuse.reasons else "There is no place to go on."
        run_none_left(booking, "not_resumed", because, now)
        return
    booking.charged, booking.ended_at = earlier_settle(booking, now), now
    pause_over(booking, now)
    booking.state = _refused_as(booking)
    booking.outcome = str(booking.state)
    booking.decision = decision
    booking.reasons = [reason_data(reason) for reason in refuse.reasons]
    booking.alternatives = [
        {
            "gpu_class": item.gpu_class,
            "profile": item.profile,
            "count": item.count,
            "share": item.share,
            "starts": instant(item.starts).isoformat(),
            "ends": instant(item.ends).isoformat(),
            **({"pin": list(item.pin)} if item.pin else {}),
        }
        for item in refuse.alternatives
    ]
    booking.planned_places = []
    _store(booking, "outcome", "alternatives", "charged", "ended_at", "planned_places")
    sentence = refuse.reasons[0].sentence if refuse.reasons else "It can't be placed."
    freed = money_text(booking.held - booking.charged, booking.currency)
    event_add(
        booking,
        kind=str(booking.state),
        sentence=f"{sentence} {freed} is free again.",
        now=now,
        detail={"decision": decision.id},
    )


def _refused_as(booking: Booking) -> State:
    """What becomes of a booking that there is no room for, now or any more."""
    if booking.hardware_lost_at is not None:
        return State.FAILED
    if booking.replaced:
        # It ran, and is charged for that.
        return State.EXPIRED
    is_window = booking.state == State.REQUESTED or booking.starts is not None
    return State.REFUSED if is_window else State.EXPIRED


def _extend(extend: Extend, decision: Decision, now: datetime) -> None:
    booking = (
        Booking.objects.select_for_update(of=("self",))
        .filter(id=extend.booking, extension_until=instant(extend.until))
        .first()
    )
    if booking is None or booking.planned_ends is None:
        raise PlanStale("an extension was withdrawn")
    until = instant(extend.until)
    refusal = extend.reasons[0].sentence if extend.reasons else _hold_more(booking, until, now)
    if refusal is None:
        live = Allocation.objects.filter(booking=booking, state__in=Allocation.LIVE, left=False)
        for row in live.order_by("id"):
            row.period = DateTimeTZRange(row.period.lower, until)
            row.save(update_fields=["period"])
        nodes_bump(row.gpu_id for row in live)
        booking.planned_ends = until
    booking.extension_until = None
    _store(booking, "planned_ends", "extension_until", "held")
    event_add(
        booking,
        kind="extension_refused" if refusal else "extended",
        sentence=refusal or "Extended.",
        now=now,
        detail={"decision": decision.id, "until": until.isoformat()},
    )


def _hold_more(booking: Booking, until: datetime, now: datetime) -> str | None:
    """Holds the price of the added time; the sentence of the refusal when it is not there."""
    ends = booking.planned_ends
    if ends is None:
        raise PlanStale("an extension of nothing")
    extra = booking_cost(booking, int((until - ends).total_seconds()))
    try:
        with transaction.atomic():
            hold_place(
                tenant_id=booking.tenant_id,
                project_id=booking.project_id,
                reference=booking.id,
                amount=extra,
                starts=ends,
                ends=until,
                now=now,
            )
    except Refused as refused:
        return refused.sentence
    booking.held += extra
    return None


def _bookings_locked(changes: Changes) -> dict[str, Booking]:
    """All bookings that change, locked in one order, which is that of reports too.

    Raises:
        PlanStale: one no longer waits, or no longer runs.
    """
    given: tuple[Assign | Waiting | Refuse, ...]
    given = (*changes.assigns, *changes.waits, *changes.refusals)
    answers = {each.booking for each in given}
    victims = {pause.booking for pause in changes.pauses}
    others = {pause.beneficiary for pause in changes.pauses}
    others |= {extend.booking for extend in changes.extensions} | set(changes.withdrawn)
    others |= {move.booking for move in changes.moves}
    rows = Booking.objects.select_for_update(of=("self",)).select_related("tier")
    found = {
        str(row.id): row for row in rows.filter(id__in=answers | victims | others).order_by("id")
    }
    waits = (*WAITING, State.PAUSING, State.PAUSED)
    if not all(key in found and found[key].state in waits for key in answers - victims):
        raise PlanStale("a booking no longer waits")
    if not all(key in found and found[key].state == State.ACTIVE for key in victims):
        raise PlanStale("a booking to be paused no longer runs")
    if any(key not in found or State(found[key].state) in TERMINAL for key in others):
        raise PlanStale("what was paused for, or to be extended or moved, is over")
    return found


def _store(booking: Booking, *more: str) -> None:
    booking.version += 1
    fields = {"state", "version", "decision", "planned_starts", "planned_ends", "planned_class"}
    fields |= {"first_promise", "first_promised_at"}
    booking.save(update_fields=[*fields, "reasons", *more])
