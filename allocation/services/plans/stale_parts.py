"""The parts of a plan whose bookings have changed since its snapshot."""

from collections.abc import Iterator, Mapping
from datetime import datetime

from allocation.models import Booking, BookingChange, CompactionOrder
from allocation.rules.states import EXTENDABLE, TERMINAL, WAITING, State
from allocation.services.plans.plan_diff import Changes
from allocation.services.record.open_pauses import pauses_unneeded
from allocation.services.snapshot.snapshot import instant
from allocation.solver import (
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

_WAITS = (*WAITING, State.WAITLISTED, State.PAUSING, State.PAUSED)


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
    rows = pauses_unneeded(now).filter(booking_id__in=plan.withdrawn)
    able = {str(booking) for booking in rows.values_list("booking_id", flat=True)}
    yield from ((("withdrawal", name), CHANGED) for name in plan.withdrawn if name not in able)


def _orders(plan: Plan) -> Iterator[tuple[Part, str]]:
    if not plan.orders:
        return
    rows = CompactionOrder.objects.filter(id__in=[each.order for each in plan.orders])
    answered = {str(order) for order in rows.exclude(decided_at=None).values_list("id", flat=True)}
    yield from ((("order", o.order), CHANGED) for o in plan.orders if o.order in answered)
