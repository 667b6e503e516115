"""A notice is withdrawn when its claim does not start by it any more, whatever has stopped it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from allocation.models import Booking, Gpu, Node
from allocation.rules.states import State
from allocation.services.bookings.change.changes import Patch, booking_patch
from allocation.services.bookings.checks.terms import target_of
from allocation.services.nodes.health import gpus_lost
from allocation.services.operate.drain import node_drain
from allocation.services.operate.maintenance.plan import MaintenanceTerms, maintenance_plan
from allocation.services.operate.stops import StopTerms, stop_begin
from allocation.services.record.costs import booking_cost
from allocation.services.snapshot.snapshot import CLEARING_SECONDS
from billing.rates import Spell
from billing.services import Rung
from tenants.models import (
    DatedGuarantee,
    Membership,
    PersonQuota,
    Quota,
    QuotaWindow,
    Tenant,
    Tier,
)
from tests.builders import UNITS_PER_GPU, a_tier, an_operator
from tests.builders_allocation import HOUR, Lab, a_lab, an_ask
from tests.roles import as_owner, as_system
from tests.services.decide.test_drains import laddered
from tests.services.pause_plans import pause_of
from tests.services.paused import all_is_well, desired, money_of, requested, story
from tests.services.plant import NAME, Plant, fresh, rows_of

pytestmark = pytest.mark.turn

CLEARING = timedelta(seconds=CLEARING_SECONDS)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
Cause = Callable[[Plant, Lab], None]


@pytest.fixture
def lender(plant: Plant) -> Lab:
    """Both GPUs are guaranteed to it."""
    lab = a_lab("lender", gpus=0, limit=2, money="100")
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


def quota_cut(plant: Plant, lender: Lab) -> None:
    with as_system():
        Quota.objects.filter(tenant=lender.tenant).update(guaranteed_units=0, borrow_limit_units=0)


def quota_cut_below_the_claim(plant: Plant, lender: Lab) -> None:
    with as_system():
        Quota.objects.filter(tenant=lender.tenant).update(
            guaranteed_units=UNITS_PER_GPU, borrow_limit_units=0
        )


def stopped_by(what: str) -> Cause:
    def stop(plant: Plant, lender: Lab) -> None:
        scope, _, name = what.partition(":")
        terms = StopTerms(scope, name, "A leak of coolant.", None)
        with as_system():
            stop_begin(operator=an_operator(), terms=terms, now=plant.now)

    return stop


def ladder(action: str) -> Cause:
    def rung(plant: Plant, lender: Lab) -> None:
        laddered(plant, lender, Rung("committed", 1, action))

    return rung


def drained(plant: Plant, lender: Lab) -> None:
    with as_system():
        node = Node.objects.get(name=NAME)
        node_drain(operator=an_operator(), node=node, reason="A fan is loud.", now=plant.now)


def maintained(plant: Plant, lender: Lab) -> None:
    """What runs may go on until long after its end."""
    starts, ends = plant.now + MINUTE, plant.now + 9 * HOUR
    terms = MaintenanceTerms(starts, ends, "New fans.", node=NAME, drain_by=ends)
    with as_system():
        maintenance_plan(operator=an_operator(), terms=terms, now=plant.now)


def owner_left(plant: Plant, lender: Lab) -> None:
    with as_system():
        Membership.objects.filter(user=lender.actor.user_id).delete()


def organisation_closed(plant: Plant, lender: Lab) -> None:
    with as_system():
        Tenant.objects.filter(id=lender.tenant_id).update(is_open=False)


def hours_capped(plant: Plant, lender: Lab) -> None:
    with as_system():
        Quota.objects.filter(tenant=lender.tenant).update(cap_gpu_hours=1)


def person_limited(plant: Plant, lender: Lab) -> None:
    with as_owner():
        PersonQuota.objects.create(
            tenant=lender.tenant, user_id=lender.actor.user_id, gpu_class_id="h100", limit_units=0
        )


def limited_at_times(plant: Plant, lender: Lab) -> None:
    with as_owner():
        QuotaWindow.objects.create(
            tenant=lender.tenant,
            gpu_class_id="h100",
            limit_units=0,
            created=plant.now,
            created_by_id=lender.actor.user_id,
        )


def guaranteed_less_from_a_date(plant: Plant, lender: Lab) -> None:
    """The guarantee is lower from before the start of the claim on."""
    with as_owner():
        DatedGuarantee.objects.create(
            tenant=lender.tenant,
            gpu_class_id="h100",
            guaranteed_units=0,
            starts=plant.now + 5 * MINUTE,
            ends=plant.now + 72 * HOUR,
            created=plant.now,
            created_by_id=lender.actor.user_id,
        )


CAUSES: dict[str, Cause] = {
    "quota": quota_cut,
    "quota below the claim": quota_cut_below_the_claim,
    "stop of the site": stopped_by("site"),
    "stop of the organisation": stopped_by("tenant:lender"),
    "stop of the tier": stopped_by("tier:standard"),
    "stop of the class": stopped_by("class:h100"),
    "ladder": ladder("drain"),
    "ladder that pauses": ladder("pause"),
    "drained node": drained,
    "maintenance": maintained,
    "owner left": owner_left,
    "organisation closed": organisation_closed,
    "GPU-hours": hours_capped,
    "limit of a person": person_limited,
    "limit at times": limited_at_times,
    "guarantee by date": guaranteed_less_from_a_date,
}


def noticed(
    plant: Plant, lender: Lab, borrower: Lab, starts: datetime | None = None
) -> tuple[Booking, Booking]:
    """A borrower of both GPUs that has notice since a minute, and the claim it is for."""
    weak = requested(plant, borrower, an_ask(2, hours=4))
    plant.round()
    plant.later(HOUR)
    claim = requested(plant, lender, an_ask(2, hours=1, starts=starts))
    plant.round()
    assert fresh(weak).state == State.PAUSING
    assert pause_of(weak).cause.beneficiary_id == claim.id
    plant.later(MINUTE)
    return weak, claim


def goes_on(plant: Plant, weak: Booking) -> None:
    """It runs to the end that it had, and pays for all of it once."""
    pause = pause_of(weak)
    assert (pause.withdrawn, pause.emptied_at) == (True, None)
    now = fresh(weak)
    assert (now.state, now.pause_count, now.notified_at) == ("active", 0, None)
    assert (now.planned_ends, now.planned_places) == (pause.ends_before, [])
    assert "pause_withdrawn" in story(weak)[-2:]
    assert {(each.state, each.notice) for each in desired(plant)} == {("run", None)}
    assert all_is_well()
    plant.later_until(pause.deadline + MINUTE)
    assert fresh(weak).state == "active"
    plant.later_until(pause.ends_before)
    plant.later(SECOND)
    over = fresh(weak)
    assert (over.state, over.charged) == ("ended", booking_cost(over, Spell(4 * 3600)))
    assert money_of(over)[0] == 0
    assert all_is_well()


@pytest.mark.parametrize("cause", CAUSES)
def test_a_notice_is_withdrawn_when_its_claim_may_not_start(
    plant: Plant, lender: Lab, borrower: Lab, cause: str
) -> None:
    weak, claim = noticed(plant, lender, borrower)
    CAUSES[cause](plant, lender)
    plant.round()
    # Without any quota it is over, and what nobody may start any more is cancelled.
    assert fresh(claim).state in (State.QUEUED, State.EXPIRED, State.CANCELLED)
    goes_on(plant, weak)


@pytest.mark.parametrize("cause", ["stop of the organisation", "ladder"])
def test_so_it_is_in_the_last_minute_and_for_a_fixed_window(
    plant: Plant, lender: Lab, borrower: Lab, cause: str
) -> None:
    """Its claim has GPUs on the calendar by then, which it gives up."""
    weak, claim = noticed(plant, lender, borrower, starts=plant.now + HOUR + 10 * MINUTE + 20 * SECOND)
    plant.later_until(pause_of(weak).deadline - 40 * SECOND)
    assert fresh(claim).state == State.SCHEDULED
    CAUSES[cause](plant, lender)
    plant.round()
    assert [row for row in rows_of(claim) if row.state == "planned"] == []
    goes_on(plant, weak)


@pytest.mark.parametrize("is_withdrawn", [True, False])
def test_who_borrows_in_a_tier_that_is_never_paused_since_stays_or_resumes(
    plant: Plant, lender: Lab, borrower: Lab, *, is_withdrawn: bool
) -> None:
    weak, claim = noticed(plant, lender, borrower)
    with as_system():
        Tier.objects.update(pausable=False)
    if is_withdrawn:
        quota_cut(plant, lender)
        plant.round()
        goes_on(plant, weak)
        return
    plant.later_until(pause_of(weak).deadline + MINUTE)
    assert (fresh(weak).state, fresh(claim).state) == ("paused", "active")
    plant.later(HOUR)
    plant.later(CLEARING)
    assert (fresh(weak).state, fresh(claim).state) == ("active", "ended")
    assert all_is_well()


def test_of_two_who_leave_for_a_gang_the_one_on_good_hardware_stays(
    plant: Plant, lender: Lab, borrower: Lab
) -> None:
    one, other = (requested(plant, borrower, an_ask(1, hours=4)) for _ in range(2))
    plant.round()
    plant.later(HOUR)
    claim = requested(plant, lender, an_ask(2, hours=1))
    plant.round()
    plant.later(MINUTE)
    assert {fresh(each).state for each in (one, other)} == {"pausing"}
    with as_system():
        gpus_lost(Gpu.objects.filter(id=rows_of(other)[0].gpu_id), plant.now)
    plant.round()
    assert fresh(one).state == "active"
    assert pause_of(one).withdrawn
    assert fresh(claim).state == State.QUEUED
    assert all_is_well()


def test_of_two_who_leave_one_stays_when_the_claim_asks_for_less(
    plant: Plant, lender: Lab, borrower: Lab
) -> None:
    weak = [requested(plant, borrower, an_ask(1, hours=4)) for _ in range(2)]
    plant.round()
    plant.later(HOUR)
    claim = requested(plant, lender, an_ask(2, hours=1))
    plant.round()
    plant.later(MINUTE)
    assert {fresh(each).state for each in weak} == {"pausing"}
    with as_system():
        patch = Patch(ask=replace(target_of(fresh(claim)).ask, count=1))
        booking_patch(actor=lender.actor, booking=fresh(claim), patch=patch, revision=None, now=plant.now)
    plant.round()
    assert sorted(pause_of(each).withdrawn for each in weak) == [False, True]
    plant.later_until(max(pause_of(each).deadline for each in weak) - 30 * SECOND)
    for _ in range(6):
        plant.later(10 * SECOND)
    assert sorted(str(fresh(each).state) for each in weak) == ["active", "paused"]
    assert fresh(claim).state == "active"
    assert all_is_well()


def test_a_notice_stays_when_the_claim_is_only_made_weaker(plant: Plant, lender: Lab, borrower: Lab) -> None:
    """It still starts with the GPUs that were promised to it."""
    weak, claim = noticed(plant, lender, borrower)
    with as_system():
        Quota.objects.filter(tenant=lender.tenant).update(borrow_limit_units=0)
    plant.later_until(pause_of(weak).deadline)
    plant.later(10 * SECOND)
    plant.later(10 * SECOND)
    assert (fresh(weak).state, fresh(claim).state) == ("paused", "active")
