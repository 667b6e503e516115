"""Offers of the waiting list: real places with a deadline, accepted once and in time."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from django.db import IntegrityError

from allocation.features.waiting_list.models import WaitEntry, WaitOffer
from allocation.features.waiting_list.offers import offer_accept, offer_decline
from allocation.models import Allocation, Booking
from allocation.rules.states import State
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_cancel
from allocation.services.decide.cycle import is_anything_due
from allocation.services.decide.replay import decision_replay
from tenants.access import Actor
from tenants.models import AuditEntry
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.builders import a_member, an_actor
from tests.builders_allocation import HOUR, NOW, Lab, a_booking_request, a_lab, an_ask
from tests.features.waiting_list.test_wait_list import (
    SECOND,
    TUESDAY,
    all_is_well,
    booked,
    cancelled,
    cycled,
    held,
    kinds,
    now_of,
    open_entries,
    states,
)
from tests.roles import as_system
from tests.servers.servers import Servers

pytestmark = pytest.mark.turn

HALF = timedelta(minutes=30)


@pytest.fixture
def lab(real_db: Servers) -> Lab:
    """Two GPUs."""
    return a_lab("helix", gpus=2)


def waits(lab: Lab, actor: Actor, number: int, *, gpus: int = 1) -> Booking:
    """Waits for an offer of Tuesday 10-12."""
    with tenant_tx(lab.tenant_id):
        request = a_booking_request(lab.project, an_ask(gpus, starts=TUESDAY))
        request = replace(request, waitlist="offer")
        return booking_request(actor=actor, request=request, now=NOW + number * SECOND)


def offer_of(booking: Booking) -> WaitOffer:
    with as_system():
        return WaitOffer.objects.get(booking=booking, state="open")


def answered(act: Callable[..., WaitOffer], actor: Actor, offer: WaitOffer, now: datetime) -> WaitOffer:
    with tenant_tx(actor.tenant_id):
        return act(actor=actor, offer_id=offer.id, now=now)


def refused(act: Callable[..., WaitOffer], actor: Actor, offer: WaitOffer, now: datetime) -> str:
    with pytest.raises(Refused) as found:
        answered(act, actor, offer, now)
    return found.value.code


def test_13_one_after_the_other_until_somebody_accepts_in_time(lab: Lab) -> None:
    """w1 is booked, w2 is offered the other GPU and stays silent, w3 accepts at the last second."""
    with tenant_tx(lab.tenant_id):
        request = a_booking_request(lab.project, an_ask(2, starts=TUESDAY))
        full = booking_request(actor=lab.actor, request=request, now=NOW)
    cycled(NOW)
    second, third = (an_actor(a_member(lab.project)) for _ in range(2))
    w1 = booked(lab, now=NOW + SECOND)
    w2, w3 = waits(lab, second, 2), waits(lab, third, 3)
    cycled(NOW + 3 * SECOND)
    assert states(full, w1, w2, w3) == ["scheduled", *["waitlisted"] * 3]
    assert held(lab) == Decimal("28.80"), "nothing is held for an offer"

    ten = NOW + 4 * SECOND
    cancelled(lab, full, ten)
    cycled(ten)
    assert states(w1, w2, w3) == ["scheduled", "offered", "waitlisted"]
    offer = offer_of(w2)
    assert (offer.starts, offer.until) == (TUESDAY, ten + HALF)
    with as_system():
        assert Allocation.objects.filter(booking=w2, state="planned").count() == 1
        assert not is_anything_due(ten + HALF - SECOND)
        assert is_anything_due(ten + HALF)
        assert decision_replay(offer.decision).is_equal
    all_is_well()
    _silent_then_accepted((second, w2, offer), (third, w3), ten)
    assert open_entries() == 1


def _silent_then_accepted(
    silent: tuple[Actor, Booking, WaitOffer], quick: tuple[Actor, Booking], ten: datetime
) -> None:
    (second, w2, offer), (third, w3) = silent, quick
    cycled(ten + HALF)
    assert states(w2, w3) == ["waitlisted", "offered"]
    assert refused(offer_accept, second, offer, ten + HALF) == "offer_over"
    next_offer = offer_of(w3)
    assert next_offer.until == ten + 2 * HALF
    answered(offer_accept, third, next_offer, ten + 2 * HALF - SECOND)
    got = now_of(w3)
    assert (got.state, got.planned_starts, got.hold_amount) == (
        State.SCHEDULED,
        TUESDAY,
        Decimal("9.60"),
    )
    assert kinds(w3) == ["requested", "waitlisted", "offered", "scheduled"]
    assert kinds(w2) == ["requested", "waitlisted", "offered", "offer_expired"]
    all_is_well()


def test_who_may_not_or_can_not_accept_changes_nothing(lab: Lab) -> None:
    booking = waits(lab, lab.actor, 0)
    cycled(NOW)
    offer = offer_of(booking)
    outsider, colleague = a_lab("other").actor, an_actor(a_member(lab.project))
    assert refused(offer_accept, outsider, offer, NOW + SECOND) == "not_found"
    assert refused(offer_accept, colleague, offer, NOW + SECOND) == "not_allowed"
    assert refused(offer_accept, lab.actor, offer, offer.until) == "offer_expired"
    assert refused(offer_decline, lab.actor, offer, offer.until) == "offer_expired"
    # Past the services the database refuses, too.
    with as_system(), pytest.raises(IntegrityError, match="nobody has accepted"):
        Booking.objects.filter(id=booking.id).update(state="scheduled")
    late = {"decided_at": offer.until, "decided_by": lab.actor.user_id}
    with as_system(), pytest.raises(IntegrityError, match="wait_offer_decided_in_time"):
        WaitOffer.objects.filter(id=offer.id).update(state="accepted", **late)
    assert states(booking) == ["offered"]

    answered(offer_accept, lab.actor, offer, NOW + SECOND)
    assert refused(offer_accept, lab.actor, offer, NOW + 2 * SECOND) == "offer_over"
    assert held(lab) == Decimal("9.60")
    with as_system():
        assert AuditEntry.objects.filter(action="offer.accept").count() == 1
    all_is_well()


def test_an_offer_is_withdrawn_for_a_claim_inside_its_guarantee_and_the_rank_stays(
    lab: Lab,
) -> None:
    second = an_actor(a_member(lab.project))
    w1 = waits(lab, second, 1)
    cycled(NOW + SECOND)
    offer = offer_of(w1)
    ranked = now_of(w1).submitted
    with tenant_tx(lab.tenant_id):
        request = a_booking_request(lab.project, an_ask(2, starts=TUESDAY))
        claim = booking_request(actor=lab.actor, request=request, now=NOW + 2 * SECOND)
    cycled(NOW + 2 * SECOND)
    assert states(w1) == ["waitlisted"]
    assert kinds(w1)[-1] == "offer_withdrawn"
    assert refused(offer_accept, second, offer, NOW + 3 * SECOND) == "offer_over"
    got = now_of(w1)
    assert (got.submitted, got.ranked_at) == (ranked, None)
    all_is_well()
    cycled(NOW + 3 * SECOND)
    assert states(claim, w1) == ["scheduled", "waitlisted"]


def test_without_money_the_offer_stands_and_nothing_is_held(real_db: Servers) -> None:
    lab = a_lab("helix", money="10")
    booking = waits(lab, lab.actor, 0)
    cycled(NOW)
    with tenant_tx(lab.tenant_id):
        request = a_booking_request(lab.project, an_ask(starts=TUESDAY + 4 * HOUR, hours=1))
        other = booking_request(actor=lab.actor, request=request, now=NOW)
    offer = offer_of(booking)
    assert refused(offer_accept, lab.actor, offer, NOW + SECOND) == "budget_exceeded"
    assert (states(booking), held(lab)) == (["offered"], Decimal("4.80"))
    cancelled(lab, other, NOW + SECOND)
    answered(offer_accept, lab.actor, offer, NOW + 2 * SECOND)
    assert (states(booking), held(lab)) == (["scheduled"], Decimal("9.60"))
    all_is_well()


@pytest.mark.long
def test_declined_or_cancelled_its_place_is_free_and_it_is_not_offered_again(lab: Lab) -> None:
    first, second = waits(lab, lab.actor, 0, gpus=2), None
    colleague = an_actor(a_member(lab.project))
    second = waits(lab, colleague, 1, gpus=2)
    cycled(NOW + SECOND)
    assert states(first, second) == ["offered", "waitlisted"]
    answered(offer_decline, lab.actor, offer_of(first), NOW + 2 * SECOND)
    # It waited for this window only.
    assert (now_of(first).state, now_of(first).outcome) == (State.CANCELLED, "declined")
    cycled(NOW + 2 * SECOND)
    assert states(second) == ["offered"]
    with tenant_tx(lab.tenant_id):
        booking_cancel(actor=colleague, booking=second, now=NOW + 3 * SECOND)
    with as_system():
        assert not Allocation.objects.filter(state="planned").exists()
        assert set(WaitOffer.objects.values_list("state", flat=True)) == {"declined", "withdrawn"}
    assert open_entries() == 0
    all_is_well()


@pytest.mark.long
def test_two_offers_without_an_answer_end_them(lab: Lab) -> None:
    booking = waits(lab, lab.actor, 0)
    cycled(NOW)
    for number in (1, 2):
        offer = offer_of(booking)
        cycled(offer.until)
        with as_system():
            assert WaitEntry.objects.get(booking=booking).expired_count == number
    assert states(booking) == ["waitlisted"]
    assert held(lab) == 0
    all_is_well()
