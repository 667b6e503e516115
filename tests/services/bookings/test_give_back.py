"""GPUs that a running booking gives back: they end, their money is free, and the rest runs on."""

from datetime import timedelta
from decimal import Decimal

import pytest

from allocation.models import Allocation, Booking, GpuSample, Occupancy
from allocation.services.bookings.change.changes import Patch, booking_patch
from allocation.services.bookings.release import booking_release
from allocation.services.runs.end import allocation_empty
from allocation.services.runs.start import allocations_ready
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.builders_allocation import HOUR, NOW, Lab, a_lab, an_ask
from tests.roles import as_owner, as_system
from tests.servers.servers import Servers
from tests.services.bookings.test_changes import fresh, held, requested, turn, window
from tests.services.bookings.test_undo import refusal_of

pytestmark = pytest.mark.turn

ONE = NOW + HOUR
PRICE = Decimal("4.80")


@pytest.fixture
def lab(real_db: Servers) -> Lab:
    return a_lab("helix", gpus=8)


@pytest.fixture
def mine(lab: Lab) -> Booking:
    """Four GPUs for four hours, handed over at once."""
    booking = requested(lab, an_ask(4, hours=4))
    turn(NOW)
    with as_system():
        allocations_ready({row.id: [f"GPU-{row.gpu_number}"] for row in rows(booking)}, NOW)
    return fresh(booking)


def rows(booking: Booking, *states: str) -> list[Allocation]:
    with as_system():
        found = booking.allocations.filter(state__in=states or Allocation.LIVE)
        return list(found.select_related("gpu__node").order_by("gpu_number"))


def given_back(lab: Lab, booking: Booking, *names: str, name: str | None = None) -> Booking:
    patch = Patch(give_back=names, name=name)
    with tenant_tx(lab.tenant_id):
        booking_patch(actor=lab.actor, booking=fresh(booking), patch=patch, revision=None, now=ONE)
    return fresh(booking)


def names_of(found: list[Allocation]) -> list[str]:
    return [f"{row.gpu.node.name}/{row.gpu.index}" for row in found]


def cleared(booking: Booking) -> None:
    """The node reports what it had to clear as empty."""
    with as_system():
        for row in rows(booking, "releasing"):
            allocation_empty(row.id, ONE)


def ended(lab: Lab, booking: Booking) -> Booking:
    with tenant_tx(lab.tenant_id):
        booking_release(actor=lab.actor, booking=fresh(booking), now=NOW + 4 * HOUR)
    turn(NOW + 4 * HOUR)
    cleared(booking)
    return fresh(booking)


def test_named_gpus_end_and_the_rest_is_charged_for_what_it_is(lab: Lab, mine: Booking) -> None:
    gone = rows(mine)[1:3]
    after = given_back(lab, mine, *names_of(gone))
    assert (after.state, after.revision, after.ask["count"]) == ("active", 2, 2)
    assert held(mine) == after.hold_amount == PRICE * (4 + 2 * 3)
    turn(ONE)
    assert [row.id for row in rows(mine, "releasing")] == [row.id for row in gone]
    assert len(rows(mine, "active")) == 2
    cleared(mine)
    with as_system():
        assert Occupancy.objects.filter(closed=None).count() == 2
    # What was given back is free for others at once.
    other = requested(lab, an_ask(6, hours=1), now=ONE)
    turn(ONE + timedelta(seconds=5))
    assert fresh(other).state == "starting"
    over = ended(lab, mine)
    assert (over.state, over.charged, held(mine)) == ("ended", PRICE * 10, Decimal(0))
    assert refusal_of(lab, mine, ONE) == "nothing_to_undo"


def test_gpus_without_a_process_are_found(lab: Lab, mine: Booking) -> None:
    readings = [(0, 2), (1, 0), (2, 0)]  # Of the last GPU there is none.
    with as_system():
        GpuSample.objects.bulk_create(
            GpuSample(
                gpu_id=row.gpu_id,
                tenant_id=row.tenant_id,
                allocation_id=row.id,
                at=ONE - timedelta(seconds=30),
                processes=processes,
            )
            for row, (_, processes) in zip(rows(mine), readings, strict=False)
        )
    before = rows(mine)
    after = given_back(lab, mine, "unused")
    turn(ONE)
    assert after.ask["count"] == 2
    assert names_of(rows(mine, "releasing")) == names_of(before[1:3])
    with as_owner():
        GpuSample.objects.all().delete()
    with pytest.raises(Refused) as refused:
        given_back(lab, mine, "unused")
    assert refused.value.code == "none_unused"


def test_what_a_run_nobody_has_used_gives_back_late_costs_its_share(lab: Lab, mine: Booking) -> None:
    with as_system():
        Booking.objects.filter(id=mine.id).update(notice_seconds=3600, late_share=50)
    after = given_back(lab, mine, *names_of(rows(mine)[2:]))
    assert after.late_fees == PRICE
    assert after.hold_amount == PRICE * (4 + 2 * 3) + PRICE
    turn(ONE)
    cleared(mine)
    over = ended(lab, mine)
    assert over.charged == PRICE * 10 + PRICE


def test_what_is_not_its_own_or_all_or_not_running_is_refused(lab: Lab, mine: Booking) -> None:
    def refusal(booking: Booking, *names: str, name: str | None = None) -> str:
        with pytest.raises(Refused) as refused:
            given_back(lab, booking, *names, name=name)
        return refused.value.code

    assert refusal(mine, "n1/99") == "not_its_gpu"
    assert refusal(mine, *names_of(rows(mine))) == "give_back_all"
    assert refusal(mine, names_of(rows(mine))[0], name="too") == "give_back_alone"
    waits = requested(lab, window(2, 5, 6))
    turn(NOW)
    assert refusal(waits, "unused") == "give_back_early"
    assert (fresh(mine).revision, fresh(mine).ask["count"]) == (1, 4)


def test_two_that_give_back_at_once_take_turns(lab: Lab, mine: Booking) -> None:
    first, second = names_of(rows(mine))[:2]
    given_back(lab, mine, first)
    turn(ONE)
    assert refusal_again(lab, mine, first) == "not_its_gpu"
    after = given_back(lab, mine, second)
    turn(ONE)
    assert (after.ask["count"], len(rows(mine, "active"))) == (2, 2)
    with as_system():
        said = [each.detail["differences"] for each in mine.events.filter(kind="changed")]
    assert said == [{"count": [4, 3]}, {"count": [3, 2]}]


def test_two_that_are_given_back_before_the_next_turn_both_count(lab: Lab, mine: Booking) -> None:
    first, second = names_of(rows(mine))[:2]
    given_back(lab, mine, first)
    assert refusal_again(lab, mine, first) == "not_its_gpu"
    after = given_back(lab, mine, second)
    assert after.ask["count"] == 2
    turn(ONE)
    assert len(rows(mine, "active")) == 2


def refusal_again(lab: Lab, booking: Booking, name: str) -> str:
    with pytest.raises(Refused) as refused:
        given_back(lab, booking, name)
    return refused.value.code
