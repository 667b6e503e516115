"""A notice is taken back when the claim that it was for goes away, as long as it is only words."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import IntegrityError, transaction

from allocation.models import Booking, Pause
from allocation.services.bookings.release import booking_cancel
from allocation.services.plans.assignments import PlanStale
from allocation.services.record.costs import booking_cost
from allocation.services.record.open_pauses import NOTIFY_MARGIN, pauses_unneeded
from allocation.services.runs.pause_choices import booking_saved, more_time_request
from allocation.services.snapshot.quota_rows import used_read
from allocation.services.snapshot.snapshot import CLEARING_SECONDS, seconds
from billing.rates import Spell
from solver import Assign, Plan
from tenants.models import Tier
from tests.builders import a_tier
from tests.builders_allocation import HOUR, Lab, a_lab, an_ask
from tests.roles import as_system
from tests.services.pause_plans import GRACE, pause_of, pause_plan, places_on, plan_written
from tests.services.paused import (
    all_is_well,
    desired,
    document,
    money_of,
    noticed,
    requested,
    running,
    saved,
    story,
)
from tests.services.plant import Plant, fresh

pytestmark = pytest.mark.turn

MINUTE = timedelta(minutes=1)
CLEARING = timedelta(seconds=CLEARING_SECONDS)


@pytest.fixture
def lab(plant: Plant) -> Lab:
    lab = a_lab("helix", gpus=0)
    a_tier("standard", pausable=True)
    return lab


@pytest.fixture
def rival(plant: Plant, lab: Lab) -> Lab:
    return a_lab("rivals", gpus=0)


def cancelled(plant: Plant, rival: Lab, strong: Booking) -> None:
    """Cancels the preemptor and runs a round."""
    with as_system():
        booking_cancel(actor=rival.actor, booking=fresh(strong), now=plant.now)
    plant.round()


def emptied(plant: Plant) -> set[bool]:
    """Whether the node has ended what it holds."""
    return {record.emptied for record in plant.node.store.held.values()}


def told_after_half_an_hour(plant: Plant, lab: Lab, rival: Lab) -> tuple[Booking, Booking]:
    """A booking of two hours that is to go, and the claim that it is to go for."""
    booking = running(plant, lab)
    plant.later(30 * MINUTE)
    ask = an_ask(2, hours=1)
    strong = noticed(plant, booking, rival, resume=plant.now + 3 * HOUR, ask=ask)
    plant.later(MINUTE)
    assert fresh(booking).state == "pausing"
    return booking, strong


def test_it_runs_on_to_its_end_and_pays_for_all_of_it(plant: Plant, lab: Lab, rival: Lab) -> None:
    booking, strong = told_after_half_an_hour(plant, lab, rival)
    ends = pause_of(booking).ends_before
    assert any(each.name == "notice.json" for each in (plant.folder / "bookings").rglob("*"))
    cancelled(plant, rival, strong)
    now = fresh(booking)
    assert (now.state, now.pause_count, now.notified_at) == ("active", 0, None)
    assert (now.planned_ends, now.planned_places) == (ends, [])
    assert story(booking)[-1] == "pause_withdrawn"
    pause = pause_of(booking)
    assert (pause.withdrawn, pause.ended_at, pause.emptied_at) == (True, plant.now, None)
    # The node and its owner's programs are notified too.
    assert {(each.state, each.notice) for each in desired(plant)} == {("run", None)}
    assert not any(each.name == "notice.json" for each in (plant.folder / "bookings").rglob("*"))
    assert all_is_well()
    plant.later_until(ends)
    plant.later(timedelta(seconds=1))
    over = fresh(booking)
    assert (over.state, over.charged) == ("ended", booking_cost(over, Spell(7200)))
    assert money_of(over) == (Decimal(0), over.charged)
    with as_system():
        used = [each for each in used_read(plant.now) if each.tenant == str(lab.tenant_id)]
    assert sum(each.unit_seconds for each in used) == 2 * 56_000 * 7200
    assert all_is_well()


@pytest.mark.long
def test_once_all_is_saved_it_goes_through(plant: Plant, lab: Lab, rival: Lab) -> None:
    booking, strong = told_after_half_an_hour(plant, lab, rival)
    with as_system():
        booking_saved(actor=lab.actor, booking=fresh(booking), now=plant.now)
    cancelled(plant, rival, strong)
    plant.later(CLEARING)
    assert "pause_withdrawn" not in story(booking)
    assert pause_of(booking).emptied_at is not None
    # Nothing is in its way, so it resumes at once.
    assert fresh(booking).state == "active"
    assert all_is_well()


@pytest.mark.long
def test_a_save_that_was_on_its_way_ends_no_run_that_goes_on(plant: Plant, lab: Lab, rival: Lab) -> None:
    booking, strong = told_after_half_an_hour(plant, lab, rival)
    with as_system():
        booking_cancel(actor=rival.actor, booking=fresh(strong), now=plant.now)
    plant.cycle()
    saved(plant, booking)
    assert (fresh(booking).state, fresh(booking).saved_at) == ("active", plant.now)
    plant.later(GRACE)
    assert fresh(booking).state == "active"
    assert all_is_well()


@pytest.mark.long
def test_a_part_of_a_gang_that_is_saved_is_no_answer(plant: Plant, lab: Lab, rival: Lab) -> None:
    booking, strong = told_after_half_an_hour(plant, lab, rival)
    saved(plant, booking, members=1)
    cancelled(plant, rival, strong)
    assert fresh(booking).state == "active"


def test_too_near_its_deadline_it_goes_through(plant: Plant, lab: Lab, rival: Lab) -> None:
    booking, strong = told_after_half_an_hour(plant, lab, rival)
    plant.later_until(pause_of(booking).deadline - NOTIFY_MARGIN)
    cancelled(plant, rival, strong)
    assert fresh(booking).state == "pausing"
    plant.later(NOTIFY_MARGIN + CLEARING)
    assert pause_of(booking).emptied_at is not None
    assert all_is_well()


def test_a_node_that_does_not_hear_of_it_hands_the_device_over_again(
    plant: Plant, lab: Lab, rival: Lab
) -> None:
    """Cut off, it ends the run at the deadline that it knows; the place stays the booking's."""
    booking, strong = told_after_half_an_hour(plant, lab, rival)
    plant.line.can_receive = False
    cancelled(plant, rival, strong)
    plant.later(GRACE)
    assert fresh(booking).state == "active"
    assert emptied(plant) == {True}
    plant.line.can_receive = True
    plant.later(CLEARING)
    assert fresh(booking).state == "active"
    assert emptied(plant) == {False}
    assert all_is_well()


