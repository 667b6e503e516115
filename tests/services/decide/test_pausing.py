"""Pauses from the notice to the last line of the bill, through the real agent."""

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from allocation.models import Booking
from allocation.services.bookings.change.changes import Patch, booking_patch
from allocation.services.bookings.checks.terms import target_of
from allocation.services.bookings.release import booking_cancel, booking_release
from allocation.services.plans.assignments import PlanStale
from allocation.services.snapshot.quota_rows import used_read
from allocation.services.snapshot.snapshot import CLEARING_SECONDS, seconds, snapshot_take
from solver import Plan, Refuse
from tenants.models import Tier
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.builders import a_tier
from tests.builders_allocation import HOUR, NOW, Lab, a_lab, an_ask
from tests.roles import as_system
from tests.services.pause_plans import GRACE, pause_of, pause_plan, plan_written
from tests.services.paused import (
    all_is_well,
    desired,
    money_of,
    noticed,
    requested,
    running,
    saved,
    story,
)
from tests.services.plant import Plant, fresh, rows_of

pytestmark = pytest.mark.turn

NOTHING = Decimal(0)
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


def test_a_pause_goes_all_the_way_and_the_bill_has_both_runs(plant: Plant, lab: Lab, rival: Lab) -> None:
    booking = running(plant, lab, an_ask(2, hours=2))
    plant.later(30 * MINUTE)
    strong = noticed(plant, booking, rival, ask=an_ask(2, hours=1), resume=NOW + 2 * HOUR)

    deadline = NOW + 40 * MINUTE
    assert_noticed(plant, booking, strong, deadline)
    plant.later_until(deadline - timedelta(seconds=1))
    assert fresh(booking).state == "pausing"
    plant.later_until(deadline)
    assert fresh(strong).state == "active"
    assert_paused_with_the_loss_credited(booking)

    plant.later_until(NOW + 100 * MINUTE)
    assert fresh(strong).state == "ended"
    plant.later(CLEARING)
    booking = fresh(booking)
    assert (booking.state, booking.ready_at) == ("active", plant.now)
    assert pause_of(booking).resumed_at == plant.now
    assert booking.planned_starts is not None
    assert booking.planned_ends == booking.planned_starts + 110 * MINUTE
    assert all_is_well()

    plant.later_until(booking.planned_ends)
    booking = fresh(booking)
    assert (booking.state, booking.charged) == ("ended", Decimal("17.60"))
    assert money_of(booking) == (NOTHING, Decimal("17.60"))
    assert story(booking) == [
        "requested",
        "scheduled",
        "starting",
        "started",
        "pause_noticed",
        "paused",
        "scheduled",
        "starting",
        "resumed",
        "ending",
        "ended",
    ]
    assert all_is_well()


def assert_noticed(plant: Plant, booking: Booking, strong: Booking, deadline: datetime) -> None:
    booking, pause = fresh(booking), pause_of(booking)
    assert (booking.state, pause.deadline) == ("pausing", deadline)
    assert pause.beneficiary_label == ""
    assert pause.cause.beneficiary_id == strong.id
    assert {row.period.upper for row in rows_of(booking)} == {deadline}
    assert [(each.ends, each.notice and each.notice.at) for each in desired(plant)] == [
        (seconds(deadline), seconds(deadline))
    ] * 2
    # The planned start was two o'clock; the next cycle found the end of the stronger claim.
    assert booking.planned_starts == NOW + 100 * MINUTE
    assert all_is_well()


def assert_paused_with_the_loss_credited(booking: Booking) -> None:
    booking, pause = fresh(booking), pause_of(booking)
    # Never saved: the 30 minutes are done again. 2 x 4.80 an hour; 1 h 20 min are left, and they.
    assert (booking.state, pause.lost_seconds, pause.credit_seconds) == ("paused", 1800, 1800)
    assert (pause.charged, pause.credit) == (NOTHING, Decimal("4.80"))
    assert pause.remaining_seconds == 80 * 60 + 1800
    assert (booking.hold_amount, booking.settled) == (Decimal("17.60"), NOTHING)
    assert money_of(booking) == (Decimal("17.60"), NOTHING)
    assert all_is_well()


