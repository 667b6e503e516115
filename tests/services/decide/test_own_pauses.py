"""Pauses that somebody causes himself: nothing is credited, the grace is charged, and it shows."""

from datetime import timedelta
from decimal import Decimal

import pytest

from allocation.models import EventCounter
from allocation.services.bookings.release import booking_cancel, booking_release
from allocation.services.plans.pauses import relation_of
from allocation.services.snapshot.snapshot import CLEARING_SECONDS
from tenants.models import Membership, Tier
from tests.builders import a_project, a_tier
from tests.builders_allocation import Lab, a_lab, an_ask
from tests.roles import as_system
from tests.services.pause_plans import GRACE, pause_of
from tests.services.paused import all_is_well, money_of, noticed, requested, running
from tests.services.plant import Plant, fresh

pytestmark = pytest.mark.turn

NOTHING = Decimal(0)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def lab(plant: Plant) -> Lab:
    lab = a_lab("helix", gpus=0)
    a_tier("standard", pausable=True)
    return lab


@pytest.fixture
def rival(plant: Plant, lab: Lab) -> Lab:
    return a_lab("rivals", gpus=0)


def test_four_hours_are_not_free_by_a_minute_of_a_stronger_booking_of_ones_own(
    plant: Plant, lab: Lab
) -> None:
    booking = running(plant, lab, an_ask(2, hours=5))
    plant.later(240 * MINUTE)
    strong = noticed(plant, booking, lab, ask=an_ask(2, hours=1))
    assert pause_of(booking).relation == "owner"
    plant.later(GRACE)
    pause = pause_of(booking)
    # Never saved: all of it would have been credited. 250 minutes of two GPUs at 4.80.
    assert (pause.lost_seconds, pause.credit_seconds, pause.credit) == (240 * 60, 0, NOTHING)
    assert pause.charged == Decimal("40.00")
    # The time of the grace was had, and is not given back.
    assert pause.remaining_seconds == 50 * 60
    with as_system():
        booking_release(actor=lab.actor, booking=fresh(strong), now=plant.now)
        booking_cancel(actor=lab.actor, booking=fresh(booking), now=plant.now)
        assert EventCounter.objects.get(name="own_pauses").count == 1
    assert fresh(booking).charged == Decimal("40.00")
    assert all_is_well()


def test_who_gives_it_back_in_the_grace_of_an_own_pause_pays_until_then(plant: Plant, lab: Lab) -> None:
    booking = running(plant, lab)
    plant.later(30 * MINUTE)
    noticed(plant, booking, lab)
    plant.now += 5 * MINUTE
    with as_system():
        booking_release(actor=lab.actor, booking=booking, now=plant.now)
    plant.later(MINUTE)
    assert fresh(booking).charged == Decimal("5.60")
    assert all_is_well()


def test_whoever_acts_for_both_organisations_pauses_his_own(plant: Plant, lab: Lab, rival: Lab) -> None:
    mine, theirs = requested(plant, lab), requested(plant, rival)
    with as_system():
        assert relation_of(mine, theirs) == ""
        theirs.owner_id = mine.owner_id
        assert relation_of(mine, theirs) == "owner"
    other = Lab(lab.tenant, a_project(lab.tenant), lab.actor, lab.budget)
    theirs = fresh(theirs)
    with as_system():
        theirs.tenant_id, theirs.project_id = lab.tenant.id, other.project.id
        assert relation_of(mine, theirs) == "tenant"
        theirs.project_id = mine.project_id
        assert relation_of(mine, theirs) == "project"
        theirs = fresh(theirs)
        Membership.objects.create(
            tenant=lab.tenant, project=lab.project, user_id=theirs.owner_id, role="viewer"
        )
        assert relation_of(mine, theirs) == relation_of(theirs, mine) == "member"


def test_credited_work_that_is_not_done_again_is_paid_for(plant: Plant, lab: Lab, rival: Lab) -> None:
    booking = running(plant, lab)
    plant.later(30 * MINUTE)
    noticed(plant, booking, rival, ask=an_ask(2, hours=1))
    plant.later(GRACE)
    pause = pause_of(booking)
    assert (pause.relation, pause.credit, pause.charged) == ("", Decimal("4.80"), NOTHING)
    with as_system():
        booking_cancel(actor=lab.actor, booking=fresh(booking), now=plant.now)
    assert fresh(booking).charged == Decimal("4.80")
    assert money_of(booking) == (NOTHING, Decimal("4.80"))
    assert all_is_well()


@pytest.mark.long
def test_the_tier_caps_what_all_pauses_credit_together(plant: Plant, lab: Lab, rival: Lab) -> None:
    booking = running(plant, lab, an_ask(2, hours=8))
    with as_system():
        Tier.objects.update(credit_cap_seconds=2400)
    for credited in (1800, 600):
        plant.later(30 * MINUTE)
        noticed(plant, booking, rival, ask=an_ask(2, hours=1))
        plant.later(GRACE)
        assert pause_of(booking).credit_seconds == credited
        plant.later(60 * MINUTE)
        plant.later(timedelta(seconds=CLEARING_SECONDS))
        assert fresh(booking).state == "active"
    assert all_is_well()
