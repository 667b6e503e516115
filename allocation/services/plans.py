"""Making a plan true: one short transaction, conditional on what the plan was made from."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

from django.db import transaction
from django.db.backends.postgresql.psycopg_any import DateTimeTZRange

from allocation.models import Allocation, Booking, Decision, Gpu, SolverState
from allocation.rules.catalogue import BY_ID
from allocation.rules.states import TERMINAL, WAITING, State
from allocation.services.borrowing import marks_write
from allocation.services.changes import Changes, reason_data
from allocation.services.compaction_orders import order_answer
from allocation.services.costs import booking_cost, earlier_settle
from allocation.services.history import event_add
from allocation.services.lifecycle import nodes_bump
from allocation.services.moves import move_tell, row_leave
from allocation.services.offers import price_of_class
from allocation.services.pauses import pause_over
from allocation.services.pausing import pause_begin, pause_withdraw
from allocation.services.places import place_data
from allocation.services.runs import run_none_left
from allocation.services.snapshot import instant
from allocation.services.work import has_run
from allocation.solver import (
    Assign,
    Carried,
    Extend,
    Move,
    Place,
    Refuse,
    Shape,
    Snapshot,
    Waiting,
    units_of,
)
from billing.rules import money_text
from billing.services import hold_move, hold_place
from tenants.errors import Refused


class PlanStale(Exception):
    """Something the plan was made from has changed; drop the plan and look again."""


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
        fleet = _Fleet.read(snapshot, changes)
        # Shortened first, so that the room is free for who it is paused for.
        for pause in changes.pauses:
            victim, beneficiary = bookings[pause.booking], bookings[pause.beneficiary]
            pause_begin(victim, beneficiary, instant(pause.at), pause.reasons, decision, now)
        for withdrawn in changes.withdrawn:
            _withdraw(bookings[withdrawn], now)
        _move_all(changes.moves, bookings, fleet, decision, now)
        for assign in changes.assigns:
            _assign(bookings[assign.booking], assign, fleet, decision, now)
        for wait in changes.waits:
            _wait(bookings[wait.booking], wait, decision, now)
        for refuse in changes.refusals:
            _refuse(bookings[refuse.booking], refuse, decision, now)
        for extend in changes.extensions:
            _extend(extend, decision, now)
        _orders_answer(changes.orders, decision, now)
        marks_write(changes.marks, now)


def _orders_answer(orders: Sequence[Carried], decision: Decision, now: datetime) -> None:
    if not all(order_answer(each, decision, now) for each in orders):
        raise PlanStale("an order has its answer already")


def _withdraw(booking: Booking, now: datetime) -> None:
    if not pause_withdraw(booking, now):
        raise PlanStale("a pause is out, or all was saved")


@dataclass(frozen=True, slots=True)
class _Fleet:
    """What an allocation row repeats of its GPU, and what its place costs in units."""

    gpus: dict[str, Gpu]
    snapshot: Snapshot

    @classmethod
    def read(cls, snapshot: Snapshot, changes: Changes) -> "_Fleet":
        ids = {place.gpu for assign in changes.assigns for place in assign.places}
        ids |= {place.gpu for move in changes.moves for place in (*move.source, *move.places)}
        rows = Gpu.objects.select_related("node").filter(id__in=ids) if ids else ()
        return cls({str(gpu.id): gpu for gpu in rows}, snapshot)

    def units(self, gpu: Gpu, shape: Shape) -> int:
        model = next(model for model in self.snapshot.models if model.slug == gpu.model_id)
        return units_of(model, shape)


def _mode_of(place: Place) -> Gpu.Mode:
    if place.share is not None:
        return Gpu.Mode.SHARED
    return Gpu.Mode.SLICED if place.profile else Gpu.Mode.WHOLE


def _move_all(
    moves: Sequence[Move],
    bookings: Mapping[str, Booking],
    fleet: _Fleet,
    decision: Decision,
    now: datetime,
) -> None:
    """All that move leave before any of them comes in: they may change places."""
    for move in moves:
        if not row_leave(bookings[move.booking], move):
            raise PlanStale("a booking to be moved has other places by now")
    for move in moves:
        _rows_write(bookings[move.booking], move, fleet, decision)
        move_tell(bookings[move.booking], move, fleet.gpus, decision, now)


def _assign(
    booking: Booking, assign: Assign, fleet: _Fleet, decision: Decision, now: datetime
) -> None:
    goes_on = booking.state == State.PAUSED
    if goes_on and booking.allocations.filter(state__in=Allocation.LIVE, left=False).exists():
        raise PlanStale(f"{booking.label} has a place to go on")
    _rows_write(booking, assign, fleet, decision)
    if not goes_on:
        booking.state = State.SCHEDULED
    if len(booking.ask["classes"]) > 1:
        # The price of the dearest was held. A class without a price then costs what was promised.
        with suppress(Refused):
            price = price_of_class(booking, assign.gpu_class)
            booking.price_per_hour = min(booking.price_per_hour, price)
    if not has_run(booking):
        # Work is as long as its class needs from here on.
        lengths = dict(booking.lengths)
        booking.duration_seconds = lengths.get(assign.gpu_class, booking.duration_seconds)
    if booking.starts is None:
        # A fixed window was paid for where it lies.
        _hold_follows(booking, assign, now)
    _plan_fields(booking, assign, decision)
    late = (each for each in assign.reasons if BY_ID[each.rule].effect in ("delays", "both"))
    booking.reasons = [reason_data(each) for each in late]
    booking.alternatives, booking.planned_places = [], []
    _store(booking, "price_per_hour", "alternatives", "duration_seconds", "planned_places")
    where = _where(assign, fleet)
    event_add(
        booking,
        kind="scheduled",
        sentence=f"Goes on on {where}." if goes_on else f"Scheduled on {where}.",
        now=now,
        detail={"decision": decision.id, "starts": instant(assign.starts).isoformat()},
    )


def _rows_write(booking: Booking, assign: Assign | Move, fleet: _Fleet, decision: Decision) -> None:
    """Takes the places in the calendar. PlanStale: somebody has one of them."""
    period = DateTimeTZRange(instant(assign.starts), instant(assign.ends))
    rows = [
        Allocation(
            id=uuid4(),
            tenant_id=booking.tenant_id,
            project_id=booking.project_id,
            booking=booking,
            gpu_id=place.gpu,
            gpu_number=fleet.gpus[place.gpu].number,
            model_id=fleet.gpus[place.gpu].model_id,
            mode=_mode_of(place),
            profile=place.profile,
            start=place.start,
            size=place.size,
            share=place.share,
            units=fleet.units(fleet.gpus[place.gpu], place.shape),
            period=period,
            decision=decision,
        )
        for place in sorted(assign.places, key=lambda place: (place.gpu, place.start))
    ]
    # ON CONFLICT DO NOTHING: a plain insert into an exclusion constraint deadlocks under load.
    Allocation.objects.bulk_create(rows, ignore_conflicts=True)
    if Allocation.objects.filter(id__in=[row.id for row in rows]).count() != len(rows):
        raise PlanStale(f"a place of {booking.label} is taken")


def _hold_follows(booking: Booking, assign: Assign, now: datetime) -> None:
    hold_move(
        tenant_id=booking.tenant_id,
        project_id=booking.project_id,
        reference=booking.id,
        amount=booking.held - booking.settled,
        starts=instant(assign.starts),
        ends=instant(assign.ends),
        now=now,
    )


def _wait(booking: Booking, wait: Waiting, decision: Decision, now: datetime) -> None:
    moved = booking.planned_starts is not None and booking.planned_starts != instant(wait.starts)
    is_new = booking.state == State.REQUESTED
    if is_new:
        booking.state = State.QUEUED
    _plan_fields(booking, wait, decision)
    booking.planned_places = [place_data(place) for place in wait.places]
    booking.reasons = [reason_data(reason) for reason in wait.reasons]
    _store(booking, "planned_places")
    if is_new or moved:
        because = f" {wait.delayed_by.sentence}" if wait.delayed_by else ""
        event_add(
            booking,
            kind="queued" if is_new else "moved",
            sentence=f"Waiting, with a planned start.{because}",
            now=now,
            detail={"decision": decision.id, "starts": instant(wait.starts).isoformat()},
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


def _plan_fields(booking: Booking, given: Assign | Waiting, decision: Decision) -> None:
    booking.decision = decision
    booking.planned_starts = instant(given.starts)
    booking.planned_ends = instant(given.ends)
    booking.planned_class = given.gpu_class
    if booking.first_promise is None:
        booking.first_promise, booking.first_promised_at = booking.planned_starts, decision.at


def _store(booking: Booking, *more: str) -> None:
    booking.version += 1
    fields = {"state", "version", "decision", "planned_starts", "planned_ends", "planned_class"}
    fields |= {"first_promise", "first_promised_at"}
    booking.save(update_fields=[*fields, "reasons", *more])


def _where(assign: Assign, fleet: _Fleet) -> str:
    nodes: Sequence[str] = sorted({fleet.gpus[place.gpu].node.name for place in assign.places})
    return " and ".join(nodes)
