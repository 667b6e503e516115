"""A busy portal searches planned starts again when something was given back."""

from datetime import timedelta

import pytest

from allocation.models import Booking, Decision
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_release
from allocation.services.decide import cycle, leading
from allocation.services.decide.decision_log import decision_chain, decision_rebuild
from allocation.services.decide.replay import decision_replay
from solver.state.kept import QuietClasses
from tests.builders_allocation import Lab, a_booking_request, a_lab, an_ask
from tests.roles import as_system
from tests.services.plant import Plant


@pytest.fixture
def plant(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> Plant:
    """A portal for which one booking that waits is a backlog."""
    monkeypatch.setattr(leading, "QuietClasses", lambda: QuietClasses(least=1))
    monkeypatch.setattr(cycle, "_searches", leading.Searches())
    return plant


def requested(plant: Plant, lab: Lab) -> Booking:
    """One more booking of an hour, decided a second later."""
    with as_system():
        request = a_booking_request(lab.project, an_ask(hours=1))
        booking = booking_request(actor=lab.actor, request=request, now=plant.now)
    plant.later(timedelta(seconds=1))
    plant.cycle()
    return booking


def quiet() -> tuple[str, ...]:
    """The quiet classes of the last decision, which a replay makes again byte for byte."""
    with as_system():
        decision = Decision.objects.latest("id")
        assert decision_replay(decision).is_equal
        return decision_rebuild(decision_chain(decision)).snapshot.quiet


@pytest.mark.parametrize("plant", [1], indirect=True)
def test_a_request_leaves_planned_starts_alone_until_room_is_given_back(plant: Plant) -> None:
    lab = a_lab("helix", gpus=0)
    running, first = requested(plant, lab), requested(plant, lab)
    plant.round()
    requested(plant, lab)
    assert quiet() == ("h100",)
    with as_system():
        running.refresh_from_db()
        first.refresh_from_db()
        said = first.reasons
        assert (running.state, first.state) == ("active", "queued")
        assert said
    requested(plant, lab)
    assert quiet() == ("h100",)
    with as_system():
        first.refresh_from_db()
        assert first.reasons == said, "its reasons are those of the last search"
        booking_release(actor=lab.actor, booking=running, now=plant.now)
    plant.round()
    assert quiet() == ()
    with as_system():
        first.refresh_from_db()
        assert first.state in ("scheduled", "starting", "active")


@pytest.mark.parametrize("plant", [1], indirect=True)
def test_another_policy_searches_all_planned_starts(plant: Plant) -> None:
    lab = a_lab("helix", gpus=0)
    for _ in range(3):
        requested(plant, lab)
    assert quiet() == ("h100",)
    with as_system():
        cycle._searches._policy = 0  # As after a publication.
    requested(plant, lab)
    assert quiet() == ()
