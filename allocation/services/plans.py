"""Making a plan true: one short transaction, conditional on what the plan was made from."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid4

from django.db import transaction
from django.db.backends.postgresql.psycopg_any import DateTimeTZRange

from allocation.models import Allocation, Booking, Decision, Gpu, SolverState
from allocation.rules.states import State
from allocation.services.bookings import booking_cost, earlier_settle, price_of_class
from allocation.services.borrowing import Mark, marks_of, marks_write
from allocation.services.history import event_add
from allocation.services.lifecycle import nodes_bump
from allocation.services.replace import WORTH_SECONDS, time_left
from allocation.services.snapshot import instant, place_data
from allocation.solver import (
    Assign,
    Extend,
    Place,
    Plan,
    Reason,
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


@dataclass(frozen=True, slots=True)
class Changes:
    """What of a plan is new to the database, and worth a stored decision."""

    assigns: tuple[Assign, ...]
    waits: tuple[Waiting, ...]
    refusals: tuple[Refuse, ...]
    extensions: tuple[Extend, ...]
    marks: tuple[Mark, ...]

    def __bool__(self) -> bool:
        answers = self.assigns or self.waits or self.refusals or self.extensions
        return bool(answers or self.marks)


def changes_of(plan: Plan, now: datetime) -> Changes:
    """Leaves out waiting bookings whose promise and reasons are what is stored already, and
    refusals of such as are to begin anew: while they have time left, they wait."""
    known = {
        str(booking.id): booking
        for booking in Booking.objects.filter(id__in=[UUID(wait.booking) for wait in plan.waits])
    }
    return Changes(
        assigns=plan.assigns,
        waits=tuple(wait for wait in plan.waits if not _is_known(wait, known.get(wait.booking))),
        refusals=_final(plan.refusals, now),
        extensions=plan.extensions,
        marks=marks_of(plan),
    )


def _final(refusals: tuple[Refuse, ...], now: datetime) -> tuple[Refuse, ...]:
    again = Booking.objects.filter(
        id__in=[UUID(refuse.booking) for refuse in refusals], replaced__gt=0
    )
    wait = {str(row.id) for row in again if time_left(row, now)[0] >= WORTH_SECONDS}
    return tuple(refuse for refuse in refusals if refuse.booking not in wait)


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
        waiting = _waiting_bookings([*changes.assigns, *changes.waits, *changes.refusals])
        fleet = _Fleet.read(snapshot)
        for assign in changes.assigns:
            _assign(waiting[assign.booking], assign, fleet, decision, now)
        for wait in changes.waits:
            _wait(waiting[wait.booking], wait, decision, now)
        for refuse in changes.refusals:
            _refuse(waiting[refuse.booking], refuse, decision, now)
        for extend in changes.extensions:
            _extend(extend, decision, now)
        marks_write(changes.marks, now)


@dataclass(frozen=True, slots=True)
class _Fleet:
    """What an allocation row repeats of its GPU, and what its place costs in units."""

    gpus: dict[str, Gpu]
    snapshot: Snapshot

    @classmethod
    def read(cls, snapshot: Snapshot) -> "_Fleet":
        gpus = {str(gpu.id): gpu for gpu in Gpu.objects.select_related("node")}
        return cls(gpus, snapshot)

    def units(self, gpu: Gpu, shape: Shape) -> int:
        model = next(model for model in self.snapshot.models if model.slug == gpu.model_id)
        return units_of(model, shape)


def _mode_of(place: Place) -> Gpu.Mode:
    if place.share is not None:
        return Gpu.Mode.SHARED
    return Gpu.Mode.SLICED if place.profile else Gpu.Mode.WHOLE


def _assign(
    booking: Booking, assign: Assign, fleet: _Fleet, decision: Decision, now: datetime
) -> None:
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
    booking.state = State.SCHEDULED
    if len(booking.ask["classes"]) > 1:
        # The price of the dearest was held. A class without a price then costs what was promised.
        with suppress(Refused):
            price = price_of_class(booking, assign.gpu_class)
            booking.price_per_hour = min(booking.price_per_hour, price)
    if booking.starts is None:
        # A fixed window was paid for where it lies.
        _hold_follows(booking, assign, now)
    _plan_fields(booking, assign, decision)
    booking.reasons, booking.alternatives = [], []
    _store(booking, "price_per_hour", "alternatives")
    where = _where(assign, fleet)
    event_add(
        booking,
        kind="scheduled",
        sentence=f"Scheduled on {where}.",
        now=now,
        detail={"decision": decision.id, "starts": instant(assign.starts).isoformat()},
    )


def _hold_follows(booking: Booking, assign: Assign, now: datetime) -> None:
    hold_move(
        tenant_id=booking.tenant_id,
        project_id=booking.project_id,
        reference=booking.id,
        amount=booking.held,
        starts=instant(assign.starts),
        ends=instant(assign.ends),
        now=now,
    )


def _wait(booking: Booking, wait: Waiting, decision: Decision, now: datetime) -> None:
    moved = booking.planned_starts is not None and booking.planned_starts != instant(wait.starts)
    is_new = booking.state == State.REQUESTED
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
    booking.charged, booking.ended_at = earlier_settle(booking, now), now
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


def reason_data(reason: Reason) -> dict[str, object]:
    """A reason as JSON: what the API, the page and the mail show."""
    return {
        "rule": reason.rule,
        "code": reason.code,
        "check": reason.check,
        "sentence": reason.sentence,
        "numbers": dict(reason.numbers),
        "frees_at": instant(reason.frees_at).isoformat() if reason.frees_at else None,
    }


def _waiting_bookings(answers: Iterable[Assign | Waiting | Refuse]) -> dict[str, Booking]:
    """The bookings that are answered, locked in one order. PlanStale: one no longer waits."""
    identifiers = {answer.booking for answer in answers}
    rows = (
        Booking.objects.select_for_update(of=("self",))
        .select_related("tier")
        .filter(id__in=identifiers, state__in=[State.REQUESTED, State.QUEUED])
        .order_by("id")
    )
    found = {str(row.id): row for row in rows}
    if len(found) != len(identifiers):
        raise PlanStale("a booking no longer waits")
    return found


def _is_known(wait: Waiting, booking: Booking | None) -> bool:
    return (
        booking is not None
        and booking.state == State.QUEUED
        and booking.planned_starts == instant(wait.starts)
        and booking.planned_places == [place_data(place) for place in wait.places]
        and booking.reasons == [reason_data(reason) for reason in wait.reasons]
    )


def _plan_fields(booking: Booking, given: Assign | Waiting, decision: Decision) -> None:
    booking.decision = decision
    booking.planned_starts = instant(given.starts)
    booking.planned_ends = instant(given.ends)
    booking.planned_class = given.gpu_class


def _store(booking: Booking, *more: str) -> None:
    booking.version += 1
    fields = {"state", "version", "decision", "planned_starts", "planned_ends", "planned_class"}
    booking.save(update_fields=[*fields, "reasons", *more])


def _where(assign: Assign, fleet: _Fleet) -> str:
    nodes: Sequence[str] = sorted({fleet.gpus[place.gpu].node.name for place in assign.places})
    return " and ".join(nodes)
