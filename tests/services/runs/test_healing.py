"""Hardware that fails under running work: whole gangs start again elsewhere, and nobody pays."""

from datetime import timedelta
from decimal import Decimal

import pynvml
import pytest

from allocation.models import Allocation, Gpu, Node, Occupancy
from allocation.rules.states import State
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_cancel
from allocation.services.decide.invariants import invariants_check
from allocation.services.publish.desired import desired_documents
from tenants.models import User
from tests.builders import an_operator
from tests.builders_allocation import HOUR, NOW, Lab, a_booking_request, a_lab, a_node, an_ask
from tests.roles import as_system
from tests.services.broken import booked, fails, gpu, held, nothing_is_broken, occupied, said
from tests.services.plant import NAME, Plant, fresh, rows_of

pytestmark = pytest.mark.turn


@pytest.fixture
def lab(plant: Plant) -> Lab:
    return a_lab("helix", gpus=0)


@pytest.fixture
def operator(plant: Plant) -> User:
    return an_operator()


def test_a_gang_of_two_goes_back_in_line_whole_when_one_gpu_falls_off_the_bus(plant: Plant, lab: Lab) -> None:
    gang = booked(plant, lab, 2)
    before, money = fresh(gang), held(lab)
    plant.later(timedelta(minutes=30))
    a_node("gpu-b1-01", gpus=2)
    fails(plant, 0, 79)
    after = fresh(gang)
    # The other node has no agent: the gang is to start there and waits for it.
    assert after.state == State.STARTING
    new = [row for row in rows_of(gang) if row.state == Allocation.State.STARTING]
    assert {row.gpu.node.name for row in new} == {"gpu-b1-01"}
    assert after.submitted == before.submitted
    assert after.duration_seconds == 2 * 3600
    assert (after.planned_ends or NOW) - (after.planned_starts or NOW) == 2 * HOUR
    assert after.ready_at is None
    assert (after.hold_amount, held(lab)) == (before.hold_amount, money)
    # The living GPU was proven empty; the lost one can't be, and stays occupied.
    with as_system():
        old = Occupancy.objects.filter(closed=None, gpu__node__name=NAME)
        assert [row.gpu.index for row in old] == [0]
    assert said(gang)[-3:] == ["broken_off", "scheduled", "starting"]
    nothing_is_broken()


def test_a_lost_place_is_nobodys_quota_and_keeps_no_booking_from_ending(plant: Plant) -> None:
    # All that the lab may use at once is two GPUs: the lost one must not count against it.
    lab = a_lab("helix", gpus=0, limit=1)
    booking = booked(plant, lab)
    used = rows_of(booking)[0].gpu.index
    fails(plant, used, 79)
    assert fresh(booking).state == State.ACTIVE
    assert rows_of(booking)[-1].gpu.index == 1 - used
    plant.later_until(fresh(booking).planned_ends or NOW)
    plant.later(timedelta(seconds=1))
    assert fresh(booking).state == State.ENDED
    assert fresh(booking).charged == Decimal("9.600000")
    assert occupied() == 1
    nothing_is_broken()


def test_the_members_of_a_gang_are_those_of_its_last_run(plant: Plant, lab: Lab) -> None:
    there = a_node("gpu-b1-01", gpus=1)
    with as_system():
        request = a_booking_request(lab.project, an_ask(3))
        gang = booking_request(actor=lab.actor, request=request, now=plant.now)
    plant.cycle()
    a_node("gpu-c1-01", gpus=1)
    a_node("gpu-c1-02", gpus=2)
    with as_system():
        Gpu.objects.filter(node=there).update(health="draining", drain_by=plant.now)
    plant.cycle()
    plant.later(timedelta(seconds=6))
    nodes = {row.gpu.node.name for row in rows_of(gang) if not row.abandoned}
    assert "gpu-b1-01" not in nodes
    with as_system():
        found = {
            m.node for g in desired_documents([Node.objects.get(name=NAME)], 1)[0].gangs for m in g.members
        }
    assert found == (nodes if NAME in nodes else set())


WHOLE_NODE = "the node's other GPU too"


@pytest.mark.parametrize(
    ("xid", "health", "broken"),
    [
        (13, Gpu.Health.OK, ""),
        (63, Gpu.Health.DRAINING, ""),
        (92, Gpu.Health.DRAINING, ""),
        (48, Gpu.Health.DRAINING, "moves"),
        (64, Gpu.Health.DRAINING, "moves"),
        (74, Gpu.Health.DRAINING, "moves"),
        (95, Gpu.Health.DRAINING, "moves"),
        (79, Gpu.Health.LOST, "moves"),
        (154, Gpu.Health.DRAINING, WHOLE_NODE),
        (94, Gpu.Health.OK, "begins again, here or on another GPU"),
    ],
)
def test_each_error_takes_out_what_its_table_says(
    plant: Plant, lab: Lab, xid: int, health: str, broken: str
) -> None:
    booking = booked(plant, lab)
    used = rows_of(booking)[0].gpu.index
    a_node("gpu-b1-01", gpus=1)
    # What the driver asks for with it.
    plant.hardware.gpus[used].recovery = pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT
    fails(plant, used, xid)
    assert gpu(used).health == health
    assert ("broken_off" in said(booking)) is bool(broken)
    place = rows_of(booking)[-1].gpu
    if broken == WHOLE_NODE:
        assert gpu(1 - used).health == Gpu.Health.DRAINING
        assert place.node.name == "gpu-b1-01"
    else:
        assert gpu(1 - used).health == Gpu.Health.OK
        assert fresh(booking).state == State.ACTIVE
        if broken in ("", "moves"):
            assert (place.index == used) is (broken == "")
    nothing_is_broken()