def test_it_can_be_told_again_for_the_next_claim(plant: Plant, lab: Lab, rival: Lab) -> None:
    booking, strong = told_after_half_an_hour(plant, lab, rival)
    with as_system():
        Tier.objects.update(max_pauses=1)
    cancelled(plant, rival, strong)
    again = noticed(plant, booking, rival)
    assert (pause_of(booking).number, fresh(booking).pause_count) == (2, 1)
    plant.later(GRACE)
    assert (fresh(booking).state, fresh(again).state) == ("paused", "active")
    # Billed once, from its start to the second notice.
    assert pause_of(booking).charged + pause_of(booking).credit == booking_cost(booking, Spell(31 * 60))
    assert all_is_well()


@pytest.mark.long
def test_a_request_for_more_time_goes_with_the_notice(plant: Plant, lab: Lab, rival: Lab) -> None:
    booking, strong = told_after_half_an_hour(plant, lab, rival)
    with as_system():
        Tier.objects.update(more_times=1, more_time_seconds=300)
        booking_cancel(actor=rival.actor, booking=fresh(strong), now=plant.now)
        more_time_request(actor=lab.actor, booking=fresh(booking), now=plant.now)
    plant.round()
    assert fresh(booking).state == "active"
    assert pause_of(booking).more_asked_at is None
    assert all_is_well()


@pytest.mark.long
def test_a_claim_that_starts_elsewhere_before_needs_it_no_more(plant: Plant, lab: Lab, rival: Lab) -> None:
    small = running(plant, lab, an_ask(1))
    other = running(plant, rival, an_ask(1))
    strong = requested(plant, rival, an_ask(1, hours=1))
    with as_system():
        # It waits for the room with a planned start, so that it may begin sooner elsewhere.
        plan = pause_plan(small, strong, plant.now + GRACE, is_placed=False)
    plan_written(plan, plant.now)
    plant.later(MINUTE)
    assert (fresh(small).state, fresh(strong).state) == ("pausing", "queued")
    with as_system():
        booking_cancel(actor=rival.actor, booking=fresh(other), now=plant.now)
    plant.later(CLEARING)
    plant.later(CLEARING)
    assert (fresh(small).state, fresh(strong).state) == ("active", "active")
    assert pause_of(small).withdrawn
    assert all_is_well()


