"""Pauses of chosen bookings by operators: who gets notice, until when, and why others do not."""

from datetime import timedelta

import pytest

from allocation.models import Booking, Pause, Stop
from allocation.queries.bookings.rung_effects import pausable
from allocation.rules.states import State
from allocation.services.operate.bulk import BulkAct, BulkLine, bulk_apply, bulk_preview
from allocation.services.operate.stops import stop_end
from allocation.services.runs.pause_choices import more_time_refusal
from tenants.models import AuditEntry, Tier, User
from tests.builders import a_tier, an_operator
from tests.builders_allocation import HOUR, an_ask
from tests.roles import as_system
from tests.services.decide.test_restraints import is_idle, pausable_lab
from tests.services.paused import all_is_well, money_of, requested, running, story
from tests.services.plant import Plant, fresh

pytestmark = pytest.mark.turn

MINUTE = timedelta(minutes=1)
PAUSE = BulkAct("pause", "A demo needs the GPUs.", HOUR)


@pytest.fixture
def operator(plant: Plant) -> User:
    return an_operator()


def applied(plant: Plant, operator: User, *bookings: Booking) -> list[BulkLine]:
    """The lines of the pause, which are those of its preview."""
    ids = [each.id for each in bookings]
    with as_system():
        seen = bulk_preview(bookings=ids, act=PAUSE, now=plant.now)
        lines = bulk_apply(operator=operator, bookings=ids, act=PAUSE, now=plant.now)
    assert [line.effect for line in seen] == [line.effect for line in lines]
    return lines


def test_what_runs_is_paused_after_its_notice_until_the_stop_is_over(plant: Plant, operator: User) -> None:
    lab = pausable_lab("demo")
    runs = running(plant, lab, an_ask(2))
    plant.later(HOUR / 2)
    [line] = applied(plant, operator, runs)
    assert line.refusal is None
    assert fresh(runs).state == State.PAUSING
    with as_system():
        pause = Pause.objects.select_related("cause").get(booking=runs)
        refusal = more_time_refusal(Tier(more_times=9), pause)
        assert AuditEntry.objects.filter(action="booking.pause_ordered").count() == 2
    assert (pause.rule, pause.relation, pause.cause.beneficiary_id) == ("R149", "", None)
    assert refusal is not None
    assert refusal.code == "operators_can_not_wait"
    plant.later(timedelta(seconds=pause.grace_seconds))
    plant.round()
    plant.round()
    assert fresh(runs).state == State.PAUSED
    held, charged = money_of(runs)
    # Nothing was saved, so nothing is charged, and all of the time is held.
    assert charged == 0
    assert held > 0
    # Others get the GPUs meanwhile, and new requests are not refused.
    assert fresh(running(plant, pausable_lab("other"), an_ask(2, hours=0.5))).state == State.ACTIVE
    plant.later(HOUR / 2 + MINUTE)
    plant.round()
    assert fresh(runs).state == State.PAUSED
    assert is_idle(plant)

    plant.later(HOUR / 2)
    plant.round()
    plant.round()
    assert fresh(runs).state == State.ACTIVE
    assert all_is_well()


def test_the_notice_is_withdrawn_when_an_operator_ends_the_pause(plant: Plant, operator: User) -> None:
    runs = running(plant, pausable_lab("demo"), an_ask(2))
    plant.later(HOUR / 2)
    applied(plant, operator, runs)
    with as_system():
        stop_end(operator=operator, stop_id=Stop.objects.get().id, now=plant.now)
    plant.cycle()
    plant.cycle()
    assert fresh(runs).state == State.ACTIVE
    assert story(runs)[-1] == "pause_withdrawn"
    # A second pause is one of its own; a third one has nothing to do.
    for code in (None, "paused_already"):
        [line] = applied(plant, operator, runs)
        assert (line.refusal and line.refusal.code) == code
    assert all_is_well()


def test_whoever_can_not_be_paused_is_named_with_the_reason(plant: Plant, operator: User) -> None:
    lab = pausable_lab("demo")
    runs, waits = running(plant, lab, an_ask(2)), requested(plant, lab)
    plant.later(HOUR / 2)
    usual: dict[str, object] = {
        "pausable": True,
        "max_pauses": None,
        "protected_seconds": 0,
        "grace_seconds": 600,
    }
    cases: dict[str, dict[str, object]] = {
        "tier_never_paused": {"pausable": False},
        "paused_enough": {"max_pauses": 0},
        "protected": {"protected_seconds": 1801},
        "ends_before_pause": {"grace_seconds": 5400},
        "": {"protected_seconds": 1799, "grace_seconds": 5390, "max_pauses": 1},
    }
    a_tier(pausable=True)
    for code, more in cases.items():
        with as_system():
            Tier.objects.update(**usual | more)
            ids = [runs.id, waits.id]
            lines = bulk_preview(bookings=ids, act=PAUSE, now=plant.now)
            found = {line.booking.id: line.refusal for line in lines}
            may = Booking.objects.filter(pausable(plant.now)).values_list("id", flat=True)
            assert set(may) == {each for each, refusal in found.items() if refusal is None}
        assert [refusal.code if refusal else "" for refusal in found.values()] == [
            code,
            "not_running",
        ]
