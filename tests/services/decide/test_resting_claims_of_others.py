"""After a cancelled claim, random others on random small sites: nobody is paused for its person on its class,
and for nobody else less than before."""

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from random import Random
from uuid import uuid4

import pytest

from allocation.features.arrays.services import array_cancel, array_request
from allocation.models import Booking, BookingArray, PolicyVersion
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_cancel
from allocation.services.bookings.requests import ArrayRequest
from allocation.services.policy.policies import policy_of
from tenants.models import Quota, Tier, User
from tests.builders import UNITS_PER_GPU, a_gpu_class, a_member, a_project, a_quota, a_tier, an_actor
from tests.builders_allocation import Lab, a_booking_request, a_budget, a_lab, all_priced, an_ask
from tests.prices import price_book_publish
from tests.roles import as_system
from tests.services.decide.test_resting_claims import pausing, reasons
from tests.services.paused import all_is_well, requested
from tests.services.plant import Plant, fresh

pytestmark = pytest.mark.turn

MINUTE = timedelta(minutes=1)


def leaving() -> int:
    """Bookings with notice, and those that are paused since."""
    with as_system():
        return Booking.objects.filter(state__in=("pausing", "paused")).count()


class Site:
    """All GPUs of a plant are lent to a borrower; a lender claims one back and cancels that."""

    def __init__(self, plant: Plant, seed: int) -> None:
        self.plant, self.gpus = plant, 4
        self.draw = Random(seed)  # noqa: S311 (not a secret)
        self.lender = a_lab("lender", gpus=0, limit=self.gpus)
        for slug, priority in (("standard", 200), ("high", 300)):
            a_tier(slug, priority=priority, pausable=True)
        borrower = a_lab("borrower", gpus=0, limit=self.gpus)
        with as_system():
            Quota.objects.filter(tenant=borrower.tenant).update(
                guaranteed_units=0, borrow_limit_units=self.gpus * UNITS_PER_GPU
            )
            Tier.objects.update(pausable=True)
        all_priced()
        for _ in range(self.gpus):
            requested(plant, borrower, an_ask(1, hours=self.draw.randrange(5, 9)))
        plant.round()
        plant.later(self.draw.randrange(30, 120) * MINUTE)

    def claim(self, lab: Lab, *, tier: str = "standard") -> Booking:
        """A claim with a notice for it."""
        before = pausing()
        claim = self.asked(lab, tier=tier)
        self.plant.round()
        assert pausing() == before + 1
        return claim

    def asked(self, lab: Lab, *, tier: str = "standard") -> Booking:
        ask = an_ask(1, hours=self.draw.randrange(1, 4))
        request = a_booking_request(lab.project, ask, tier=tier)
        with as_system():
            return booking_request(actor=lab.actor, request=request, now=self.plant.now)

    def cancel(self, booking: Booking, by: Lab | None = None) -> datetime:
        """Until when nobody is paused for its person."""
        with as_system():
            booking_cancel(actor=(by or self.lender).actor, booking=fresh(booking), now=self.plant.now)
            live = PolicyVersion.objects.get(state="live")
        self.plant.round()
        return self.plant.now + timedelta(seconds=policy_of(live).cool_down)

    def colleague(self) -> Lab:
        person = an_actor(a_member(self.lender.project))
        return replace(self.lender, actor=person)

    def other_project(self, *, same_person: bool) -> Lab:
        project = a_project(self.lender.tenant)
        user = self._user() if same_person else None
        member = a_member(project, user=user) if user else a_member(project)
        return Lab(self.lender.tenant, project, an_actor(member), a_budget(project, now=self.plant.now))

    def _user(self) -> User:
        with as_system():
            return User.objects.get(id=self.lender.actor.user_id)

    def assert_free(self, lab: Lab, *, tier: str = "standard") -> None:
        """A claim has somebody paused now, and its page knows of no rest."""
        booking = self.claim(lab, tier=tier)
        assert "R166" not in reasons(self.plant, booking)
        assert all_is_well()

    def assert_rests(self, lab: Lab, until: datetime, *, tier: str = "standard") -> None:
        """Nobody gets notice for a claim until then, its page says so, and then somebody does."""
        before, booking = leaving(), self.asked(lab, tier=tier)
        self.plant.round()
        assert leaving() == before
        assert reasons(self.plant, booking)["R166"]["frees_at"] == until.isoformat()
        self.plant.later_until(until)
        self.plant.round()
        assert "R166" not in reasons(self.plant, booking)
        assert leaving() == before + 1
        assert all_is_well()


SEEDS = (1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 7)))
plants = pytest.mark.parametrize("plant", [4], indirect=True)


@pytest.fixture(params=SEEDS)
def site(plant: Plant, request: pytest.FixtureRequest) -> Site:
    return Site(plant, request.param)


@plants
def test_the_same_person_rests_in_another_project_too_and_others_there_do_not(site: Site) -> None:
    other, mine = site.other_project(same_person=False), site.other_project(same_person=True)
    until = site.cancel(site.claim(site.lender))
    site.assert_free(other)
    site.assert_rests(mine, until)


