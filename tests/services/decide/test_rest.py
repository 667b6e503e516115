"""A turn solves nothing while the last plan would stay what it is."""

from dataclasses import replace
from datetime import timedelta
from unittest import mock

import pytest

from allocation.models import Booking, PolicyVersion
from allocation.services.bookings.creation import booking_request
from allocation.services.decide import cycle, leading
from allocation.services.decide.leading import LONGEST_SECONDS, MOST_PART, MOST_SECONDS, Rest
from allocation.services.snapshot.kept import Taken
from solver import Snapshot, solve
from tenants.models import Quota
from tests.builders_allocation import a_booking_request, a_lab, an_ask
from tests.roles import as_system
from tests.services.plant import Plant


class Solves:
    """Asks whether the turn after some seconds solves."""

    def __init__(self, plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
        self._plant, self._solve = plant, mock.Mock(wraps=solve)
        monkeypatch.setattr(cycle, "solve", self._solve)

    def __call__(self, seconds: int) -> bool:
        self._solve.reset_mock()
        self._plant.later(timedelta(seconds=seconds))
        self._plant.cycle()
        return bool(self._solve.called)


@pytest.mark.turn
@pytest.mark.parametrize("plant", [1], indirect=True)
def test_turns_rest_until_time_or_a_change_may_change_the_plan(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = a_lab("helix", gpus=0)
    solves = Solves(plant, monkeypatch)
    with as_system():
        for _ in range(2):
            request = a_booking_request(lab.project, an_ask(hours=1))
            booking_request(actor=lab.actor, request=request, now=plant.now)
    plant.round()
    assert not all(solves(1) for _ in range(9))
    assert [solves(15) for _ in range(3)] == [False, False, False]
    assert solves(MOST_SECONDS - 46), "what moves with each second is bounded"
    assert not solves(1)
    with as_system():
        Quota.objects.update(weight=2)
    assert solves(1), "limits"
    assert not solves(1)
    with as_system():
        Booking.objects.filter(state="active").update(idle_seconds=30)
        assert not solves(1), "what no row of the snapshot has"
        waiting = Booking.objects.get(state="queued")
        Booking.objects.filter(id=waiting.id).update(reasons=[])
    assert solves(1), "what is stored is no longer the answer"
    assert waiting.planned_starts is not None
    frozen = waiting.planned_starts - timedelta(seconds=60)
    assert solves(int((frozen - plant.now).total_seconds()) - 10)
    assert not solves(9)
    assert solves(1), "its start is decided at its second"
    with as_system():
        assert Booking.objects.get(id=waiting.id).state == "scheduled"


@pytest.mark.parametrize(
    ("took", "rests"),
    [(0.01, MOST_SECONDS), (0.5, 0.5 * MOST_PART), (60, LONGEST_SECONDS)],
)
def test_a_plan_that_took_long_is_looked_for_less_often(took: float, rests: float) -> None:
    nothing = dict.fromkeys(("gpus", "models", "held", "requests", "extensions", "limits"), ())
    snapshot = Snapshot(now=1, **nothing)
    taken = Taken(snapshot, mock.Mock(), has_drifted=False, is_changed=False)
    live, rest = PolicyVersion(pk=1, document={}), Rest()

    def lasts(seconds: float) -> bool:
        at = replace(taken, snapshot=replace(snapshot, now=1 + round(seconds)))
        return rest.lasts(at, live)

    with mock.patch.object(leading, "next_instant", lambda _snapshot, _policy, until: until):
        rest.begin(taken, live, took)
    assert lasts(rests - 1)
    assert not lasts(rests)
