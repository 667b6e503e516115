"""A turn solves nothing while the last plan would stay what it is."""

from datetime import timedelta
from unittest import mock

import pytest

from allocation.models import Booking
from allocation.services.bookings.bookings import booking_request
from allocation.services.decide import cycle
from allocation.services.decide.leading import MOST_SECONDS
from allocation.solver import solve
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
