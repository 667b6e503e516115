"""The one door for a booking's state: nothing else writes it, and it writes all of it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.db import connection, transaction

from allocation.models import Booking, BookingEvent
from allocation.rules.states import TRANSITIONS, State, fields_cleared
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
from tests.doors import OtherDoor, cleared
from tests.roles import as_system

ROOT = Path(__file__).parents[3]
NOW = datetime(2026, 11, 2, 9, tzinfo=UTC)
EVENT = Event("moved", event_text("unplaceable"))
# Ways to another door: each is what a module of the product could say.
WAYS = {
    "an attribute": "booking.state = 'ended'\nbooking.save(update_fields=['state'])",
    "another name": "row = booking\nrow.version += 1\nrow.save(update_fields=['version'])",
    "setattr": "setattr(booking, 'state', 'ended')\nbooking.save(update_fields=['state'])",
    "a whole save": "booking.name = 'x'\nbooking.save()",
    "update": "type(booking).objects.filter(id=booking.id).update(state='ended')",
    "bulk_update": "booking.state = 'ended'\ntype(booking).objects.bulk_update([booking], ['state'])",
    "SQL": "connection.cursor().execute('UPDATE allocation_booking SET state = NULL WHERE false')",
}


@pytest.mark.parametrize("way", WAYS)
def test_only_the_door_writes_what_a_state_says(lab: Lab, way: str) -> None:
    """`tests.doors` watches this in every test."""
    booking = a_booking(lab.project, lab.actor.user_id, state=State.QUEUED)
    other = compile(WAYS[way], str(ROOT / "allocation" / "services" / "other.py"), "exec")
    with as_system(), pytest.raises(OtherDoor, match=r"other\.py"), transaction.atomic():
        exec(other, {"booking": booking, "connection": connection})  # noqa: S102 (code of this test)
    with as_system():
        assert Booking.objects.get(id=booking.id).state == State.QUEUED


def test_other_fields_and_tests_need_no_door(lab: Lab) -> None:
    booking = a_booking(lab.project, lab.actor.user_id, state=State.QUEUED)
    plain = compile("booking.save(update_fields=['name'])", str(ROOT / "allocation" / "other.py"), "exec")
    with as_system():
        exec(plain, {"booking": booking})  # noqa: S102 (code of this test)
        Booking.objects.filter(id=booking.id).update(version=7)


def test_a_step_that_the_table_lacks_is_refused_before_anything_is_written(lab: Lab) -> None:
    booking = a_booking(lab.project, lab.actor.user_id, state=State.QUEUED)
    with as_system(), pytest.raises(TransitionRefused, match="from queued to active"):
        booking_move(booking, State.ACTIVE, event=EVENT, now=NOW)
    with as_system():
        stored = Booking.objects.get(id=booking.id)
        assert (booking.state, booking.version) == (stored.state, stored.version)
        assert stored.state == State.QUEUED
        assert not BookingEvent.objects.filter(booking=booking).exists()


@pytest.mark.turn
def test_every_step_clears_its_fields_and_keeps_all_others(lab: Lab) -> None:
    marks = {"alternatives": [1], "planned_places": [2], "reasons": [{"code": "x"}]}
    marks |= {"used_seconds": 3, "absent_seconds": 4, "absence_warnings": 1}
    marks |= {name: NOW + timedelta(hours=1) for name in cleared() - set(marks)}
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