def test_saving_on_every_member_ends_the_grace_early_and_nothing_is_lost(
    plant: Plant, lab: Lab, rival: Lab
) -> None:
    booking = running(plant, lab)
    plant.later(30 * MINUTE)
    strong = noticed(plant, booking, rival)
    assert fresh(strong).state == "scheduled"
    plant.now += MINUTE
    saved(plant, booking, members=1)
    assert fresh(booking).state == "pausing"
    assert {row.state for row in rows_of(booking)} == {"active"}

    plant.now += MINUTE
    saved(plant, booking)
    assert {row.state for row in rows_of(booking)} == {"releasing"}
    assert {row.period.upper for row in rows_of(booking)} == {plant.now}
    assert pause_of(booking).acknowledged_at == plant.now
    plant.later(timedelta(seconds=5))
    booking, pause = fresh(booking), pause_of(booking)
    assert (pause.lost_seconds, pause.credit_seconds) == (0, 0)
    # Half an hour of two GPUs; the grace costs nothing, and is not given back either.
    assert (pause.charged, pause.remaining_seconds) == (Decimal("4.80"), 88 * 60)
    # Its room was empty eight minutes early, so the stronger claim did not wait for the deadline.
    assert fresh(strong).state == "active"
    assert "moved" in story(strong)
    assert all_is_well()


def test_an_early_start_waits_for_the_proof_of_empty(plant: Plant, lab: Lab, rival: Lab) -> None:
    booking = running(plant, lab)
    plant.later(MINUTE)
    strong = noticed(plant, booking, rival)
    saved(plant, booking)
    plant.now += MINUTE
    plant.cycle()
    assert fresh(strong).state == "scheduled"
    assert fresh(booking).state == "pausing"
    plant.later(timedelta(seconds=1))
    assert fresh(strong).state == "active"
    assert all_is_well()


def test_a_save_before_the_notice_is_no_answer_to_it_but_lowers_what_is_lost(
    plant: Plant, lab: Lab, rival: Lab
) -> None:
    booking = running(plant, lab)
    plant.later(20 * MINUTE)
    # The clock of the node is an hour ahead: the save counts from when it is heard.
    saved(plant, booking, ago=-60 * MINUTE)
    assert fresh(booking).saved_at == plant.now
    plant.later(10 * MINUTE)
    noticed(plant, booking, rival)
    # The same word again, late.
    saved(plant, booking, ago=10 * MINUTE)
    assert pause_of(booking).acknowledged_at is None
    plant.later(GRACE)
    pause = pause_of(booking)
    assert (pause.lost_seconds, pause.credit_seconds) == (600, 600)
    assert pause.charged == Decimal("3.20")


def test_the_credit_is_capped_by_the_tier(plant: Plant, lab: Lab, rival: Lab) -> None:
    with as_system():
        Tier.objects.filter(slug="standard").update(credit_cap_seconds=300)
    booking = running(plant, lab)
    plant.later(30 * MINUTE)
    noticed(plant, booking, rival)
    plant.later(GRACE)
    pause = pause_of(booking)
    assert (pause.lost_seconds, pause.credit_seconds) == (1800, 300)
    assert pause.charged == Decimal("4.00")
    assert pause.remaining_seconds == 80 * 60 + 300


def test_a_fixed_window_gets_its_credit_in_money_and_ends_with_its_window(
    plant: Plant, lab: Lab, rival: Lab
) -> None:
    ask = an_ask(2, starts=NOW + MINUTE)
    booking = requested(plant, lab, ask)
    plant.round()
    plant.later_until(NOW + MINUTE)
    assert fresh(booking).state == "active"
    plant.later(30 * MINUTE)
    noticed(plant, booking, rival, ask=an_ask(2, hours=4))
    plant.later(GRACE)
    pause = pause_of(booking)
    assert fresh(booking).state == "paused"
    assert (pause.credit, pause.remaining_seconds) == (Decimal("4.80"), 80 * 60)
    assert all_is_well()
    plant.later_until(NOW + MINUTE + 2 * HOUR)
    booking = fresh(booking)
    assert (booking.state, booking.outcome, booking.charged) == ("ended", "not_resumed", NOTHING)
    assert money_of(booking) == (NOTHING, NOTHING)
    assert pause_of(booking).ended_at == plant.now
    assert all_is_well()


def test_a_paused_booking_without_a_way_on_ends_with_what_its_runs_cost(
    plant: Plant, lab: Lab, rival: Lab
) -> None:
    booking = running(plant, lab)
    plant.later(30 * MINUTE)
    noticed(plant, booking, rival, ask=an_ask(2, hours=4))
    saved(plant, booking)
    plant.later(MINUTE)
    assert fresh(booking).state == "paused"
    plan_written(Plan((), (), (Refuse(str(booking.id), ()),), ()), plant.now)
    booking = fresh(booking)
    assert (booking.state, booking.outcome) == ("ended", "not_resumed")
    assert money_of(booking) == (NOTHING, Decimal("4.80"))
    assert booking.charged == Decimal("4.80")
    assert all_is_well()


