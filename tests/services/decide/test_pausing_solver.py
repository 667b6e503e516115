"""End to end: the solver pauses, the portal notifies, the agent clears, the solver resumes."""

from datetime import timedelta

import pytest

from allocation.models import Booking, BookingEvent, Pause
from allocation.rules.ask import AskDocument
from allocation.services.bookings.creation import booking_request
from allocation.services.decide.invariants import invariants_check
from allocation.services.snapshot.snapshot import CLEARING_SECONDS
from tenants.models import Quota, Tier
from tests.builders import UNITS_PER_GPU, a_tier
from tests.builders_allocation import HOUR, NOW, Lab, a_booking_request, a_lab, an_ask
from tests.roles import as_system
from tests.services.plant import Plant, fresh

pytestmark = pytest.mark.turn

MINUTE = timedelta(minutes=1)
GRACE = timedelta(minutes=10)
CLEARING = timedelta(seconds=CLEARING_SECONDS)


def requested(plant: Plant, lab: Lab, ask: AskDocument) -> Booking:
    with as_system():
        return booking_request(actor=lab.actor, request=a_booking_request(lab.project, ask), now=plant.now)


def all_is_well() -> bool:
    with as_system():
        assert invariants_check() == []
    return True


@pytest.fixture
def lender(plant: Plant) -> Lab:
    """Both GPUs are guaranteed to it."""
    lab = a_lab("lender", gpus=0, limit=2)
    a_tier("standard", pausable=True)
    return lab


@pytest.fixture
def borrower(plant: Plant, lender: Lab) -> Lab:
    """Nothing is guaranteed to it; it may borrow two GPUs."""
    lab = a_lab("borrower", gpus=0, limit=2)
    with as_system():
        Quota.objects.filter(tenant=lab.tenant).update(
            guaranteed_units=0, borrow_limit_units=2 * UNITS_PER_GPU
        )
        Tier.objects.update(pausable=True)
    return lab


def test_a_guarantee_is_taken_back_with_notice_and_the_borrower_goes_on_afterwards(
    plant: Plant, lender: Lab, borrower: Lab
) -> None:
    weak = requested(plant, borrower, an_ask(2, hours=4))
    plant.round()
    assert fresh(weak).state == "active"
    plant.later(HOUR)
    strong = requested(plant, lender, an_ask(2, hours=1))
    plant.round()
    assert all_is_well()
    weak = fresh(weak)
    with as_system():
        pause = Pause.objects.get()
    assert (weak.state, pause.rule, pause.beneficiary_label) == ("pausing", "R46", "")
    assert pause.deadline == NOW + HOUR + GRACE
    assert fresh(strong).planned_starts == pause.deadline
    assert weak.planned_starts is not None
    assert weak.planned_starts >= pause.deadline + HOUR

    for _ in range(40):
        # A device that was given back is expected to be cleared within seconds.
        plant.later(CLEARING)
        plant.later(10 * MINUTE - CLEARING)
        assert all_is_well()
        if fresh(weak).state == "ended":
            break
    assert (fresh(weak).state, fresh(strong).state) == ("ended", "ended")
    with as_system():
        (pause,) = Pause.objects.all()
        kinds = BookingEvent.objects.filter(booking=weak).values_list("kind", flat=True)
        assert {"pause_noticed", "paused", "resumed", "ended"} <= set(kinds)
    assert pause.resumed_at is not None
    # Nobody saved: the hour before the pause was run again and not charged twice. The ten minutes
    # of grace were its own and cost nothing.
    assert fresh(weak).charged == fresh(weak).price_per_hour * (4 * 60 - 10) / 60


def test_a_gang_pauses_whole_for_one_gpu_and_the_borrower_that_fits_beside_does_not(
    plant: Plant, lender: Lab, borrower: Lab
) -> None:
    one = requested(plant, borrower, an_ask(1, hours=4))
    two = requested(plant, borrower, an_ask(1, hours=4))
    plant.round()
    plant.later(MINUTE)
    requested(plant, lender, an_ask(1, hours=1))
    plant.round()
    states = sorted(fresh(each).state for each in (one, two))
    assert states == ["active", "pausing"]
    assert all_is_well()
