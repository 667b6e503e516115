"""Hardware that fails under running work: whole gangs start again elsewhere, and nobody pays."""

from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from django.db import IntegrityError

from allocation.models import Allocation, Booking, Gpu, GpuEvent, Node, Occupancy
from allocation.rules.states import State
from allocation.services.bookings import booking_cancel, booking_release, booking_request
from allocation.services.cycle import tick_run
from allocation.services.fleet import node_drain, node_ready
from allocation.services.healing import is_hardware_due
from allocation.services.invariants import invariants_check
from allocation.services.publish import _gangs
from allocation.services.upkeep import gpu_return, hardware_fence
from billing.queries import budget_effect
from tenants.errors import Refused
from tenants.models import User
from tenants.wall import operator_tx
from tests.builders import an_operator
from tests.builders_allocation import HOUR, NOW, Lab, a_lab, a_node, a_wish, an_ask
from tests.roles import as_system
from tests.services.plant import NAME, Plant, fresh, rows_of


@pytest.fixture
def lab(plant: Plant) -> Lab:
    return a_lab("helix", gpus=0)


@pytest.fixture
def operator(plant: Plant) -> User:
    return an_operator()


def booked(plant: Plant, lab: Lab, count: int = 1, **ask: object) -> Booking:
    """A booking that the node was told of and runs."""
    with as_system():
        wish = a_wish(lab.project, an_ask(count, **ask))  # type: ignore[arg-type]
        booking = booking_request(actor=lab.actor, wish=wish, now=plant.now)
    plant.round()
    assert fresh(booking).state == State.ACTIVE
    return booking


def fails(plant: Plant, index: int, xid: int, *, instance: int | None = None) -> None:
    """The GPU has an error, and five seconds later everybody knows."""
    plant.hardware.fail(plant.hardware.gpus[index], xid, instance=instance)
    plant.later(timedelta(seconds=5))


def gpu(index: int, node: str = NAME) -> Gpu:
    with as_system():
        return Gpu.objects.get(node__name=node, index=index)


def occupied() -> int:
    with as_system():
        return Occupancy.objects.filter(closed=None).count()


def said(booking: Booking) -> list[str]:
    with as_system():
        return list(booking.events.values_list("kind", flat=True))


def held(lab: Lab) -> Decimal:
    with as_system():
        effect = budget_effect(project_id=lab.project.id, at=NOW)
    assert effect is not None
    return effect.held


def nothing_is_broken() -> None:
    with as_system():
        assert invariants_check() == []


def test_a_gang_of_two_goes_back_in_line_whole_when_one_gpu_falls_off_the_bus(
    plant: Plant, lab: Lab
) -> None:
    gang = booked(plant, lab, 2)
    before, money = fresh(gang), held(lab)
    plant.later(timedelta(minutes=30))
    a_node("gpu-b1-01", gpus=2)
    fails(plant, 0, 79)
    after = fresh(gang)
    # The other node has no agent: the gang is told to start there and waits for it.
    assert after.state == State.STARTING
    new = [row for row in rows_of(gang) if row.state == Allocation.State.STARTING]
    assert {row.gpu.node.name for row in new} == {"gpu-b1-01"}
    assert after.submitted == before.submitted
    assert after.duration_seconds == 2 * 3600
    assert (after.planned_ends or NOW) - (after.planned_starts or NOW) == 2 * HOUR
    assert after.ready_at is None
    assert (after.held, held(lab)) == (before.held, money)
    # The living GPU was proven empty; the lost one can't be, and stays occupied.
    with as_system():
        old = Occupancy.objects.filter(closed=None, gpu__node__name=NAME)
        assert [row.gpu.index for row in old] == [0]
    assert said(gang)[-3:] == ["broken_off", "scheduled", "starting"]
    nothing_is_broken()


def test_the_place_of_a_lost_gpu_is_given_to_nobody_until_an_operator_says_it_is_off(
    plant: Plant, lab: Lab, operator: User
) -> None:
    booking = booked(plant, lab, 2)
    fails(plant, 0, 79)
    assert fresh(booking).state == State.QUEUED
    assert occupied() == 1
    assert gpu(0).health == Gpu.Health.LOST
    with as_system():
        lost = Occupancy.objects.get(closed=None)
        other = Occupancy.objects.exclude(id=lost.id).get()
        other.gpu_id, other.slots, other.closed = lost.gpu_id, lost.slots, None
        with pytest.raises(IntegrityError, match="occupancy_once_on_hardware"):
            other.save()
    with operator_tx():
        node = Node.objects.get(name=NAME)
        closed = hardware_fence(
            operator=operator, node=node, gpu=gpu(0), note="Card pulled", now=plant.now
        )
    assert closed == 1
    assert occupied() == 0
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
        wish = a_wish(lab.project, an_ask(3))
        gang = booking_request(actor=lab.actor, wish=wish, now=plant.now)
    plant.cycle()
    a_node("gpu-c1-01", gpus=1)
    a_node("gpu-c1-02", gpus=2)
    with as_system():
        Gpu.objects.filter(node=there).update(health="draining", drain_by=plant.now)
    plant.cycle()
    plant.later(timedelta(seconds=6))
    nodes = {row.gpu.node.name for row in rows_of(gang) if not row.left}
    assert "gpu-b1-01" not in nodes
    with as_system():
        found = {m.node for g in _gangs(Node.objects.get(name=NAME)) for m in g.members}
    assert found == (nodes if NAME in nodes else set())


