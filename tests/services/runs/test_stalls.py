"""Late starts: one notification, and no charge."""

from datetime import timedelta

import pytest

from allocation.models import Booking, GpuEvent
from allocation.rules.nodes.node_policy import NodePolicy
from allocation.services.bookings.creation import booking_request
from allocation.services.runs.start import slow_starts_notify
from allocation.words.reasons import stored_sentence
from tests.builders_allocation import Lab, a_booking_request, a_lab, an_ask
from tests.roles import as_system
from tests.services.plant import NAME, Plant, fresh

SLOW = timedelta(seconds=NodePolicy().start_slow)


@pytest.fixture
def lab(plant: Plant) -> Lab:
    return a_lab("helix", gpus=0)


def notified(plant: Plant) -> int:
    with as_system():
        return slow_starts_notify(plant.now)


def slow() -> list[tuple[str, bool]]:
    with as_system():
        return [(e.sentence, e.is_open) for e in GpuEvent.objects.filter(kind="slow")]


def starting(plant: Plant, lab: Lab) -> Booking:
    """A booking that starts on a node whose agent does nothing."""
    with as_system():
        request = a_booking_request(lab.project, an_ask(2))
        booking = booking_request(actor=lab.actor, request=request, now=plant.now)
    plant.cycle()
    assert fresh(booking).state == "starting"
    return booking


def test_who_starts_is_told_once_that_the_node_does_not_answer_and_pays_nothing(
    plant: Plant, lab: Lab
) -> None:
    booking = starting(plant, lab)
    plant.now += SLOW - timedelta(seconds=1)
    assert notified(plant) == 0
    plant.now += timedelta(seconds=1)
    assert (notified(plant), notified(plant)) == (1, 0)
    now = fresh(booking)
    assert (now.state, now.ready_at, now.charged) == ("starting", None, None)
    (reason,) = now.reasons
    assert reason["rule"] == "R86"
    assert stored_sentence(reason).startswith(f"{NAME} does not answer.")
    with as_system():
        assert booking.events.filter(kind="start_slow").count() == 1
    assert slow() == [("1 booking waits to start on this node.", True)]

    plant.round()
    assert fresh(booking).state == "active"
    assert fresh(booking).ready_at == plant.now
    assert notified(plant) == 0
    assert slow() == [("1 booking waits to start on this node.", False)]


def test_a_start_that_is_in_time_is_nobodys_business(plant: Plant, lab: Lab) -> None:
    booking = starting(plant, lab)
    plant.round()
    plant.now += SLOW
    assert notified(plant) == 0
    assert (fresh(booking).state, slow()) == ("active", [])