@plants
def test_the_same_person_rests_in_another_tier_too(site: Site) -> None:
    until = site.cancel(site.claim(site.lender))
    site.assert_rests(site.lender, until, tier="high")


@plants
def test_another_person_of_the_project_in_any_tier_does_not(site: Site) -> None:
    site.cancel(site.claim(site.lender))
    site.assert_free(site.colleague(), tier=site.draw.choice(("standard", "high")))
    site.assert_free(site.colleague(), tier=site.draw.choice(("standard", "high")))


@plants
def test_of_two_claims_the_one_that_is_left_starts_as_it_was_promised(site: Site) -> None:
    first, second = site.claim(site.lender), site.claim(site.lender)
    promised = fresh(second).planned_starts
    assert promised is not None
    site.cancel(first)
    assert pausing() == 1
    assert fresh(second).planned_starts == promised
    site.plant.later_until(promised)
    site.plant.round()
    assert fresh(second).state == "active"


@plants
def test_two_cancelled_claims_rest_until_the_later_end_only(site: Site) -> None:
    first, second = site.claim(site.lender), site.claim(site.lender)
    site.cancel(first)
    site.plant.later(MINUTE / 2)
    until = site.cancel(second)
    assert pausing() == 0
    site.assert_rests(site.lender, until)


@plants
def test_a_claim_that_a_lead_cancels_rests_its_own_person_and_not_the_lead(site: Site) -> None:
    lead = site.colleague()
    until = site.cancel(site.claim(site.lender), by=lead)
    site.assert_free(lead)
    site.assert_rests(site.lender, until)


@plants
def test_an_array_that_is_cancelled_rests_its_person_and_nobody_else(site: Site) -> None:
    key = uuid4()
    with as_system():
        request = a_booking_request(site.lender.project, an_ask(1, hours=1))
        array_request(
            actor=site.lender.actor, request=request, array=ArrayRequest(3), now=site.plant.now, key=key
        )
    site.plant.round()
    assert pausing() > 0
    with as_system():
        array = BookingArray.objects.get(id=key)
        array_cancel(actor=site.lender.actor, array=array, ranges=None, now=site.plant.now)
        live = PolicyVersion.objects.get(state="live")
    until = site.plant.now + timedelta(seconds=policy_of(live).cool_down)
    site.plant.round()
    assert pausing() == 0
    site.assert_free(site.colleague())
    site.assert_rests(site.lender, until)


@plants
def test_a_claim_without_a_notice_rests_nobody(site: Site) -> None:
    booking = site.asked(site.lender)
    with as_system():
        booking_cancel(actor=site.lender.actor, booking=fresh(booking), now=site.plant.now)
    site.plant.round()
    site.assert_free(site.lender)


@plants
def test_a_claim_that_loses_its_quota_rests_nobody(site: Site) -> None:
    site.claim(site.lender)
    quota = Quota.objects.filter(tenant=site.lender.tenant)
    with as_system():
        quota.update(guaranteed_units=0)
    site.plant.round()
    with as_system():
        quota.update(guaranteed_units=site.gpus * UNITS_PER_GPU)
        assert not Booking.objects.exclude(cooling_until=None).exists()
    site.plant.round()
    site.assert_free(site.colleague())


def test_the_same_person_does_not_rest_on_another_class(mixed_plant: Plant) -> None:
    plant, classes = mixed_plant, ("h100", "l40s")
    with as_system():
        price_book_publish(
            actor_id=None,
            valid_from=plant.now,
            prices={(name, "standard"): Decimal(2) for name in classes},
            now=plant.now,
        )
    lender, borrower = a_lab("lender", gpus=0, limit=3), a_lab("borrower", gpus=0, limit=3)
    a_tier("standard", pausable=True)
    with as_system():
        for lab in (lender, borrower):
            a_quota(lab.tenant, a_gpu_class("l40s"), guaranteed=3, limit=3)
        Quota.objects.filter(tenant=borrower.tenant).update(
            guaranteed_units=0, borrow_limit_units=3 * UNITS_PER_GPU
        )
        Tier.objects.update(pausable=True)
    for name, count in zip(classes, (2, 3), strict=True):
        for _ in range(count):
            requested(plant, borrower, an_ask(1, hours=6, classes=(name,)))
    plant.round()
    plant.later(60 * MINUTE)
    claim = requested(plant, lender, an_ask(1, hours=1))
    plant.round()
    assert pausing() == 1
    with as_system():
        booking_cancel(actor=lender.actor, booking=fresh(claim), now=plant.now)
    plant.round()
    same, other = [requested(plant, lender, an_ask(1, hours=1, classes=(name,))) for name in classes]
    plant.round()
    assert pausing() == 1
    assert "R166" in reasons(plant, same)
    assert "R166" not in reasons(plant, other)
    assert all_is_well()