def test_what_was_ending_on_hardware_that_is_off_ends_with_its_charge(
    plant: Plant, lab: Lab, operator: User
) -> None:
    booking = booked(plant, lab)
    plant.later(timedelta(hours=1))
    plant.hardware.gpus[rows_of(booking)[0].gpu.index].lost = True
    with as_system():
        booking_release(actor=lab.actor, booking=booking, now=plant.now)
    plant.later(timedelta(seconds=5))
    # Nobody proves it empty.
    assert fresh(booking).state == State.ENDING
    with operator_tx():
        node = Node.objects.get(name=NAME)
        node_drain(operator=operator, node=node, reason="Off", now=plant.now)
        node.refresh_from_db()
        hardware_fence(operator=operator, node=node, gpu=None, note="Unplugged", now=plant.now)
    over = fresh(booking)
    assert (over.state, over.outcome) == (State.ENDED, "released")
    assert over.charged == Decimal("4.800000")
    nothing_is_broken()


def test_hardware_that_takes_work_can_not_be_said_to_be_off(
    plant: Plant, lab: Lab, operator: User
) -> None:
    booked(plant, lab)
    node = Node.objects.get(name=NAME)
    with operator_tx(), pytest.raises(Refused, match="still_in_service"):
        hardware_fence(operator=operator, node=node, gpu=None, note="Off", now=plant.now)
    assert occupied() == 1


def test_a_node_that_is_off_gives_back_everything_and_its_work_starts_again(
    plant: Plant, lab: Lab, operator: User
) -> None:
    booking = booked(plant, lab, 2)
    a_node("gpu-b1-01", gpus=2)
    with operator_tx():
        node = Node.objects.get(name=NAME)
        node_drain(operator=operator, node=node, reason="Smoke", now=plant.now)
        node.refresh_from_db()
        assert (
            hardware_fence(operator=operator, node=node, gpu=None, note="Off", now=plant.now) == 2
        )
    plant.cycle()
    assert fresh(booking).state == State.STARTING
    assert {r.gpu.node.name for r in rows_of(booking) if r.state == "starting"} == {"gpu-b1-01"}
    nothing_is_broken()


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
        (94, Gpu.Health.OK, "begins again, here or beside"),
    ],
)
def test_each_error_takes_out_what_its_table_says(
    plant: Plant, lab: Lab, xid: int, health: str, broken: str
) -> None:
    booking = booked(plant, lab)
    used = rows_of(booking)[0].gpu.index
    a_node("gpu-b1-01", gpus=1)
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


def test_an_error_counts_once_however_often_it_is_said(
    plant: Plant, lab: Lab, operator: User
) -> None:
    booking = booked(plant, lab)
    index = rows_of(booking)[0].gpu.index
    fails(plant, index, 63)
    with operator_tx():
        gpu_return(operator=operator, gpu=gpu(index), note="Reset", now=plant.now)
    # The agent goes on saying it; the operator's word stands.
    plant.later(timedelta(minutes=2))
    plant.later(timedelta(minutes=2))
    assert gpu(index).health == Gpu.Health.OK
    with as_system():
        kinds = list(GpuEvent.objects.values_list("kind", flat=True))
    assert kinds == ["operator", "xid"]


def test_a_gpu_taken_out_by_an_error_stays_out_over_a_restart_of_its_agent(
    plant: Plant, lab: Lab
) -> None:
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
    # Nobody told of an Xid: the work on it failed with it, so it is lost all the same.
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
    plant.driver.faults["nvmlDeviceCreateGpuInstanceWithPlacement"].append(
        "NVML_ERROR_INVALID_ARGUMENT"
    )
    with as_system():
        wish = a_wish(lab.project, an_ask(1, profile="2g.20gb"))
        booking = booking_request(actor=lab.actor, wish=wish, now=plant.now)
    plant.round()
    assert fresh(booking).state == State.FAILED


def test_the_broken_run_is_free_and_the_second_is_charged_by_the_second(
    plant: Plant, lab: Lab
) -> None:
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
    assert over.charged == over.held == Decimal("9.600000")
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


