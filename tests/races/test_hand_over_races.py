"""An offer of a booking has one end, whatever people and the solver do at the same moment."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from allocation.features.hand_overs.models import HandOver
from allocation.features.hand_overs.services import (
    hand_over_accept,
    hand_over_decline,
    hand_over_withdraw,
)
from allocation.models import Booking
from allocation.rules.states import State
from allocation.services.bookings.release import booking_cancel
from allocation.services.decide.cycle import cycle_run
from allocation.services.decide.invariants import invariants_check
from billing.models import Transfer
from tenants.access import Actor
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.builders import a_member, a_user, an_actor
from tests.builders_allocation import HOUR, NOW, Lab, a_lab
from tests.features.hand_overs.test_hand_overs import booked, offered
from tests.races.together import apart
from tests.roles import as_system
from tests.servers.servers import Servers

pytestmark = pytest.mark.races
Act = Callable[..., object]


@pytest.fixture
def lab(real_db: Servers) -> Lab:
    return a_lab("helix", gpus=4)


@pytest.fixture
def nina(lab: Lab) -> Actor:
    return an_actor(a_member(lab.project, user=a_user("nina")))


def answer_of(actor: Actor, act: Act, booking: Booking, gate: Barrier) -> str:
    """What came of it: done, or the code of the refusal."""
    gate.wait(timeout=20)
    try:
        with tenant_tx(actor.tenant_id):
            act(actor=actor, reference=booking.label, now=NOW + HOUR / 2)
    except Refused as refused:
        return refused.code
    return "done"


@pytest.mark.parametrize("rival", [hand_over_withdraw, hand_over_decline, hand_over_accept])
def test_an_offer_is_answered_once(lab: Lab, nina: Actor, rival: Act) -> None:
    booking = booked(lab, starts=NOW + 3 * HOUR)
    with as_system():
        cycle_run(NOW)
    offered(lab.actor, booking)
    gate, other = Barrier(2), lab.actor if rival is hand_over_withdraw else nina
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(lambda: apart(lambda: answer_of(nina, hand_over_accept, booking, gate)))
        second = pool.submit(lambda: apart(lambda: answer_of(other, rival, booking, gate)))
        found = sorted([str(first.result(timeout=60)), str(second.result(timeout=60))])
    assert found == ["done", "hand_over_none"]
    with as_system():
        row, booking = HandOver.objects.get(), Booking.objects.get(id=booking.id)
        owner = row.taker_id if row.state == "accepted" else row.giver_id
        assert booking.owner_id == owner
        holds = Transfer.objects.filter(reference=booking.id, kind="hold", end__isnull=True)
        assert {each.person_id for each in holds} == {owner}
        assert invariants_check() == []


def test_a_booking_that_is_cancelled_meanwhile_is_not_taken_over(lab: Lab, nina: Actor) -> None:
    booking = booked(lab, starts=NOW + 3 * HOUR)
    with as_system():
        cycle_run(NOW)
    offered(lab.actor, booking)
    gate = Barrier(2)

    def cancel(*, actor: Actor, reference: str, now: object) -> None:
        row = Booking.objects.select_related("project", "tier", "owner").get(id=booking.id)
        booking_cancel(actor=actor, booking=row, now=NOW + HOUR / 2)

    with ThreadPoolExecutor(2) as pool:
        taken = pool.submit(lambda: apart(lambda: answer_of(nina, hand_over_accept, booking, gate)))
        ended = pool.submit(lambda: apart(lambda: answer_of(lab.actor, cancel, booking, gate)))
        taken_by, cancelled = str(taken.result(timeout=60)), str(ended.result(timeout=60))
    with as_system():
        row = Booking.objects.get(id=booking.id)
        assert invariants_check() == []
    if row.state == State.CANCELLED:
        assert cancelled == "done"
        assert taken_by in ("done", "hand_over_begun")
    else:
        assert (taken_by, row.owner_id) == ("done", nina.user_id)
