"""Budgets whose ladder keeps bookings from starting."""

import pytest

from allocation.rules.states import State
from allocation.services.bookings.requests import BookingRequest
from allocation.services.decide.cycle import is_anything_due
from allocation.services.decide.invariants import invariants_check
from allocation.services.plans.restraints import restraints_due
from allocation.services.quotes.quotes import quote_make
from billing.models import Budget
from billing.services import Rung, ladder_set
from tests.builders_allocation import HOUR, Lab, a_lab, an_ask
from tests.roles import as_system
from tests.services.paused import requested, running, story
from tests.services.plant import Plant, fresh

pytestmark = pytest.mark.turn


def laddered(plant: Plant, lab: Lab, *rungs: Rung) -> None:
    with as_system():
        budget = Budget.objects.get(project=lab.project, level="project")
        ladder_set(actor_id=None, budget=budget, rungs=rungs, now=plant.now)


def test_a_drained_budget_starts_nothing_until_its_share_is_lower(plant: Plant) -> None:
    lab = a_lab("drained")
    runs, planned = running(plant, lab, an_ask(2)), requested(plant, lab, an_ask(2))
    fixed = requested(plant, lab, an_ask(1, starts=plant.now + 5 * HOUR))
    plant.cycle()
    laddered(plant, lab, Rung("committed", 1, "drain"))
    with as_system():
        request = BookingRequest(lab.project.slug, "standard", an_ask(1))
        quote = quote_make(actor=lab.actor, request=request, now=plant.now)
    assert (quote.options, quote.waits) == ((), True)
    assert "nothing start now" in str(quote.blocking)
    waits = requested(plant, lab)
    assert fresh(waits).is_drained
    plant.later(5 * HOUR)
    plant.round()

    states = [str(fresh(each).state) for each in (runs, planned, fixed, waits)]
    assert states == ["ended", "queued", "scheduled", "queued"]
    assert fresh(waits).reasons[0]["code"] == "budget_drained"
    assert fresh(planned).planned_starts is None
    assert "drained" in story(fixed)
    with as_system():
        # Nothing is left to do in each second.
        assert not restraints_due(plant.now).exists()
        assert not is_anything_due(plant.now)
        assert invariants_check() == []

    laddered(plant, lab)
    plant.round()
    # The window has its GPUs still, and starts late.
    assert fresh(fixed).state == State.ACTIVE
    assert not fresh(waits).is_drained
    assert fresh(planned).planned_starts is not None