def test_a_flexible_booking_without_room_waits_at_the_head_of_the_line(
    plant: Plant, lab: Lab, operator: User
) -> None:
    gang = booked(plant, lab, 2)
    with as_system():
        later = booking_request(actor=lab.actor, wish=a_wish(lab.project, an_ask(1)), now=plant.now)
    plant.round()
    fails(plant, 0, 95)
    assert fresh(gang).state == State.QUEUED
    assert fresh(gang).reasons != []
    # One GPU is left: who fits on it has it, and the gang is not forgotten.
    plant.later(timedelta(seconds=5))
    assert fresh(later).state == State.ACTIVE
    with operator_tx():
        gpu_return(operator=operator, gpu=gpu(0), note="Reset", now=plant.now)
    plant.round()
    promised = fresh(gang).planned_starts
    assert promised is not None
    assert promised <= (fresh(later).planned_ends or NOW) + timedelta(minutes=5)
    nothing_is_broken()


def test_a_booking_that_waits_after_its_hardware_failed_can_be_cancelled(
    plant: Plant, lab: Lab
) -> None:
    gang = booked(plant, lab, 2)
    fails(plant, 0, 79)
    with as_system():
        booking_cancel(actor=lab.actor, booking=gang, now=plant.now)
    plant.later(timedelta(seconds=5))
    assert fresh(gang).state == State.CANCELLED
    assert held(lab) == 0
    nothing_is_broken()


def test_what_runs_on_a_draining_node_goes_on_until_its_deadline(
    plant: Plant, lab: Lab, operator: User
) -> None:
    booking = booked(plant, lab, 2)
    a_node("gpu-b1-01", gpus=2)
    deadline = plant.now + HOUR
    with operator_tx():
        node = Node.objects.get(name=NAME)
        node_drain(operator=operator, node=node, reason="New fans", now=plant.now, by=deadline)
    assert said(booking)[-1] == "leave_by"
    plant.later_until(deadline - timedelta(seconds=1))
    assert fresh(booking).state == State.ACTIVE
    plant.later_until(deadline)
    assert fresh(booking).state == State.STARTING
    assert {r.gpu.node.name for r in rows_of(booking) if r.state == "starting"} == {"gpu-b1-01"}
    with operator_tx():
        node_ready(operator=operator, node=Node.objects.get(name=NAME), now=plant.now)
    with as_system():
        assert Node.objects.get(name=NAME).drain_by is None
    nothing_is_broken()


def test_without_a_deadline_a_draining_node_keeps_its_work_to_the_end(
    plant: Plant, lab: Lab, operator: User
) -> None:
    booking = booked(plant, lab)
    with operator_tx():
        node = Node.objects.get(name=NAME)
        node_drain(operator=operator, node=node, reason="Fans", now=plant.now)
    plant.later(timedelta(minutes=119))
    assert fresh(booking).state == State.ACTIVE
    with as_system():
        assert not is_hardware_due(plant.now)


def test_what_would_start_soon_on_hardware_that_is_out_gets_another_place(
    plant: Plant, lab: Lab
) -> None:
    soon, late = (
        NOW + timedelta(minutes=40),
        NOW + timedelta(hours=30),
    )
    with as_system():
        bookings = [
            booking_request(
                actor=lab.actor, wish=a_wish(lab.project, an_ask(1, starts=starts)), now=NOW
            )
            for starts in (soon, late)
        ]
    plant.round()
    first, second = bookings
    place = {b.id: rows_of(b)[0].gpu.index for b in bookings}
    fails(plant, place[first.id], 63)
    moved = [row for row in rows_of(first) if row.state == "planned"]
    assert [row.gpu.index for row in moved] == [1 - place[first.id]]
    assert fresh(first).state == State.SCHEDULED
    if place[second.id] == place[first.id]:
        assert len(rows_of(second)) == 1
    nothing_is_broken()


def test_the_clock_alone_finds_what_has_to_leave(plant: Plant, lab: Lab) -> None:
    booking = booked(plant, lab)
    used = rows_of(booking)[0].gpu
    with as_system():
        Gpu.objects.filter(id=used.id).update(health="draining", drain_by=plant.now + HOUR)
        assert not is_hardware_due(plant.now)
        assert tick_run(plant.now).outcome == "idle"
        moment: datetime = plant.now + HOUR
        assert is_hardware_due(moment)
        assert tick_run(moment).outcome == "decided"
    assert "broken_off" in said(booking)


def test_a_healthy_gpu_can_not_have_a_deadline(plant: Plant) -> None:
    with as_system(), pytest.raises(IntegrityError, match="gpu_in_service_is_healthy"):
        Gpu.objects.update(drain_by=NOW)


def test_the_invariants_see_a_place_left_behind_without_a_reason(plant: Plant, lab: Lab) -> None:
    # Negative control of the invariant that lost places are excused from.
    booked(plant, lab, 2)
    fails(plant, 0, 79)
    nothing_is_broken()
    with as_system():
        Allocation.objects.update(left=False)
        assert {found.promise for found in invariants_check()} == {"P13"}
