"""Headroom in turns of the solver: who waits for a peak, and who starts on what is kept free."""

from datetime import timedelta

import pytest

from allocation.api.bookings.why import why
from allocation.features.demand.models import DemandForecast
from tenants.models import Quota, Tier
from tenants.platform.wall import tenant_tx
from tests.builders import UNITS_PER_GPU, a_tier
from tests.builders_allocation import Lab, a_lab, a_policy, an_ask
from tests.roles import as_system
from tests.services.paused import all_is_well, requested
from tests.services.plant import Plant, fresh

pytestmark = pytest.mark.turn
HOUR = timedelta(hours=1)
AHEAD = 336


@pytest.fixture
def borrower(plant: Plant) -> Lab:
    """It may borrow both GPUs in a tier that can be paused; the coming hours 1 to 4 are a peak, for which
    one is kept free."""
    lab = a_lab("borrower", gpus=0, limit=2)
    a_tier("standard", pausable=True)
    hour = plant.now.replace(minute=0, second=0, microsecond=0)
    asked = [2.0 if 1 <= number < 5 else 0.0 for number in range(AHEAD)]
    with as_system():
        Quota.objects.update(guaranteed_units=0, borrow_limit_units=2 * UNITS_PER_GPU)
        Tier.objects.update(pausable=True)
        for kind, high in {"requested": asked, "wanted": [9.0] * AHEAD}.items():
            DemandForecast.objects.create(
                gpu_class_id="h100", kind=kind, at=hour, low=high, middle=high, high=high, hits={}
            )
    a_policy(headroom={"h100": 1}, headroom_for={"standard": 3600})
    return lab


def test_work_that_can_wait_leaves_one_free_and_a_short_start_at_once_takes_it(
    plant: Plant, borrower: Lab
) -> None:
    hour = plant.now.replace(minute=0, second=0, microsecond=0)
    both = [requested(plant, borrower, an_ask(1, hours=6)) for _ in range(2)]
    plant.round()
    assert sorted(fresh(each).state for each in both) == ["active", "queued"]
    (second,) = [each for each in both if fresh(each).state == "queued"]
    with tenant_tx(borrower.tenant.id):
        checks = why(fresh(second), plant.now)["checks"]
    (said,) = [each for check in checks for each in check["reasons"] if each["rule"] == "R168"]
    assert said["sentence"].startswith("The policy of the site keeps 1 h100 free at expected peaks")
    assert fresh(second).planned_starts == hour + 5 * HOUR
    plant.later_until(hour + 1.5 * HOUR)
    short = requested(plant, borrower, an_ask(1, hours=1))
    plant.round()
    assert (fresh(short).state, fresh(second).state) == ("active", "queued")
    plant.later_until(hour + 5 * HOUR + timedelta(minutes=2))
    assert fresh(second).state == "active"
    assert all_is_well()
