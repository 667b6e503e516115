"""After a cancelled claim nobody is paused for its person on its class, and a page says so."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from allocation.api.bookings.why import why
from allocation.models import Booking, PolicyVersion
from allocation.services.bookings.release import booking_cancel
from allocation.services.policy.policies import policy_of
from tenants.models import Quota, Tier
from tenants.platform.wall import tenant_tx
from tests.builders import UNITS_PER_GPU, a_member, a_tier, an_actor
from tests.builders_allocation import HOUR, Lab, a_lab, an_ask
from tests.roles import as_system
from tests.services.paused import all_is_well, requested
from tests.services.plant import Plant, fresh

pytestmark = pytest.mark.turn

MINUTE = timedelta(minutes=1)


@pytest.fixture
def lender(plant: Plant) -> Lab:
    """Both GPUs are guaranteed to it, and a borrower has them since an hour."""
    lab = a_lab("lender", gpus=0, limit=2)
    a_tier("standard", pausable=True)
    borrower = a_lab("borrower", gpus=0, limit=2)
    with as_system():
        Quota.objects.filter(tenant=borrower.tenant).update(
            guaranteed_units=0, borrow_limit_units=2 * UNITS_PER_GPU
        )
        Tier.objects.update(pausable=True)
    requested(plant, borrower, an_ask(1, hours=6))
    requested(plant, borrower, an_ask(1, hours=6))
    plant.round()
    plant.later(HOUR)
    return lab


def pausing() -> int:
    with as_system():
        return Booking.objects.filter(state="pausing").count()


@pytest.fixture
def ends(plant: Plant, lender: Lab) -> datetime:
    """A claim is cancelled whose victim had notice; until then its person has nobody paused."""
    claim = requested(plant, lender, an_ask(1, hours=1))
    plant.round()
    assert pausing() == 1
    with as_system():
        booking_cancel(actor=lender.actor, booking=fresh(claim), now=plant.now)
        live = PolicyVersion.objects.get(state="live")
    plant.round()
    assert pausing() == 0
    return plant.now + timedelta(seconds=policy_of(live).cool_down)


def reasons(plant: Plant, booking: Booking) -> dict[str, dict[str, Any]]:
    """The reasons of `GET /bookings/{number}/why` whose checks are not passed, by rule."""
    with tenant_tx(booking.tenant_id):
        checks = why(fresh(booking), plant.now)["checks"]
    open_checks = [check for check in checks if not check["passed"]]
    return {each["rule"]: each for check in open_checks for each in check["reasons"]}


def test_its_person_waits_and_reads_until_when(plant: Plant, lender: Lab, ends: datetime) -> None:
    again = requested(plant, lender, an_ask(1, hours=1))
    plant.round()
    assert pausing() == 0
    reason = reasons(plant, again)["R166"]
    assert reason["frees_at"] == ends.isoformat()
    assert "h100: one of them was cancelled after others had notice for it" in reason["sentence"]
    starts = fresh(again).planned_starts
    assert starts is not None
    assert ends <= starts <= ends + 15 * MINUTE
    plant.later_until(ends)
    assert "R166" not in reasons(plant, again)
    assert all_is_well()


def test_nobody_is_called_paused_who_has_no_notice(plant: Plant, lender: Lab, ends: datetime) -> None:
    """Its planned start after the rest has a victim that runs on without notice until shortly before."""
    again = requested(plant, lender, an_ask(1, hours=1))
    plant.round()
    assert pausing() == 0
    said = reasons(plant, again)["R45"]
    assert said["numbers"] == {"pauses": 1, "unnotified": 1}
    assert "1 running booking, which has no notice yet" in said["sentence"]
    plant.later_until(ends)
    plant.round()
    assert pausing() == 1
    assert "unnotified" not in reasons(plant, again).get("R45", {"numbers": {}})["numbers"]


def test_nobody_else_of_the_organisation_waits(plant: Plant, lender: Lab, ends: datetime) -> None:
    other = Lab(lender.tenant, lender.project, an_actor(a_member(lender.project)), lender.budget)
    booking = requested(plant, other, an_ask(1, hours=1))
    plant.round()
    assert pausing() == 1
    assert "R166" not in reasons(plant, booking)
    assert all_is_well()
