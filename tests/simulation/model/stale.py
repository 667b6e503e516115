"""What the model finds changed since the snapshot: see services/stale_parts.py."""

from collections.abc import Mapping

from solver import (
    CHANGED,
    LEFT,
    NEEDED,
    ROOM_FREED,
    Assign,
    Part,
    Plan,
    Refuse,
    Snapshot,
    Waiting,
    refused_too_early,
)
from tests.simulation.model.pausing import is_withdrawable
from tests.simulation.tables.rows import OVER, Tables

_WAITS = ("requested", "queued", "waitlisted", "pausing", "paused")
_EXTENDABLE = ("scheduled", "starting", "active")


def parts_stale(tables: Tables, plan: Plan, snapshot: Snapshot, now: float) -> dict[Part, str]:
    """What can't be written, and why."""
    states = {name: booking.state for name, booking in tables.bookings.items()}
    found = _answers(plan, states) | _revisions(tables, plan, snapshot) | _changes(tables, plan)
    found |= _pauses(plan, states)
    for move in plan.moves:
        if states[move.booking] != "scheduled":
            found["move", move.booking] = LEFT if states[move.booking] in OVER else CHANGED
    for extend in plan.extensions:
        booking = tables.bookings[extend.booking]
        if booking.extension != extend.until or booking.state not in _EXTENDABLE:
            found["extension", extend.booking] = LEFT
    for name in plan.withdrawn:
        pause_open = tables.pause_of(tables.bookings[name])
        if pause_open is None or not is_withdrawable(tables, pause_open, now):
            found["withdrawal", name] = CHANGED
    answered = (each.order for each in plan.orders if each.order not in tables.orders)
    return found | {("order", order): CHANGED for order in answered}


def _answers(plan: Plan, states: Mapping[str, str]) -> dict[Part, str]:
    victims = {pause.booking for pause in plan.pauses}
    changed = {each.booking for each in plan.changes if each.granted}
    answers: tuple[Assign | Waiting | Refuse, ...] = (*plan.assigns, *plan.waits, *plan.refusals)
    found: dict[Part, str] = {}
    for each in answers:
        may_be: tuple[str, ...] = ("active",) if each.booking in victims else _WAITS
        if each.booking in changed:
            may_be = ("queued", "scheduled")
        if states[each.booking] not in may_be:
            found["answer", each.booking] = LEFT
    return found


def _revisions(tables: Tables, plan: Plan, snapshot: Snapshot) -> dict[Part, str]:
    """See revisions_of: what was asked for has changed since the look."""
    answers: tuple[Assign | Waiting | Refuse, ...] = (*plan.assigns, *plan.waits, *plan.refusals)
    names = {each.booking for each in answers}
    return {
        ("answer", each.booking): CHANGED
        for each in snapshot.requests
        if each.booking in names and tables.bookings[each.booking].revision - 1 != each.revision
    }


def _changes(tables: Tables, plan: Plan) -> dict[Part, str]:
    found: dict[Part, str] = {}
    for each in plan.changes:
        booking, row = tables.bookings[each.booking], tables.changes.get(each.booking)
        if booking.state in OVER:
            found["change", each.booking] = LEFT
        elif row is None or row.id != each.change or row.base != booking.revision:
            found["change", each.booking] = CHANGED
    return found


def _pauses(plan: Plan, states: Mapping[str, str]) -> dict[Part, str]:
    found: dict[Part, str] = {}
    for pause in plan.pauses:
        if states[pause.booking] != "active":
            found["pause", pause.booking] = CHANGED
        elif states[pause.beneficiary] in (*OVER, "ending"):
            found["pause", pause.booking] = NEEDED
    return found


def too_early(tables: Tables, plan: Plan, snapshot: Snapshot) -> dict[Part, str]:
    """See pieces._too_early."""
    here = {each.booking for each in snapshot.requests}
    here |= {each.booking for each in snapshot.held if not each.started and each.tenant}
    left = {name for name in here if tables.bookings[name].state in OVER}
    return dict.fromkeys(refused_too_early(plan, snapshot, left), ROOM_FREED)
