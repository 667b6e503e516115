"""What seeded schedules of faults have found in the services, each as a small case of its own."""

from dataclasses import replace
from datetime import timedelta

import pytest

from allocation.models import Booking, Gpu, Node
from allocation.services.bookings.change.changes import Patch, booking_extend, booking_patch
from allocation.services.bookings.checks.terms import target_of
from allocation.services.bookings.release import booking_cancel, booking_release
from allocation.services.publish.desired import desired_documents
from allocation.services.record.costs import run_is_broken
from allocation.services.runs.interrupt import Interruption, run_interrupt
from allocation.services.snapshot.snapshot import snapshot_take
from allocation.words.events import event_text
from solver import Cooling, Policy
from tenants.platform.errors import Refused
from tests.builders import a_tier
from tests.builders_allocation import (
    HOUR,
    NOW,
    Lab,
    a_booking,
    a_lab,
    a_node,
    an_allocation,
    an_ask,
)
from tests.roles import as_system
from tests.services.broken import fails
from tests.services.pause_plans import GRACE
from tests.services.paused import all_is_well, noticed, on_gpus_of, running, saved
from tests.services.plant import NAME, Plant, fresh, rows_of

pytestmark = pytest.mark.turn

MINUTE = timedelta(minutes=1)


@pytest.fixture
def lab(plant: Plant) -> Lab:
    lab = a_lab("helix", gpus=0)
    a_tier("standard", pausable=True)
    return lab


@pytest.fixture
def rival(plant: Plant, lab: Lab) -> Lab:
    return a_lab("rivals", gpus=0)


def since_of(plant: Plant) -> list[int | None]:
    with as_system():
        return [held.since for held in snapshot_take(plant.now).held if held.started]


def test_what_is_being_given_back_on_a_silent_node_is_nobody_to_pause(plant: Plant, lab: Lab) -> None:
    """A plan that pauses it can't be written, and everything else in it was dropped too."""
    booking = running(plant, lab)
    assert None not in since_of(plant)
    with as_system():
        booking_release(actor=lab.actor, booking=booking, now=plant.now)
    plant.cycle()
    assert fresh(booking).state == "ending"
    assert since_of(plant) == [None, None]


def test_what_a_broken_run_has_left_behind_is_nobody_to_pause(plant: Plant, lab: Lab) -> None:
    booking = running(plant, lab, an_ask(1))
    with as_system():
        run_interrupt(booking.id, Interruption("R62", event_text("node_off", node="n1")), plant.now)
        left = [held for held in snapshot_take(plant.now).held if held.booking.startswith("left")]
    assert [held.since for held in left] == [None]


def test_what_a_paused_booking_left_on_dead_hardware_is_not_in_its_way(
    plant: Plant, lab: Lab, rival: Lab
) -> None:
    booking = running(plant, lab, an_ask(1))
    plant.later(MINUTE)
    noticed(plant, booking, rival, ask=an_ask(1, hours=1))
    (row,) = rows_of(booking)
    fails(plant, row.gpu.index, 79)
    plant.later_until(plant.now + GRACE + 2 * HOUR)
    assert [each.abandoned for each in rows_of(booking)][:1] == [True]
    assert fresh(booking).state == "active"
    assert all_is_well()


def test_hardware_that_fails_in_the_instant_of_the_start_breaks_that_run() -> None:
    """It was taken for whole, and the cycle failed each time because a row had ended."""
    assert run_is_broken(Booking(ready_at=NOW, hardware_lost_at=NOW, notified_at=NOW))
    before = Booking(ready_at=NOW, hardware_lost_at=NOW - MINUTE, notified_at=NOW)
    assert not run_is_broken(before)


def test_a_booking_for_which_others_leave_can_only_be_made_smaller(
    plant: Plant, lab: Lab, rival: Lab
) -> None:
    booking = running(plant, lab, an_ask(1))
    plant.later(MINUTE)
    strong = fresh(noticed(plant, booking, rival, ask=on_gpus_of(booking, an_ask(1))))
    assert strong.state == "scheduled"
    assert strong.planned_ends is not None
    later, earlier = (strong.planned_ends + step for step in (HOUR, -HOUR))
    with as_system(), pytest.raises(Refused) as refused:
        booking_extend(actor=rival.actor, booking=strong, until=later, now=plant.now)
    assert (refused.value.code, refused.value.rule) == ("change_awaited", "R90")
    ask = target_of(strong).ask
    patch = Patch(ask=replace(ask, duration=ask.duration - 3600))
    with as_system():
        booking_patch(actor=rival.actor, booking=strong, patch=patch, revision=1, now=plant.now)
    saved(plant, booking)
    plant.later(timedelta(seconds=5))

    strong = fresh(strong)
    assert strong.state == "active"
    assert strong.planned_starts is not None
    assert strong.planned_ends == strong.planned_starts + HOUR
    assert earlier > strong.planned_starts


def test_the_members_of_a_gang_that_goes_on_are_those_of_this_run(plant: Plant, lab: Lab) -> None:
    with as_system():
        here = Gpu.objects.filter(node__name=NAME).first()
    there = a_node("gpu-b1-01", gpus=1)
    with as_system():
        second = Gpu.objects.get(node=there)
    assert here is not None
    gang = a_booking(lab.project, lab.actor.user_id, state="active", ask=an_ask(2))
    for state, starts in (("ended", plant.now - HOUR), ("active", plant.now)):
        for gpu in (here, second):
            an_allocation(gang, gpu, starts=starts, ends=starts + HOUR, state=state)
    with as_system():
        (found,) = desired_documents([Node.objects.get(name=NAME)], 1)[0].gangs
    assert sorted([(m.node, m.devices) for m in found.members]) == sorted([(NAME, 1), ("gpu-b1-01", 1)])


def test_who_cancels_after_others_had_notice_has_nobody_paused_for_a_while(
    plant: Plant, lab: Lab, rival: Lab
) -> None:
    booking = running(plant, lab, an_ask(1))
    plant.later(MINUTE)
    strong = noticed(plant, booking, rival, ask=on_gpus_of(booking, an_ask(1)))
    quiet = a_booking(rival.project, rival.actor.user_id, state="queued")
    with as_system():
        booking_cancel(actor=rival.actor, booking=quiet, now=plant.now)
        assert snapshot_take(plant.now).cooling == ()
        booking_cancel(actor=rival.actor, booking=fresh(strong), now=plant.now)
        until = plant.now + timedelta(seconds=Policy(1).cool_down)
        assert snapshot_take(plant.now).cooling == (
            Cooling(str(rival.tenant_id), int(until.timestamp()), str(rival.actor.user_id), "h100"),
        )
        assert snapshot_take(until).cooling == ()
    plant.cycle()
    assert all_is_well()
