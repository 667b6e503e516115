"""Runs that hardware breaks, before or after a pause: what is charged, done again, and counted."""

from datetime import datetime, timedelta
from decimal import Decimal

import pytest

from allocation.models import Booking
from allocation.services.bookings.release import booking_cancel
from allocation.services.record.costs import booking_cost
from allocation.services.runs.end import allocation_saved
from allocation.services.runs.interrupt import Interruption, run_interrupt
from allocation.services.runs.lost_runs import booking_requeue
from allocation.services.snapshot.quota_rows import used_read
from allocation.services.snapshot.snapshot import CLEARING_SECONDS
from allocation.words.events import event_text
from billing.rates import Spell
from tenants.models import Tier
from tests.builders import a_tier
from tests.builders_allocation import HOUR, Lab, a_lab, an_ask
from tests.roles import as_system
from tests.services.broken import fails
from tests.services.pause_plans import GRACE, pause_of
from tests.services.paused import all_is_well, money_of, noticed, running, saved, story
from tests.services.plant import Plant, fresh, rows_of

pytestmark = pytest.mark.turn

MINUTE = timedelta(minutes=1)
CLEARING = timedelta(seconds=CLEARING_SECONDS)
UNITS = 56_000


@pytest.fixture
def lab(plant: Plant) -> Lab:
    lab = a_lab("helix", gpus=0)
    a_tier("standard", pausable=True)
    return lab


@pytest.fixture
def rival(plant: Plant, lab: Lab) -> Lab:
    return a_lab("rivals", gpus=0)


def counted(plant: Plant, lab: Lab) -> int:
    """GPU-seconds that quota counts of the lab."""
    with as_system():
        mine = [each for each in used_read(plant.now) if each.tenant == str(lab.tenant_id)]
    return sum(each.unit_seconds for each in mine) // UNITS


def noticed_after_a_save(plant: Plant, lab: Lab, rival: Lab) -> Booking:
    """Two GPUs for half an hour, saved after twenty minutes, and to be paused."""
    with as_system():
        Tier.objects.filter(slug="standard").update(credit_cap_seconds=60)
    booking = running(plant, lab)
    plant.later(20 * MINUTE)
    saved(plant, booking)
    plant.later(10 * MINUTE)
    noticed(plant, booking, rival, ask=an_ask(2, hours=1))
    return booking


def ran_to_its_end(plant: Plant, booking: Booking, *, earlier: int) -> Booking:
    """It ends by the clock, and is charged once: for `earlier` seconds and its last run."""
    last = fresh(booking)
    assert last.state == "active"
    assert last.ready_at is not None
    assert last.planned_ends is not None
    seconds = int((last.planned_ends - last.ready_at).total_seconds())
    plant.later_until(last.planned_ends)
    plant.later(timedelta(seconds=1))
    over = fresh(booking)
    assert over.state == "ended"
    assert over.charged == booking_cost(over, Spell(earlier + seconds))
    assert money_of(over) == (Decimal(0), over.charged)
    assert all_is_well()
    return over


OFF = Interruption("R62", event_text("node_off", node="n1"))
UNREACHABLE = Interruption("R55", event_text("node_unreachable", node="n1"))


def replaced(plant: Plant, booking: Booking, until: datetime) -> None:
    with as_system():
        assert booking_requeue(fresh(booking), UNREACHABLE, until=until, now=plant.now)
    plant.round()
    plant.later(CLEARING)


def healed(plant: Plant, booking: Booking) -> None:
    with as_system():
        assert run_interrupt(booking.id, OFF, plant.now)
    plant.round()
    plant.later(CLEARING)


def test_what_is_saved_is_charged_and_not_done_again_when_hardware_fails(plant: Plant, lab: Lab) -> None:
    booking = running(plant, lab, an_ask(1))
    plant.later(20 * MINUTE)
    (row,) = rows_of(booking)
    with as_system():
        allocation_saved(row.id, plant.now, plant.now)
    plant.later(10 * MINUTE)
    fails(plant, row.gpu.index, 95)
    again = fresh(booking)
    assert (again.state, again.used_seconds) == ("active", 1200)
    last = rows_of(booking)[-1].period
    assert (last.upper - last.lower).total_seconds() == 7200 - 1200
    assert counted(plant, lab) == 1200
    over = ran_to_its_end(plant, booking, earlier=1200)
    assert over.ready_at is not None
    assert counted(plant, lab) == 1200 + (last.upper - over.ready_at).total_seconds()


def test_the_rest_of_a_fixed_window_is_what_is_left_of_it(plant: Plant, lab: Lab) -> None:
    booking = running(plant, lab, an_ask(1, starts=plant.now))
    ends = fresh(booking).planned_ends
    plant.later(20 * MINUTE)
    (row,) = rows_of(booking)
    with as_system():
        allocation_saved(row.id, plant.now, plant.now)
    plant.later(10 * MINUTE)
    fails(plant, row.gpu.index, 95)
    again = fresh(booking)
    assert (again.state, again.used_seconds, again.planned_ends) == ("active", 1200, ends)
    ran_to_its_end(plant, booking, earlier=1200)


