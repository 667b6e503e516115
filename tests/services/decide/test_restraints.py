"""Budgets whose ladder keeps bookings from borrowed GPUs, or pauses what runs."""

from datetime import timedelta

import pytest

from allocation.models import Booking, Pause
from allocation.rules.states import State
from allocation.services.bookings.requests import BookingRequest
from allocation.services.decide.cycle import is_anything_due
from allocation.services.plans.restraints import restraints_due
from allocation.services.quotes.quotes import quote_make
from allocation.services.runs.pause_choices import more_time_refusal
from billing.rules import UNITS_PER_GPU
from billing.services import Rung
from tenants.models import Quota
from tests.builders import a_tier
from tests.builders_allocation import HOUR, Lab, a_lab, an_ask
from tests.roles import as_system
from tests.services.decide.test_drains import laddered
from tests.services.paused import all_is_well, money_of, requested, running, story
from tests.services.plant import Plant, fresh

pytestmark = pytest.mark.turn


def pausable_lab(slug: str) -> Lab:
    """A lab with little money, in a tier that can be paused and may borrow."""
    lab = a_lab(slug, money="100")
    a_tier(pausable=True)
    return lab


def overlap(one: Booking, other: Booking) -> bool:
    """Whether both are planned to run at the same time."""
    ends, starts = fresh(one).planned_ends, fresh(other).planned_starts
    assert ends is not None
    assert starts is not None
    return starts < ends


def is_idle(plant: Plant) -> bool:
    """Whether a turn would have nothing to do."""
    with as_system():
        return not restraints_due(plant.now).exists() and not is_anything_due(plant.now)


def guaranteed(lab: Lab, gpus: int) -> None:
    """The organisation has so many GPUs of its own, and may borrow."""
    with as_system():
        rows = Quota.objects.filter(tenant=lab.tenant, project=None)
        rows.update(guaranteed_units=gpus * UNITS_PER_GPU, borrow_limit_units=None)


def test_a_budget_pauses_what_runs_after_its_notice_and_resumes_it(plant: Plant) -> None:
    lab = pausable_lab("poor")
    runs = running(plant, lab, an_ask(2))
    plant.later(HOUR / 2)
    laddered(plant, lab, Rung("committed", 1, "pause"))
    plant.cycle()
    noticed = fresh(runs)
    with as_system():
        pause = Pause.objects.select_related("cause").get(booking=runs)
        refusal = more_time_refusal(runs.tier, pause)
    assert noticed.state == State.PAUSING
    assert (pause.cause.beneficiary_id, pause.rule, pause.is_own) == (None, "R114", True)
    assert refusal is not None
    assert refusal.code == ("budget_can_not_wait" if runs.tier.more_times else "no_more_time")

    plant.later(timedelta(seconds=pause.grace_seconds))
    plant.round()
    plant.round()
    assert fresh(runs).state == State.PAUSED
    held, charged = money_of(runs)
    # The run and its grace period are charged, and the rest stays held.
    assert held > 0
    assert charged > 0
    assert is_idle(plant)

    laddered(plant, lab)
    plant.round()
    plant.round()
    assert fresh(runs).state == State.ACTIVE
    assert "drained_no_more" in story(runs)
    assert all_is_well()


def test_a_notice_is_withdrawn_when_the_share_is_lower_in_time(plant: Plant) -> None:
    lab = pausable_lab("rich")
    runs = running(plant, lab, an_ask(2))
    plant.later(HOUR / 2)
    laddered(plant, lab, Rung("committed", 1, "pause"))
    plant.cycle()
    laddered(plant, lab)
    plant.cycle()
    plant.cycle()
    assert fresh(runs).state == State.ACTIVE
    assert story(runs)[-1] == "pause_withdrawn"


def test_a_budget_keeps_bookings_from_borrowed_gpus(plant: Plant) -> None:
    lab = pausable_lab("borrower")
    guaranteed(lab, 1)
    guaranteed(pausable_lab("lender"), 1)
    own = requested(plant, lab, an_ask(1))
    laddered(plant, lab, Rung("committed", 1, "no_borrowing"))
    plant.later(timedelta(seconds=1))
    other = requested(plant, lab, an_ask(1))
    fixed = requested(plant, lab, an_ask(1, starts=plant.now + 5 * HOUR))
    assert not fresh(other).may_borrow
    with as_system():
        request = BookingRequest(lab.project.slug, "standard", an_ask(1))
        asked = quote_make(actor=lab.actor, request=request, now=plant.now).options[0]
    assert (asked.starts > plant.now, asked.strength) == (True, "guaranteed"), "no borrowed GPUs"
    plant.round()
    assert [fresh(each).state for each in (own, other)] == [State.ACTIVE, State.QUEUED]
    # It runs within the guarantee, after the other one.
    assert not overlap(own, other)
    assert (fresh(other).borrowed_units, fresh(fixed).borrowed_units) == (0, 0)
    assert is_idle(plant)

    laddered(plant, lab)
    # The guarantee goes to the earlier start.
    plant.later(timedelta(seconds=1))
    plant.round()
    assert fresh(other).state == State.ACTIVE
    assert (fresh(own).borrowed_units, fresh(other).borrowed_units > 0) == (0, True)
    assert all_is_well()


def test_planned_work_gives_borrowed_gpus_up(plant: Plant) -> None:
    lab = pausable_lab("borrower")
    guaranteed(lab, 1)
    guaranteed(pausable_lab("lender"), 1)
    runs = running(plant, lab, an_ask(1))
    later = requested(plant, lab, an_ask(1, not_before=plant.now + HOUR / 2))
    plant.cycle()
    plant.later(timedelta(minutes=28))
    plant.round()
    assert fresh(later).borrowed_units > 0
    laddered(plant, lab, Rung("committed", 1, "no_borrowing"))
    plant.round()
    assert fresh(runs).state == State.ACTIVE
    assert fresh(later).borrowed_units == 0
    assert not overlap(runs, later)
    assert "borrowing_stopped" in story(later)
    assert all_is_well()
