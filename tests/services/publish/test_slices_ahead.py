"""A slice that is expected is made by the node ahead of its booking, which gets it at once."""

from datetime import UTC, timedelta

import pytest

from allocation.features.demand.models import DemandForecast, SliceAhead
from allocation.features.demand.slicing import slicing_turn
from allocation.models import Gpu
from allocation.rules.ask import AskDocument
from allocation.rules.states import State
from tests.builders_allocation import Lab, a_booking, a_lab, a_policy, an_ask
from tests.roles import as_system
from tests.services.paused import requested, running
from tests.services.plant import Plant, fresh, rows_of

pytestmark = pytest.mark.turn
MINUTE = timedelta(minutes=1)
AHEAD = 336
SLICE = AskDocument.from_json(an_ask(1, hours=1).to_json() | {"profile": "2g.20gb"})


@pytest.fixture
def lab(plant: Plant) -> Lab:
    """Five people have asked for a slice at this hour of past days, and the policy slices one GPU ahead."""
    lab = a_lab("helix", gpus=0)
    for day in range(1, 6):
        at = plant.now - timedelta(days=day)
        a_booking(lab.project, lab.actor.user_id, state=State.ENDED, ask=SLICE, starts=at, now=at, held="0")
    hour = plant.now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    with as_system():
        DemandForecast.objects.create(
            gpu_class_id="h100",
            kind="requested",
            at=hour,
            low=[0.0] * AHEAD,
            middle=[0.0] * AHEAD,
            high=[1.0] * AHEAD,
            hits={},
        )
    a_policy(slice_ahead={"h100": 1})
    return lab


def turned(plant: Plant) -> None:
    """The task runs, and then the portal and its node until both are idle."""
    with as_system():
        slicing_turn(plant.now)
    plant.round()
    plant.later(timedelta(seconds=20))


def instances(plant: Plant) -> list[tuple[int, int]]:
    """The GPU and first slot of each slice on the hardware."""
    return sorted(
        (number, each.start)
        for number, gpu in enumerate(plant.hardware.gpus)
        for each in gpu.instances.values()
    )


def test_the_node_makes_it_and_a_booking_starts_on_it(plant: Plant, lab: Lab) -> None:
    turned(plant)
    with as_system():
        (row,) = SliceAhead.objects.select_related("gpu")
    assert instances(plant) == [(row.gpu.index, row.start)]
    plant.later(2 * MINUTE)
    booking = requested(plant, lab, SLICE)
    plant.round()
    assert fresh(booking).state == "active"
    (place,) = rows_of(booking)
    assert (place.gpu_id, place.start, place.profile) == (row.gpu_id, row.start, "2g.20gb")
    turned(plant)
    with as_system():
        hit = SliceAhead.objects.get(id=row.id)
    assert hit.taken
    assert hit.ready_seconds is not None


def test_a_whole_booking_gets_the_gpu_all_the_same(plant: Plant, lab: Lab) -> None:
    turned(plant)
    assert len(instances(plant)) == 1
    whole = running(plant, lab, an_ask(2))
    assert fresh(whole).state == "active"
    assert instances(plant) == []
    turned(plant)
    with as_system():
        row = SliceAhead.objects.get()
    assert (row.taken, row.closed is not None) == (False, True)


def test_what_is_no_longer_expected_is_removed_and_the_gpu_is_whole_again(plant: Plant, lab: Lab) -> None:
    turned(plant)
    a_policy(slice_ahead={"h100": 0})
    turned(plant)
    assert instances(plant) == []
    with as_system():
        assert {gpu.mode for gpu in Gpu.objects.all()} == {"whole"}
        assert not SliceAhead.objects.filter(closed=None).exists()
