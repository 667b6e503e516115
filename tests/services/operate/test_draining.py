"""What operators do about hardware that failed or is to be emptied, and what leaves it when."""

from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from django.db import IntegrityError

from allocation.models import BookingEvent, Gpu, GpuEvent, Node, Occupancy
from allocation.rules.states import State
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_release
from allocation.services.decide.cycle import tick_run
from allocation.services.nodes.fleet import node_approve
from allocation.services.operate.drain import gpu_return, hardware_fence, node_drain
from allocation.services.runs.interrupt import is_hardware_to_vacate
from tenants.models import User
from tenants.platform.errors import Refused
from tenants.platform.wall import operator_tx
from tests.builders import an_operator
from tests.builders_allocation import HOUR, NOW, Lab, a_booking_request, a_lab, a_node, an_ask
from tests.roles import as_system
from tests.services.broken import booked, fails, gpu, nothing_is_broken, occupied, said
from tests.services.plant import NAME, Plant, fresh, rows_of

pytestmark = pytest.mark.turn


@pytest.fixture
def lab(plant: Plant) -> Lab:
    return a_lab("helix", gpus=0)


@pytest.fixture
def operator(plant: Plant) -> User:
    return an_operator()


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
        closed = hardware_fence(operator=operator, node=node, gpu=gpu(0), note="Card pulled", now=plant.now)
    assert closed == 1
    assert occupied() == 0
    nothing_is_broken()


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


def test_hardware_that_takes_work_can_not_be_said_to_be_off(plant: Plant, lab: Lab, operator: User) -> None:
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
        assert hardware_fence(operator=operator, node=node, gpu=None, note="Off", now=plant.now) == 2
    plant.cycle()
    assert fresh(booking).state == State.STARTING
    assert {r.gpu.node.name for r in rows_of(booking) if r.state == "starting"} == {"gpu-b1-01"}
    nothing_is_broken()


def test_an_error_counts_once_however_often_it_is_said(plant: Plant, lab: Lab, operator: User) -> None:
    booking = booked(plant, lab)
    index = rows_of(booking)[0].gpu.index
    fails(plant, index, 63)
    with operator_tx():
        gpu_return(operator=operator, gpu=gpu(index), note="Reset", now=plant.now)
    # The agent keeps reporting it; the operator's statement stands.
    plant.later(timedelta(minutes=2))
    plant.later(timedelta(minutes=2))
    assert gpu(index).health == Gpu.Health.OK
    with as_system():
        kinds = list(GpuEvent.objects.values_list("kind", flat=True))
    assert kinds == ["operator", "xid"]


def test_a_flexible_booking_without_room_waits_at_the_head_of_the_line(
    plant: Plant, lab: Lab, operator: User
) -> None:
    gang = booked(plant, lab, 2)
    with as_system():
        later = booking_request(
            actor=lab.actor, request=a_booking_request(lab.project, an_ask(1)), now=plant.now
        )
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
        node_approve(operator=operator, node=Node.objects.get(name=NAME), now=plant.now)
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
        assert not is_hardware_to_vacate(plant.now)


def test_what_would_start_soon_on_hardware_that_is_out_gets_another_place(plant: Plant, lab: Lab) -> None:
    soon, late = (
        NOW + timedelta(minutes=40),
        NOW + timedelta(hours=30),
    )
    with as_system():
        bookings = [
            booking_request(
                actor=lab.actor,
                request=a_booking_request(lab.project, an_ask(1, starts=starts)),
                now=NOW,
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
        assert not is_hardware_to_vacate(plant.now)
        assert tick_run(plant.now).outcome == "idle"
        moment: datetime = plant.now + HOUR
        assert is_hardware_to_vacate(moment)
        assert tick_run(moment).outcome == "decided"
    assert "broken_off" in said(booking)


def test_a_healthy_gpu_can_not_have_a_deadline(plant: Plant) -> None:
    with as_system(), pytest.raises(IntegrityError, match="gpu_in_service_is_healthy"):
        Gpu.objects.update(drain_by=NOW)


def test_a_new_booking_waits_for_a_class_that_is_out_of_service_and_starts_when_it_is_back(
    plant: Plant, lab: Lab, operator: User
) -> None:
    with operator_tx():
        node = Node.objects.get(name=NAME)
        node_drain(operator=operator, node=node, reason="new fans", now=plant.now)
    with as_system():
        flexible = booking_request(actor=lab.actor, request=a_booking_request(lab.project, an_ask()), now=NOW)
        window = a_booking_request(lab.project, an_ask(starts=plant.now + HOUR))
        fixed = booking_request(actor=lab.actor, request=window, now=NOW)
    plant.cycle()
    assert (fresh(flexible).state, fresh(fixed).state) == (State.QUEUED, State.REFUSED)
    assert fresh(flexible).reasons[0]["rule"] == "R80"
    assert fresh(flexible).is_unplanned
    before = said(flexible)
    with as_system():
        line = BookingEvent.objects.get(booking=flexible, kind="queued")
    assert (line.sentence, "starts" in line.detail) == ("Waiting, without a planned start.", False)
    # The planned start without proof is not announced again as days pass.
    plant.later(timedelta(days=3))
    assert (fresh(flexible).state, said(flexible)) == (State.QUEUED, before)
    with operator_tx():
        node = Node.objects.get(name=NAME)
        node_approve(operator=operator, node=node, now=plant.now)
    plant.later(timedelta(seconds=5))
    assert fresh(flexible).state == State.ACTIVE
    nothing_is_broken()