@pytest.mark.parametrize("act", [booking_cancel, booking_release])
def test_who_gives_it_back_while_it_pauses_pays_until_the_notice(
    plant: Plant, lab: Lab, rival: Lab, act: object
) -> None:
    booking = running(plant, lab)
    plant.later(30 * MINUTE)
    noticed(plant, booking, rival)
    plant.now += 5 * MINUTE
    with as_system():
        assert callable(act)
        act(actor=lab.actor, booking=booking, now=plant.now)
    assert fresh(booking).state == "ending"
    plant.later(MINUTE)
    booking = fresh(booking)
    assert (booking.state, booking.charged) == ("ended", Decimal("4.80"))
    assert pause_of(booking).ended_at is not None
    assert all_is_well()


@pytest.mark.parametrize(("act", "state"), [("cancel", "cancelled"), ("release", "ended")])
def test_what_is_paused_can_be_given_up_at_once(
    plant: Plant, lab: Lab, rival: Lab, act: str, state: str
) -> None:
    booking = running(plant, lab)
    plant.later(30 * MINUTE)
    noticed(plant, booking, rival)
    saved(plant, booking)
    plant.later(MINUTE)
    do = booking_cancel if act == "cancel" else booking_release
    with as_system():
        do(actor=lab.actor, booking=booking, now=plant.now)
    booking = fresh(booking)
    assert (booking.state, booking.charged) == (state, Decimal("4.80"))
    assert money_of(booking) == (NOTHING, Decimal("4.80"))
    assert all_is_well()


def shorter(
    plant: Plant,
    lab: Lab,
    booking: Booking,
    seconds: int,
    **more: Any,  # noqa: ANN401  fields of a request
) -> str:
    """Asks for another length; the code of the refusal, or nothing."""
    ask = replace(target_of(fresh(booking)).ask, duration=seconds, **more)
    patch = Patch(ask=ask)
    with tenant_tx(lab.tenant_id):
        try:
            booking_patch(actor=lab.actor, booking=booking, patch=patch, revision=None, now=plant.now)
        except Refused as refused:
            return refused.code
    return ""


def tier_changed(plant: Plant, lab: Lab, booking: Booking, tier: str) -> str:
    """Asks for another tier; the code of the refusal, or nothing."""
    with tenant_tx(lab.tenant_id):
        try:
            booking_patch(
                actor=lab.actor,
                booking=booking,
                patch=Patch(tier=tier),
                revision=None,
                now=plant.now,
            )
        except Refused as refused:
            return refused.code
    return ""


def test_the_rest_of_a_paused_booking_is_made_shorter_but_not_what_it_repeats(
    plant: Plant, lab: Lab, rival: Lab
) -> None:
    booking = running(plant, lab, an_ask(2, hours=3))
    plant.later(30 * MINUTE)
    noticed(plant, booking, rival, ask=an_ask(2, hours=1))
    a_tier("prem", priority=90)
    assert tier_changed(plant, lab, booking, "prem") == "tier_begun"
    saved(plant, booking)
    plant.later(MINUTE)
    before = fresh(booking)
    assert before.state == "paused"
    assert tier_changed(plant, lab, booking, "prem") == "tier_begun"

    assert shorter(plant, lab, booking, 4 * 3600) == "extension_while_paused"
    assert shorter(plant, lab, booking, 3600, count=1) == "extension_while_paused"
    for redo, answer in ((5400, "redo_left"), (0, "")):
        with as_system():
            Booking.objects.filter(id=booking.id).update(redo_seconds=redo)
        assert shorter(plant, lab, booking, 3600) == answer
    after = fresh(booking)
    assert after.hold_amount - after.settled == Decimal("9.60")
    assert money_of(booking)[0] == Decimal("9.60") < before.hold_amount
    plant.later(HOUR)
    plant.later(CLEARING)
    again = fresh(booking)
    assert (again.state, again.planned_ends) == ("active", (again.ready_at or NOW) + HOUR)
    plant.later_until(again.planned_ends or NOW)
    assert fresh(booking).charged == after.settled + Decimal("9.60")
    assert all_is_well()


