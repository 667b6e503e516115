"""The one door for a booking's state: nothing else writes it, and it writes all of it."""

import ast
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from allocation.models import Booking, BookingEvent
from allocation.rules.states import CLEARED_BY, CLEARED_IN, TRANSITIONS, State, fields_cleared
from allocation.services.record.history import Event
from allocation.services.runs.transition import (
    Change,
    TransitionRefused,
    booking_change,
    booking_move,
    bookings_change,
)
from allocation.words.events import event_text
from tenants.models import OutboxMessage
from tests.builders_allocation import Lab, a_booking
from tests.roles import as_system

ROOT = Path(__file__).parents[3]
DOOR = "allocation/services/runs/transition.py"
NOW = datetime(2026, 11, 2, 9, tzinfo=UTC)
EVENT = Event("moved", event_text("unplaceable"))
# Other things with a state, by the names that they have where it is assigned.
NOT_BOOKINGS = {
    "node",
    "live",
    "invitation",
    "place",
    "pause",
    "delivery",
    "approval",
    "change",
    "self.change",
    "message",
    "array",
    "row",
    "offer",
    "counter",
    "draft",
}
OTHER_STATES = (
    "Allocation.State.",
    "Approval.State.",
    "BookingArray.State.",
    "Override.State.",
    "WebhookDelivery.State.",
    "CounterOffer.State.",
)
GUARDED = {"state", "version"} | {
    name for names in (*CLEARED_IN.values(), *CLEARED_BY.values()) for name in names
}


def _sources() -> Iterator[tuple[str, ast.Module]]:
    for package in ("allocation", "billing", "portal", "tenants"):
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            # Models of hardware have states of their own.
            inner = (DOOR, "allocation/models/fleet/")
            if "/migrations/" not in name and not name.startswith(inner):
                yield name, ast.parse(path.read_text())


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from target.elts if isinstance(target, ast.Tuple) else [target]
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        yield node.target


def _other_doors(name: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        for target in _targets(node):
            if isinstance(target, ast.Attribute) and target.attr in GUARDED:
                owner = ast.unparse(target.value)
                if owner not in NOT_BOOKINGS:
                    yield f"{name}:{node.lineno} {ast.unparse(target)}"  # type: ignore[attr-defined]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield from _bulk_writes(name, node)
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and "UPDATE allocation_booking " in node.value:  # type: ignore[attr-defined]
            yield f"{name}:{node.lineno} raw SQL"  # type: ignore[attr-defined]


def _bulk_writes(name: str, call: ast.Call) -> Iterator[str]:
    """Calls of `update` that give a state of bookings, not of something else."""
    is_write = isinstance(call.func, ast.Attribute) and call.func.attr == "update"
    for keyword in call.keywords if is_write else ():
        is_other = ast.unparse(keyword.value).startswith(OTHER_STATES)
        if keyword.arg in ("state", "version") and not is_other:
            yield f"{name}:{call.lineno} update({keyword.arg}=…)"


def test_only_the_door_writes_what_a_state_says() -> None:
    assert [found for name, tree in _sources() for found in _other_doors(name, tree)] == []


def test_the_search_for_other_doors_finds_them() -> None:
    """Each way that was in use before there was a door."""
    tree = ast.parse(
        "booking.state, booking.outcome = State.ENDED, 'x'\n"
        "booking.version += 1\n"
        "booking.ready_at = booking.notified_at = None\n"
        "Booking.objects.filter(id=1).update(state=state)\n"
        "SQL = 'UPDATE allocation_booking SET state = 1'\n"
        "node.state = state\nrows.update(state=Allocation.State.ENDED)\n"
    )
    assert len(list(_other_doors("x.py", tree))) == 6


def test_a_step_that_the_table_lacks_is_refused_before_anything_is_written(lab: Lab) -> None:
    booking = a_booking(lab.project, lab.actor.user_id, state=State.QUEUED)
    with as_system(), pytest.raises(TransitionRefused, match="from queued to active"):
        booking_move(booking, State.ACTIVE, event=EVENT, now=NOW)
    with as_system():
        stored = Booking.objects.get(id=booking.id)
        assert (booking.state, booking.version) == (stored.state, stored.version)
        assert stored.state == State.QUEUED
        assert not BookingEvent.objects.filter(booking=booking).exists()


def test_every_step_clears_its_fields_and_keeps_all_others(lab: Lab) -> None:
    marks = {"alternatives": [1], "planned_places": [2], "reasons": [{"code": "x"}]}
    marks |= {"used_seconds": 3, "absent_seconds": 4, "absence_warnings": 1}
    marks |= {name: NOW + timedelta(hours=1) for name in GUARDED - {"state", "version"} - set(marks)}
    for old, new in sorted(TRANSITIONS):
        if {State.AWAITING_APPROVAL, State.OFFERED} & {old, new}:
            continue  # The database demands a request or an offer; their own tests make one.
        booking = a_booking(lab.project, lab.actor.user_id, state=old)
        with as_system():
            for name, value in marks.items():
                setattr(booking, name, value)
            booking_move(booking, new, event=EVENT, now=NOW)
            empty = {name for name in marks if not getattr(booking, name)}
            assert empty == set(fields_cleared(old, new)), (old, new)


def test_a_change_is_stored_whole_with_its_event_and_message(lab: Lab) -> None:
    booking = a_booking(lab.project, lab.actor.user_id, state=State.QUEUED)
    other = a_booking(lab.project, lab.actor.user_id, state=State.PAUSED)
    booking.planned_places, other.planned_places = [1], [2]
    before = booking.version
    with as_system():
        bookings_change(
            [
                Change(booking, EVENT, State.SCHEDULED, {"reasons": [{"code": "x"}]}),
                Change(other, EVENT, None, {"planned_class": "h100", "planned_places": [2]}),
            ],
            now=NOW,
        )
        booking_change(booking, event=EVENT, now=NOW, planned_starts=NOW)
        booking_change(booking, now=NOW, saved_at=NOW)
        one, two = (Booking.objects.get(id=each.id) for each in (booking, other))
        assert (one.state, one.version, one.planned_places) == ("scheduled", before + 3, [])
        assert (one.reasons, one.planned_starts, one.saved_at) == ([{"code": "x"}], NOW, NOW)
        assert (two.state, two.planned_class, two.planned_places) == ("paused", "h100", [2])
        lines = BookingEvent.objects.filter(booking__in=[one, two]).order_by("id")
        assert [line.state for line in lines] == ["scheduled", "paused", "scheduled"]
        said = OutboxMessage.objects.filter(kind="booking.moved").order_by("id")
        assert [row.payload["version"] for row in said][-3:] == [before + 1, 2, before + 2]
