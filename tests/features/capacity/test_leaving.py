"""A provider's notice: the machine takes no more work, and what runs there is saved and paused in time."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from allocation.features.capacity.models import CapacityMachine, CapacityPlan
from allocation.models import Allocation, Booking, BookingEvent, Gpu, Node, Pause
from allocation.rules.states import State
from allocation.services.decide.invariants import _CHECKS, _violations
from allocation.services.record.open_pauses import pauses_unneeded
from allocation.services.runs.end import allocation_empty
from allocation.services.runs.pause_choices import more_time_refusal
from tenants.access import Actor
from tenants.models import Role, Tier
from tests.builders import a_member, an_actor
from tests.builders_allocation import HOUR, NOW, Lab, an_allocation
from tests.features.capacity.builders import FakeCloud, joined, machines, providers_file, states, turned
from tests.features.capacity.test_turns import came, planned, queued
from tests.roles import as_owner, as_system

MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)
SEEN = NOW + 5 * MINUTE


@pytest.fixture
def cloud(settings: Any, tmp_path: Path) -> FakeCloud:  # noqa: ANN401 (pytest-django's)
    providers_file(settings, tmp_path)
    return FakeCloud()


@pytest.fixture
def lead(lab: Lab) -> Actor:
    return an_actor(a_member(lab.project, Role.LEAD))


@pytest.fixture
def running(cloud: FakeCloud, lab: Lab, lead: Actor) -> tuple[Booking, CapacityPlan, CapacityMachine]:
    """A booking that runs on a machine of its plan for an hour, in a tier with a grace of three minutes."""
    booking = queued(lab)
    plan, machine = came(cloud, lab, lead)
    with as_owner():
        Tier.objects.update(grace_seconds=180, pause_method="suspend")
    with as_system():
        gpu = Gpu.objects.filter(node__name=machine.node).order_by("index").first()
        assert gpu is not None
        row = Booking.objects.filter(id=booking.id)
        row.update(state=State.SCHEDULED)
        row.update(state=State.STARTING)
        times = {"planned_starts": NOW + MINUTE, "planned_ends": NOW + HOUR}
        row.update(state=State.ACTIVE, ready_at=NOW + MINUTE, **times)
    an_allocation(booking, gpu, starts=NOW + MINUTE, ends=NOW + HOUR, state="active")
    return booking, plan, machine


def noticed(cloud: FakeCloud, leaves: datetime) -> None:
    cloud.machines = [replace(each, leaves=leaves) for each in cloud.machines]


def fresh(booking: Booking) -> Booking:
    with as_system():
        return Booking.objects.select_related("tier").get(id=booking.id)


def events(booking: Booking, kind: str) -> list[BookingEvent]:
    with as_system():
        return list(BookingEvent.objects.filter(booking=booking, kind=kind))


def test_owners_are_notified_at_once_and_paused_when_the_grace_begins(
    cloud: FakeCloud, running: tuple[Booking, CapacityPlan, CapacityMachine]
) -> None:
    """Notice comes 20 minutes before. The run continues until its grace period has to begin."""
    booking, _, machine = running
    leaves = SEEN + 20 * MINUTE
    noticed(cloud, leaves)
    turned(cloud, SEEN)
    assert states() == ["draining"]
    assert (machines()[0].leaves, machines()[0].note) == (leaves, "Its provider takes it back.")
    with as_system():
        node = Node.objects.get(name=machine.node)
    assert (node.state, node.drain_by) == (Node.State.DRAINING, leaves)
    (event,) = events(booking, "leave_by")
    assert event.sentence.startswith(f"The provider of {machine.node} takes it back.")
    assert event.detail["until"] == leaves.isoformat()
    begins = leaves - 15 * SECOND - 3 * MINUTE - 10 * SECOND
    turned(cloud, begins - SECOND)
    assert fresh(booking).state == State.ACTIVE
    turned(cloud, begins)
    turned(cloud, begins + 30 * SECOND)
    assert (fresh(booking).state, fresh(booking).is_drained) == (State.PAUSING, False)
    assert len(events(booking, "leave_by")) == 1
    with as_system():
        (pause,) = Pause.objects.all()
        (row,) = Allocation.objects.filter(booking=booking)
    assert (pause.rule, pause.deadline, pause.method) == ("R175", leaves - 15 * SECOND, "stop")
    assert (pause.sentence, pause.relation) == (f"The provider of {machine.node} takes it back.", "")
    assert row.period.upper == pause.deadline


def test_nothing_withdraws_the_pause_and_it_leads_to_other_gpus(
    cloud: FakeCloud, running: tuple[Booking, CapacityPlan, CapacityMachine]
) -> None:
    booking, _, _ = running
    noticed(cloud, SEEN + 2 * MINUTE)
    turned(cloud, SEEN)
    with as_system():
        (pause,) = Pause.objects.all()
        assert not pauses_unneeded(SEEN + SECOND).exists()
        refusal = more_time_refusal(Tier(name="x", more_times=3), pause)
        assert refusal is not None
        assert refusal.code == "machine_can_not_wait"
        allocation_empty(Allocation.objects.get(booking=booking).id, pause.deadline)
    assert fresh(booking).state == State.PAUSED
    turned(cloud, pause.deadline + SECOND)
    assert states() == ["releasing"]
    turned(cloud, pause.deadline + 10 * SECOND)
    assert (states(), len(cloud.machines)) == (["released"], 0)
    # It waits for other GPUs with what is left of its time.
    found = fresh(booking)
    assert (found.state, found.pool, found.planned_starts) == (State.PAUSED, "", None)
    with as_owner():
        assert [each for check in _CHECKS if check.promise == "P12" for each in _violations(check)] == []


def test_the_plan_rents_another_machine_for_it(
    cloud: FakeCloud, running: tuple[Booking, CapacityPlan, CapacityMachine]
) -> None:
    """Work that others paused stays where it is: its memory may be on own GPUs."""
    booking, plan, _ = running
    noticed(cloud, SEEN + 2 * MINUTE)
    turned(cloud, SEEN)
    with as_system():
        (pause,) = Pause.objects.all()
        allocation_empty(Allocation.objects.get(booking=booking).id, pause.deadline)
    for second in (1, 10):
        turned(cloud, pause.deadline + second * SECOND)
    with as_owner():
        Pause.objects.update(rule="R7")
    turned(cloud, pause.deadline + 20 * SECOND)
    assert states() == ["released"]
    with as_owner():
        Pause.objects.update(rule="R175")
    later = pause.deadline + 30 * SECOND
    turned(cloud, later)
    assert states() == ["released", "booting"]
    joined(cloud, machines()[1], later + MINUTE)
    turned(cloud, later + MINUTE)
    assert states() == ["released", "ready"]
    assert (fresh(booking).state, fresh(booking).pool) == (State.PAUSED, plan.pool)


def test_a_short_notice_leaves_what_time_there_is(
    cloud: FakeCloud, running: tuple[Booking, CapacityPlan, CapacityMachine]
) -> None:
    booking, _, _ = running
    noticed(cloud, SEEN + 30 * SECOND)
    turned(cloud, SEEN)
    assert fresh(booking).state == State.PAUSING
    with as_system():
        (pause,) = Pause.objects.all()
    assert (pause.deadline, pause.grace_seconds) == (SEEN + 15 * SECOND, 15)
    # The provider is faster than the devices are cleared: the booking is paused, and nothing is left behind.
    cloud.machines.clear()
    turned(cloud, SEEN + 20 * SECOND)
    assert states() == ["lost"]
    assert machines()[0].note == "Its provider took it back."
    assert (fresh(booking).state, fresh(booking).pool) == (State.PAUSED, "")
    with as_system():
        assert not Allocation.objects.filter(booking=booking, state__in=Allocation.LIVE).exists()


def test_a_notice_that_is_over_pauses_at_once(
    cloud: FakeCloud, running: tuple[Booking, CapacityPlan, CapacityMachine]
) -> None:
    booking, _, _ = running
    noticed(cloud, SEEN - MINUTE)
    turned(cloud, SEEN)
    assert fresh(booking).state == State.PAUSING


def test_a_run_that_ends_before_is_not_paused(
    cloud: FakeCloud, running: tuple[Booking, CapacityPlan, CapacityMachine]
) -> None:
    booking, _, _ = running
    noticed(cloud, NOW + HOUR + SECOND)
    turned(cloud, NOW + 59 * MINUTE)
    assert (states(), fresh(booking).state) == (["draining"], State.ACTIVE)
    assert events(booking, "leave_by") == []


def test_a_notice_that_comes_sooner_counts_and_a_later_one_does_not(
    cloud: FakeCloud, running: tuple[Booking, CapacityPlan, CapacityMachine]
) -> None:
    booking, _, machine = running
    first = SEEN + 40 * MINUTE
    for leaves in (first, first + MINUTE, first - 10 * MINUTE):
        noticed(cloud, leaves)
        turned(cloud, SEEN)
    assert machines()[0].leaves == first - 10 * MINUTE
    with as_system():
        assert Node.objects.get(name=machine.node).drain_by == first - 10 * MINUTE
    assert len(events(booking, "leave_by")) == 2


def test_a_machine_that_boots_is_given_up(cloud: FakeCloud, lab: Lab, lead: Actor) -> None:
    planned(lab, lead)
    turned(cloud, NOW)
    noticed(cloud, NOW + 2 * MINUTE)
    turned(cloud, NOW + MINUTE)
    assert (states(), machines()[0].note) == (["draining"], "Its provider takes it back.")