def test_a_paused_fixed_window_ends_earlier_and_resumes_until_then(
    plant: Plant, lab: Lab, rival: Lab
) -> None:
    begins = NOW + MINUTE
    booking = requested(plant, lab, an_ask(2, starts=begins, hours=3))
    plant.round()
    plant.later_until(begins)
    plant.later(30 * MINUTE)
    noticed(plant, booking, rival, ask=an_ask(2, hours=1))
    saved(plant, booking)
    plant.later(MINUTE)
    before, pause = fresh(booking), pause_of(booking)
    assert (before.state, before.duration_seconds) == ("paused", 3 * 3600)
    assert shorter(plant, lab, booking, 2 * 3600, count=1) == "extension_while_paused"
    for length, redo, answer in (
        (4 * 3600, 0, "extension_while_paused"),
        (31 * 60, 0, "rest_too_short"),
        (2 * 3600, 2 * 3600, "redo_left"),
        (2 * 3600, 0, ""),
    ):
        with as_system():
            Booking.objects.filter(id=booking.id).update(redo_seconds=redo)
        assert shorter(plant, lab, booking, length) == answer
    after, cut = fresh(booking), pause_of(booking)
    # An hour of two GPUs less.
    assert before.hold_amount - after.hold_amount == Decimal("9.60")
    assert money_of(booking)[0] == after.hold_amount - after.settled
    assert (pause.remaining_seconds or 0) - (cut.remaining_seconds or 0) == 3600
    assert cut.ends_before == begins + 2 * HOUR
    assert all_is_well()
    plant.later(HOUR)
    plant.later(CLEARING)
    again, ends = fresh(booking), begins + 2 * HOUR
    assert (again.state, again.planned_ends) == ("active", ends)
    assert {row.period.upper for row in rows_of(booking) if row.state == "active"} == {ends}
    plant.later_until(ends)
    over = fresh(booking)
    assert over.settled < (over.charged or NOTHING) <= after.hold_amount
    assert all_is_well()


@pytest.mark.long
def test_more_pauses_than_one_add_up(plant: Plant, lab: Lab, rival: Lab) -> None:
    booking = running(plant, lab, an_ask(2, hours=3))
    for number in (1, 2):
        plant.later(30 * MINUTE)
        strong = noticed(plant, booking, rival, ask=an_ask(2, hours=1))
        plant.now += MINUTE
        saved(plant, booking)
        plant.later(MINUTE)
        assert (fresh(booking).state, fresh(strong).state) == ("paused", "active")
        plant.later(HOUR)
        plant.later(CLEARING)
        assert fresh(booking).state == "active"
        assert pause_of(booking).number == number
    booking = fresh(booking)
    assert booking.ready_at is not None
    assert booking.planned_ends is not None
    # Twice half an hour was used, a minute of grace each time is gone; the rest runs now.
    assert booking.settled == Decimal("9.60")
    assert booking.planned_ends == booking.ready_at + timedelta(minutes=180 - 62)
    assert all_is_well()
    with as_system():
        used = [each for each in used_read(plant.now) if each.tenant == str(lab.tenant_id)]
    assert sum(each.unit_seconds for each in used) == 2 * 56_000 * 3600
    plant.later_until(booking.planned_ends)
    booking = fresh(booking)
    assert (booking.state, booking.charged) == ("ended", Decimal("9.60") * 178 / 60)
    assert all_is_well()


@pytest.mark.long
def test_the_solver_hears_what_a_pausing_and_a_paused_booking_wants(
    plant: Plant, lab: Lab, rival: Lab
) -> None:
    booking = running(plant, lab)
    plant.later(30 * MINUTE)
    with as_system():
        (held, _) = snapshot_take(plant.now).held
    assert (held.since, held.pausing, held.pauses) == (seconds(NOW), False, 0)
    noticed(plant, booking, rival, ask=an_ask(2, hours=1))
    with as_system():
        snapshot = snapshot_take(plant.now)
    (request,) = [each for each in snapshot.requests if each.booking == str(booking.id)]
    assert (request.paused, request.pauses, request.duration) == (True, 1, 80 * 60)
    assert request.earliest == seconds(NOW + 40 * MINUTE)
    assert {each.pausing for each in snapshot.held if each.booking == str(booking.id)} == {True}
    (tier,) = snapshot.tiers
    assert (tier.grace, tier.priority, tier.pauses) == (600, 50, None)
    plant.later(GRACE)
    with as_system():
        snapshot = snapshot_take(plant.now)
    (request,) = snapshot.requests
    assert (request.paused, request.duration, request.earliest) == (
        True,
        110 * 60,
        seconds(plant.now),
    )


def test_a_notice_for_what_no_longer_runs_is_stale_and_nothing_is_written(
    plant: Plant, lab: Lab, rival: Lab
) -> None:
    booking = running(plant, lab)
    strong = requested(plant, rival, an_ask(2))
    with as_system():
        plan = pause_plan(booking, strong, plant.now + GRACE)
        booking_release(actor=lab.actor, booking=booking, now=plant.now)
    with pytest.raises(PlanStale):
        plan_written(plan, plant.now)
    assert fresh(strong).state == "requested"
    assert fresh(booking).state == "ending"
    assert all_is_well()


def test_a_grace_shorter_than_the_tiers_is_refused_by_the_database(
    plant: Plant, lab: Lab, rival: Lab
) -> None:
    booking = running(plant, lab)
    strong = requested(plant, rival, an_ask(2))
    with as_system():
        plan = pause_plan(booking, strong, plant.now + GRACE - timedelta(seconds=1))
    with pytest.raises(Exception, match="pause_grace_kept"):
        plan_written(plan, plant.now)
    assert fresh(booking).state == "active"