def test_a_contained_error_breaks_only_the_booking_on_its_slice(plant: Plant, lab: Lab) -> None:
    one = booked(plant, lab, 1, profile="2g.20gb")
    two = booked(plant, lab, 1, profile="2g.20gb")
    (place,) = rows_of(one)
    assert rows_of(two)[0].gpu_id == place.gpu_id
    hardware = plant.hardware.gpus[place.gpu.index]
    (instance,) = [i.id for i in hardware.instances.values() if i.start == place.start]
    fails(plant, place.gpu.index, 94, instance=instance)
    assert "broken_off" in said(one)
    assert fresh(one).state == State.ACTIVE
    assert fresh(two).state == State.ACTIVE
    assert "broken_off" not in said(two)
    nothing_is_broken()


def test_a_gpu_taken_out_by_an_error_stays_out_over_a_restart_of_its_agent(plant: Plant, lab: Lab) -> None:
    fails(plant, 0, 95)
    plant.agent._take_inventory(plant.line)
    plant.portal_reads()
    assert (gpu(0).health, gpu(0).needs_operator) == (Gpu.Health.DRAINING, True)
    fails(plant, 1, 79)
    plant.hardware.gpus[1].lost = False
    plant.agent._take_inventory(plant.line)
    plant.portal_reads()
    assert gpu(1).health == Gpu.Health.LOST


def test_a_gpu_that_was_only_away_is_back_when_it_is_found(plant: Plant, lab: Lab) -> None:
    booking = booked(plant, lab)
    used = rows_of(booking)[0].gpu.index
    plant.hardware.gpus[used].lost = True
    plant.later(timedelta(seconds=5))
    # No Xid was reported, but the work failed with the GPU, so it is lost.
    assert gpu(used).health == Gpu.Health.LOST
    assert "broken_off" in said(booking)
    assert fresh(booking).outcome == ""
    plant.hardware.gpus[used].lost = False
    plant.agent._take_inventory(plant.line)
    plant.later(timedelta(seconds=5))
    assert gpu(used).health == Gpu.Health.OK
    assert fresh(booking).state == State.ACTIVE
    nothing_is_broken()


def test_work_that_can_not_start_still_fails_where_the_gpu_answers(plant: Plant, lab: Lab) -> None:
    # Negative control: only hardware that is gone excuses a failure.
    plant.driver.faults["nvmlDeviceCreateGpuInstanceWithPlacement"].append("NVML_ERROR_INVALID_ARGUMENT")
    with as_system():
        request = a_booking_request(lab.project, an_ask(1, profile="2g.20gb"))
        booking = booking_request(actor=lab.actor, request=request, now=plant.now)
    plant.round()
    assert fresh(booking).state == State.FAILED


def test_the_broken_run_is_free_and_the_second_is_charged_by_the_second(plant: Plant, lab: Lab) -> None:
    booking = booked(plant, lab)
    used = rows_of(booking)[0].gpu.index
    plant.later(timedelta(minutes=90))
    fails(plant, used, 95)
    assert fresh(booking).state == State.ACTIVE
    assert rows_of(booking)[-1].gpu.index == 1 - used
    ends = fresh(booking).planned_ends
    assert ends is not None
    assert ends - plant.now <= 2 * HOUR
    plant.later_until(ends)
    plant.later(timedelta(seconds=1))
    over = fresh(booking)
    assert over.state == State.ENDED
    assert over.charged == over.hold_amount == Decimal("9.600000")
    assert held(lab) == 0
    nothing_is_broken()


def test_a_fixed_window_gets_what_is_left_of_it_elsewhere(plant: Plant, lab: Lab) -> None:
    booking = booked(plant, lab, 1, starts=NOW, hours=2)
    used = rows_of(booking)[0].gpu.index
    plant.later(timedelta(minutes=30))
    fails(plant, used, 95)
    again = fresh(booking)
    assert again.state == State.ACTIVE
    assert again.planned_ends == NOW + 2 * HOUR
    plant.later_until(NOW + 2 * HOUR)
    plant.later(timedelta(seconds=1))
    assert fresh(booking).state == State.ENDED
    # From the second start on: an hour and a half less the seconds in between.
    assert (fresh(booking).charged or 0) <= Decimal("7.20")
    nothing_is_broken()


def test_a_fixed_window_without_room_left_fails_and_costs_nothing(plant: Plant, lab: Lab) -> None:
    booking = booked(plant, lab, 2, starts=NOW, hours=2)
    fails(plant, 0, 95)
    over = fresh(booking)
    assert (over.state, over.outcome, over.charged) == (State.FAILED, "failed", Decimal(0))
    assert held(lab) == 0
    nothing_is_broken()


def test_a_booking_that_waits_after_its_hardware_failed_can_be_cancelled(plant: Plant, lab: Lab) -> None:
    gang = booked(plant, lab, 2)
    fails(plant, 0, 79)
    with as_system():
        booking_cancel(actor=lab.actor, booking=gang, now=plant.now)
    plant.later(timedelta(seconds=5))
    assert fresh(gang).state == State.CANCELLED
    assert held(lab) == 0
    nothing_is_broken()


def test_the_invariants_see_a_place_left_behind_without_a_reason(plant: Plant, lab: Lab) -> None:
    # Negative control of the invariant that lost places are excused from.
    booked(plant, lab, 2)
    fails(plant, 0, 79)
    nothing_is_broken()
    with as_system():
        Allocation.objects.update(abandoned=False)
        assert {found.promise for found in invariants_check()} == {"P13"}
