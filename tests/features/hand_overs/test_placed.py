"""Hand-overs of bookings that have their GPUs, in transactions of their own."""

from datetime import timedelta

import pytest
from django.db import DatabaseError

from allocation.features.hand_overs.models import HandOver
from allocation.features.hand_overs.services import hand_over_accept
from allocation.models import Booking
from allocation.rules.states import State
from allocation.services.decide.cycle import cycle_run
from allocation.services.decide.invariants import invariants_check
from tenants.access import Actor
from tenants.models import PersonQuota, QuotaWindow
from tenants.platform.wall import tenant_tx
from tests.builders import UNITS_PER_GPU, a_member, a_user, an_actor
from tests.builders_allocation import HOUR, NOW, Lab, a_lab
from tests.features.hand_overs.test_hand_overs import answered, booked, offered, refused, stored
from tests.roles import as_owner, as_system
from tests.servers.servers import Servers


@pytest.fixture
def lab(real_db: Servers) -> Lab:
    return a_lab("helix", gpus=4)


@pytest.fixture
def nina(lab: Lab) -> Actor:
    return an_actor(a_member(lab.project, user=a_user("nina")))


def person_limit(lab: Lab, gpus: int, actor: Actor) -> None:
    with as_owner():
        PersonQuota.objects.create(
            tenant_id=lab.tenant_id,
            gpu_class_id="h100",
            user_id=actor.user_id,
            limit_units=gpus * UNITS_PER_GPU,
        )


def test_a_colleague_accepts_and_owns_the_booking_with_its_place(lab: Lab, nina: Actor) -> None:
    booking = booked(lab, starts=NOW + 3 * HOUR)
    with as_system():
        cycle_run(NOW)
    before = stored(booking)
    assert before.state == State.SCHEDULED
    row = offered(lab.actor, booking)
    assert row.until == NOW + 3 * HOUR, "a fixed start ends the offer"
    answered(hand_over_accept, nina, booking)
    after = stored(booking)
    assert after.owner_id == nina.user_id
    kept = ("project_id", "state", "hold_amount", "planned_starts", "price_per_hour", "number", "revision")
    assert all(getattr(after, name) == getattr(before, name) for name in kept)
    assert after.version > before.version
    with as_system():
        cycle_run(NOW + HOUR)
        assert invariants_check() == []
    assert stored(booking).state == State.SCHEDULED
    assert refused(lambda: answered(hand_over_accept, nina, booking)) == "hand_over_none"
    # It is nina's alone: its former owner can't offer it any more.
    assert refused(lambda: offered(lab.actor, booking)) == "not_allowed"


def test_a_placed_booking_counts_in_the_limit_of_its_new_owner(lab: Lab, nina: Actor) -> None:
    person_limit(lab, 1, nina)
    start = NOW + 4 * HOUR
    booking, hers = booked(lab, starts=start), booked(lab, nina, starts=start + 2 * HOUR)
    with as_system():
        cycle_run(NOW)
    assert stored(booking).state == State.SCHEDULED
    offered(lab.actor, booking)
    answered(hand_over_accept, nina, booking)
    assert stored(booking).owner_id == nina.user_id, "her other booking is later"
    assert stored(hers).owner_id == nina.user_id


def test_a_limit_of_a_person_refuses_it_at_its_time(lab: Lab, nina: Actor) -> None:
    person_limit(lab, 1, nina)
    start = NOW + 4 * HOUR
    booking = booked(lab, starts=start)
    booked(lab, nina, starts=start + HOUR)
    with as_system():
        cycle_run(NOW)
    assert stored(booking).state == State.SCHEDULED
    offered(lab.actor, booking)
    assert refused(lambda: answered(hand_over_accept, nina, booking)) == "person_quota"
    larger = booked(lab, count=2)
    offered(lab.actor, larger)
    assert refused(lambda: answered(hand_over_accept, nina, larger)) == "person_quota"
    assert stored(booking).owner_id == stored(larger).owner_id == lab.actor.user_id


def test_a_limit_at_some_times_refuses_it_at_those_times(lab: Lab, nina: Actor) -> None:
    with as_owner():
        QuotaWindow.objects.create(
            tenant_id=lab.tenant_id,
            project=lab.project,
            user_id=nina.user_id,
            gpu_class_id="h100",
            limit_units=0,
            first_day=NOW.date() + timedelta(days=1),
            last_day=NOW.date() + timedelta(days=1),
            created=NOW,
            created_by_id=lab.actor.user_id,
        )
    today, tomorrow = booked(lab, starts=NOW + 3 * HOUR), booked(lab, starts=NOW + 24 * HOUR)
    with as_system():
        cycle_run(NOW)
    for each in (today, tomorrow):
        assert stored(each).state == State.SCHEDULED
        offered(lab.actor, each)
    answered(hand_over_accept, nina, today)
    assert refused(lambda: answered(hand_over_accept, nina, tomorrow)) == "person_quota"
    assert stored(today).owner_id == nina.user_id
    assert stored(tomorrow).owner_id == lab.actor.user_id


def test_an_acceptance_of_another_transaction_changes_nothing(lab: Lab, nina: Actor) -> None:
    booking = booked(lab)
    row = offered(lab.actor, booking)
    with as_system():
        HandOver.objects.filter(id=row.id).update(state="accepted", answered=NOW, answered_by=nina.user_id)
    with pytest.raises(DatabaseError, match="keeps its owner and project"), tenant_tx(lab.tenant_id):
        Booking.objects.filter(id=booking.id).update(owner=nina.user_id)
    assert stored(booking).owner_id == lab.actor.user_id