def test_what_pauses_on_lost_hardware_is_paused_at_its_deadline_all_the_same(
    plant: Plant, lab: Lab, rival: Lab
) -> None:
    booking = noticed_after_a_save(plant, lab, rival)
    deadline = pause_of(booking).deadline
    fails(plant, 0, 79)
    assert fresh(booking).state == "pausing"
    assert {row.abandoned for row in rows_of(booking)} == {True}
    assert "broken_off" in story(booking)
    assert all_is_well()
    plant.later_until(deadline)
    pause = pause_of(booking)
    # The lost GPU is never proven empty, and the tier's cap is not for what hardware took.
    assert fresh(booking).state == "paused"
    assert "releasing" in {row.state for row in rows_of(booking)}
    assert (pause.lost_seconds, pause.credit_seconds) == (600, 600)
    assert pause.charged == Decimal("3.20")
    assert pause.remaining_seconds == 7200 - 1200
    assert counted(plant, lab) == 2 * 1200
    assert all_is_well()


def test_hardware_that_is_lost_while_it_is_cleared_keeps_nobody_pausing(
    plant: Plant, lab: Lab, rival: Lab
) -> None:
    booking = noticed_after_a_save(plant, lab, rival)
    saved(plant, booking)
    assert {row.state for row in rows_of(booking)} == {"releasing"}
    fails(plant, 0, 79)
    assert fresh(booking).state == "paused"
    assert pause_of(booking).charged == Decimal("4.80")
    assert all_is_well()


@pytest.mark.long
def test_more_time_on_lost_hardware_is_refused(plant: Plant, lab: Lab, rival: Lab) -> None:
    booking = noticed_after_a_save(plant, lab, rival)
    fails(plant, 0, 79)
    pause = pause_of(booking)
    with as_system():
        pause.more_asked_at = plant.now
        pause.save(update_fields=["more_asked_at"])
    plant.cycle()
    assert story(booking)[-1] == "more_time_refused"


@pytest.mark.long
def test_who_gives_up_what_pauses_on_lost_hardware_pays_what_was_saved(
    plant: Plant, lab: Lab, rival: Lab
) -> None:
    booking = noticed_after_a_save(plant, lab, rival)
    fails(plant, 0, 79)
    with as_system():
        booking_cancel(actor=lab.actor, booking=booking, now=plant.now)
    plant.later(timedelta(seconds=1))
    over = fresh(booking)
    assert (over.state, over.charged) == ("ended", Decimal("3.20"))
    assert all_is_well()


@pytest.mark.parametrize(
    "how",
    [
        "replaced",
        *(pytest.param(how, marks=pytest.mark.long) for how in ("healed", "healed after a save")),
    ],
)
def test_what_was_paused_and_then_begun_anew_is_charged_once(
    plant: Plant, lab: Lab, rival: Lab, how: str
) -> None:
    booking = running(plant, lab)
    plant.later(30 * MINUTE)
    noticed(plant, booking, rival, ask=an_ask(2, hours=1))
    saved(plant, booking)
    plant.later(MINUTE)
    plant.later(HOUR)
    plant.later(CLEARING)
    assert fresh(booking).state == "active"
    assert fresh(booking).settled == Decimal("4.80")
    plant.later(20 * MINUTE)
    if how == "healed after a save":
        saved(plant, booking)
    if how == "replaced":
        replaced(plant, booking, plant.now)
    else:
        healed(plant, booking)
    kept = 0 if how == "healed" else 1200
    assert fresh(booking).used_seconds == kept
    assert counted(plant, lab) == 2 * (1800 + kept)
    ran_to_its_end(plant, booking, earlier=1800 + kept)


@pytest.mark.long
def test_what_was_begun_anew_and_then_paused_is_charged_once(plant: Plant, lab: Lab, rival: Lab) -> None:
    booking = running(plant, lab)
    plant.later(10 * MINUTE)
    replaced(plant, booking, plant.now)
    assert (fresh(booking).state, fresh(booking).used_seconds) == ("active", 600)
    plant.later(20 * MINUTE)
    noticed(plant, booking, rival, ask=an_ask(2, hours=1))
    plant.later(GRACE)
    pause = pause_of(booking)
    # Nothing was saved: the twenty minutes are done again, the ten before are not.
    assert (pause.credit_seconds, pause.charged) == (1200, booking_cost(booking, Spell(600)))
    assert fresh(booking).used_seconds == 0
    # Quota still counts what the pause has billed.
    assert counted(plant, lab) == 2 * 600
    plant.later(HOUR)
    plant.later(CLEARING)
    ran_to_its_end(plant, booking, earlier=600)
    last = fresh(booking).ready_at
    ends = fresh(booking).planned_ends
    assert last is not None
    assert ends is not None
    assert counted(plant, lab) == 2 * (600 + int((ends - last).total_seconds()))


@pytest.mark.long
def test_each_broken_run_counts_for_itself_whatever_comes_between(plant: Plant, lab: Lab, rival: Lab) -> None:
    booking = running(plant, lab)
    plant.later(10 * MINUTE)
    replaced(plant, booking, plant.now)
    plant.later(20 * MINUTE)
    noticed(plant, booking, rival, ask=an_ask(2, hours=1))
    plant.later(GRACE)
    plant.later(HOUR)
    plant.later(CLEARING)
    plant.later(5 * MINUTE)
    replaced(plant, booking, plant.now)
    assert fresh(booking).used_seconds == 300
    assert counted(plant, lab) == 2 * (600 + 300)