def test_a_notice_stays_while_its_claim_has_only_what_it_is_to_leave_itself(
    plant: Plant, lab: Lab, rival: Lab
) -> None:
    """The claim has notice too, and is to resume where the other one is."""
    small, claim = running(plant, lab, an_ask(1)), running(plant, rival, an_ask(1))
    strong = requested(plant, rival, an_ask(1, hours=1))
    with as_system():
        first = pause_plan(claim, strong, plant.now + GRACE)
        second = pause_plan(small, claim, plant.now + GRACE, is_placed=False)
    plan_written(replace(first, waits=second.waits), plant.now)
    plan_written(replace(second, waits=()), plant.now)
    with as_system():
        assert fresh(claim).state == fresh(small).state == "pausing"
        assert list(pauses_unneeded(plant.now)) == []


def test_a_window_that_was_given_its_place_since_moves_to_a_free_gpu(
    plant: Plant, lab: Lab, rival: Lab
) -> None:
    small, other = running(plant, lab, an_ask(1)), running(plant, rival, an_ask(1, hours=1))
    strong = noticed(plant, small, rival, ask=an_ask(1, hours=1))
    window = requested(plant, rival, an_ask(1, hours=0.25, starts=plant.now + 90 * MINUTE))
    with as_system():
        place, starts = places_on(small)[0], seconds(plant.now + 90 * MINUTE)
    given = Assign(str(window.id), "h100", (place,), starts, starts + 900)
    plan_written(Plan((given,), (), (), ()), plant.now)
    assert (fresh(small).state, fresh(window).state) == ("pausing", "scheduled")
    cancelled(plant, rival, strong)
    assert (fresh(small).state, fresh(window).state) == ("active", "scheduled")
    with as_system():
        assert places_on(window)[0].gpu == places_on(other)[0].gpu != places_on(small)[0].gpu
    planned = fresh(window).planned_starts
    assert planned is not None
    assert seconds(planned) == starts
    assert all_is_well()


def test_the_database_takes_no_notice_back_that_was_answered(plant: Plant, lab: Lab, rival: Lab) -> None:
    booking, _ = told_after_half_an_hour(plant, lab, rival)
    pause = pause_of(booking)
    for wrong in (
        {"acknowledged_at": plant.now, "ended_at": plant.now},
        {"ended_at": None},
        {"ended_at": pause.deadline},
    ):
        with (
            as_system(),
            pytest.raises(IntegrityError, match="pause_withdrawn_in_time"),
            transaction.atomic(),
        ):
            Pause.objects.filter(id=pause.id).update(withdrawn=True, **wrong)
    assert document(plant).generation > 0


def test_a_claim_that_is_cancelled_before_the_plan_is_written_gives_no_notice(
    plant: Plant, lab: Lab, rival: Lab
) -> None:
    booking = running(plant, lab)
    strong = requested(plant, rival, an_ask(2))
    with as_system():
        plan = pause_plan(booking, strong, plant.now + GRACE, resume=plant.now + 3 * HOUR)
        booking_cancel(actor=rival.actor, booking=fresh(strong), now=plant.now)
    with pytest.raises(PlanStale):
        plan_written(plan, plant.now)
    plant.cycle()
    assert (fresh(booking).state, "pause_noticed" in story(booking)) == ("active", False)
    assert {(each.state, each.notice) for each in desired(plant)} == {("run", None)}


@pytest.mark.parametrize("seconds_left", [16, 1, 0, -1])
def test_a_pause_whose_claim_is_cancelled_is_withdrawn_or_undone_at_once(
    plant: Plant, lab: Lab, rival: Lab, seconds_left: int
) -> None:
    """In the last 15 s nodes can't be notified any more: it pauses, and resumes where it was."""
    booking, strong = told_after_half_an_hour(plant, lab, rival)
    deadline = pause_of(booking).deadline
    plant.later_until(deadline - timedelta(seconds=seconds_left))
    cancelled(plant, rival, strong)
    while plant.now < deadline + timedelta(seconds=10):
        plant.later(timedelta(seconds=1))
    assert fresh(booking).state == "active"
    assert ("paused" in story(booking)) == (timedelta(seconds=seconds_left) < NOTIFY_MARGIN)
    assert all_is_well()
