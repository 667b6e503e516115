"""The part of a plan that changes the database, and what of it is stale."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from allocation.models import Booking, BookingChange, CompactionOrder
from allocation.rules.ask import MIN_DURATION_SECONDS
from allocation.rules.states import EXTENDABLE, TERMINAL, WAITING, State
from allocation.services.plans.borrowing import BorrowingMark, borrowing_marks
from allocation.services.plans.kept_places import soft_places_changed
from allocation.services.record.open_pauses import pauses_withdrawable
from allocation.services.record.places import place_data
from allocation.services.runs.resume import has_earlier_run, time_remaining
from allocation.services.snapshot.snapshot import instant
from allocation.words.reasons import reason_data
from solver import (
    CHANGED,
    LEFT,
    NEEDED,
    Assign,
    Part,
    Plan,
    Refuse,
    Snapshot,
    Waiting,
)
from solver.reasons.catalogue import UNPROVEN
from tenants.platform.database.compiled import Compiled

# Only what is compared here: a booking has a hundred columns.
_answered = Compiled(
    lambda _, keys: Booking.objects.filter(id__in=keys).only(
        *("state", "starts", "deadline", "duration_seconds", "used_seconds", "replacement_count"),
        *("planned_starts", "planned_strength", "planned_places", "reasons"),
    )
)
_WAITS = (*WAITING, State.WAITLISTED, State.PAUSING, State.PAUSED)


@dataclass(frozen=True, slots=True)
class Changes:
    """The part of a plan that changes the database, and deserves a stored decision."""

    plan: Plan
    marks: tuple[BorrowingMark, ...]

    def __bool__(self) -> bool:
        plan = self.plan
        answers = plan.assigns or plan.waits or plan.refusals or plan.extensions or plan.changes
        others = self.marks or plan.pauses or plan.moves or plan.withdrawn or plan.orders
        offers = plan.offers or plan.offers_withdrawn
        return bool(answers or others or plan.soft or offers or plan.idle)


def changes_of(plan: Plan, now: datetime) -> Changes:
    """Leaves out waiting bookings whose planned start and reasons are stored already.

    Refusals of requeued bookings are left out too: they wait while they have time left.
    """
    answers: tuple[Waiting | Assign | Refuse, ...] = (*plan.waits, *plan.assigns, *plan.refusals)
    answered = _answered(now, [UUID(each.booking) for each in answers]) if answers else ()
    known = {str(booking.id): booking for booking in answered}
    # A pausing booking gets a planned start now, and GPUs to resume on when it is paused.
    leaving = {pause.booking for pause in plan.pauses}
    leaving |= {key for key, booking in known.items() if booking.state == State.PAUSING}
    kept = leaving | {key for key, booking in known.items() if _keeps_waiting(booking, now)}
    planned = (_as_waiting(each) for each in plan.assigns if each.booking in leaving)
    waits = (*plan.waits, *planned)
    changed = {each.booking for each in plan.changes if each.granted}
    news = replace(
        plan,
        assigns=tuple(each for each in plan.assigns if each.booking not in leaving),
        waits=tuple(
            wait for wait in waits if wait.booking in changed or not _is_known(wait, known.get(wait.booking))
        ),
        refusals=tuple(each for each in plan.refusals if each.booking not in kept),
        extensions=tuple(each for each in plan.extensions if each.booking not in leaving),
        soft=soft_places_changed(plan.soft),
    )
    return Changes(news, borrowing_marks(plan, now))


def _as_waiting(assign: Assign) -> Waiting:
    return Waiting(
        assign.booking,
        assign.gpu_class,
        assign.places,
        assign.starts,
        assign.ends,
        assign.reasons,
    )


def _keeps_waiting(booking: Booking, now: datetime) -> bool:
    """Returns whether the booking survives a refusal.

    It is requeued with time left, or on the waiting list or the paused rest of a fixed window,
    which the clock ends.
    """
    if booking.state == State.WAITLISTED:
        return True
    if booking.state == State.PAUSED:
        return booking.starts is not None
    return has_earlier_run(booking) and time_remaining(booking, now)[0] >= MIN_DURATION_SECONDS


def has_planned_start(wait: Waiting) -> bool:
    """Returns whether the start is planned: without a proof it is a guess and is not shown."""
    is_proven = all(reason.code not in UNPROVEN for reason in wait.reasons[:1])
    return bool(wait.places) and is_proven


def _is_known(wait: Waiting, booking: Booking | None) -> bool:
    return (
        booking is not None
        and booking.state in (State.QUEUED, State.PAUSING, State.PAUSED)
        and booking.planned_starts == instant(wait.starts)
        and booking.planned_strength == (wait.strength if has_planned_start(wait) else None)
        and booking.planned_places == [place_data(place) for place in wait.places]
        and (wait.as_before or booking.reasons == [reason_data(each) for each in wait.reasons])
    )


def revisions_of(snapshot: Snapshot) -> dict[str, int]:
    """The revisions of the requests that a plan was made for."""
    found = {each.booking: each.revision for each in snapshot.requests}
    return found | {each.booking: each.target.revision for each in snapshot.changes}


def parts_stale(
    changes: Changes,
    bookings: Mapping[str, Booking],
    revisions: Mapping[str, int],
    now: datetime,
) -> dict[Part, str]:
    """Returns the parts that can't be written, and why; parts that need them are not included."""
    plan = changes.plan
    states = {name: State(row.state) for name, row in bookings.items()}
    found = dict(_answers(plan, states))
    found |= {
        ("answer", name): CHANGED
        for name, revision in revisions.items()
        if name in bookings and bookings[name].revision - 1 != revision
    }
    found |= dict(_changes(plan, bookings))
    found |= dict(_pauses(plan, states))
    found |= dict(_moves(plan, states))
    for extend in plan.extensions:
        row = bookings.get(extend.booking)
        is_asked = row is not None and row.extension_until == instant(extend.until)
        if row is None or not is_asked or states[extend.booking] not in EXTENDABLE:
            found["extension", extend.booking] = LEFT
    found |= dict(_withdrawals(plan, now))
    found |= dict(_orders(plan))
    return found


def _answers(plan: Plan, states: Mapping[str, State]) -> Iterator[tuple[Part, str]]:
    victims = {pause.booking for pause in plan.pauses}
    changed = {each.booking for each in plan.changes if each.granted}
    answers: tuple[Assign | Waiting | Refuse, ...] = (*plan.assigns, *plan.waits, *plan.refusals)
    for each in answers:
        # The victim of a new pause still runs.
        may_be = (State.ACTIVE,) if each.booking in victims else _WAITS
        if each.booking in changed:
            may_be = (State.QUEUED, State.SCHEDULED)
        if states.get(each.booking) not in may_be:
            yield ("answer", each.booking), LEFT


def _changes(plan: Plan, bookings: Mapping[str, Booking]) -> Iterator[tuple[Part, str]]:
    """Returns stale answers to changes, which were withdrawn or replaced meanwhile."""
    ids = [each.change for each in plan.changes]
    if not ids:
        return
    rows = BookingChange.objects.filter(id__in=ids, state=BookingChange.State.ASKED)
    asked = {str(row.id): row.base_revision for row in rows}
    for each in plan.changes:
        row = bookings.get(each.booking)
        if row is None or row.state in TERMINAL:
            yield ("change", each.booking), LEFT
        elif asked.get(each.change) != row.revision:
            yield ("change", each.booking), CHANGED


def _pauses(plan: Plan, states: Mapping[str, State]) -> Iterator[tuple[Part, str]]:
    """Returns stale pauses. A released victim stays in the calendar until the next turn."""
    for pause in plan.pauses:
        beneficiary = states.get(pause.beneficiary, State.CANCELLED)
        if states.get(pause.booking) != State.ACTIVE:
            yield ("pause", pause.booking), CHANGED
        elif beneficiary in TERMINAL or beneficiary == State.ENDING:
            yield ("pause", pause.booking), NEEDED


def _moves(plan: Plan, states: Mapping[str, State]) -> Iterator[tuple[Part, str]]:
    for move in plan.moves:
        state = states.get(move.booking, State.CANCELLED)
        if state != State.SCHEDULED:
            yield ("move", move.booking), LEFT if state in TERMINAL else CHANGED


def _withdrawals(plan: Plan, now: datetime) -> Iterator[tuple[Part, str]]:
    """Returns stale withdrawals: the grace period is over, or the owner has saved everything."""
    if not plan.withdrawn:
        return
    rows = pauses_withdrawable(now).filter(booking_id__in=plan.withdrawn)
    able = {str(booking) for booking in rows.values_list("booking_id", flat=True)}
    yield from ((("withdrawal", name), CHANGED) for name in plan.withdrawn if name not in able)


def _orders(plan: Plan) -> Iterator[tuple[Part, str]]:
    if not plan.orders:
        return
    rows = CompactionOrder.objects.filter(id__in=[each.order for each in plan.orders])
    answered = {str(order) for order in rows.exclude(decided_at=None).values_list("id", flat=True)}
    yield from ((("order", o.order), CHANGED) for o in plan.orders if o.order in answered)
