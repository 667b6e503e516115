"""What is quoted is what the next cycle gives, if nothing else happens: also by a pause."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocation.solver import Availability, Plan, Question, Request, Snapshot, solve
from allocation.solver.preemption import Preemption
from tests.solver import truth
from tests.solver.builders import HOUR, NOON, POLICY, a_limit, gpus, whole
from tests.solver.pausing import GRACE, a_claim, a_site, running
from tests.solver.test_preemption_properties import cycles
from tests.solver.world import an_arrival, promise_of, wishes

LIMITS = (a_limit("lab", 3, borrow=0), a_limit("firm", 0, borrow=None))
HELD = (
    *running("lent", whole("n1-0"), whole("n1-1")),
    *running("own", whole("n1-2"), tenant="lab", tier="spot"),
    *running("stays", whole("n1-3"), tier="standard"),
)


def question(wish: Request) -> Question:
    """The same wish, asked."""
    return Question(
        wish.ask, wish.duration, wish.earliest, wish.latest, wish.fixed, wish.tenant,
        wish.project, tier=wish.tier, owner=wish.owner,
    )  # fmt: skip


def is_still(site: Snapshot, plan: Plan) -> bool:
    """Nothing happens in this cycle: what is promised stays as it is."""
    promises = {request.booking: request.promise for request in site.requests}
    moved = [row for row in plan.waits if promise_of(row) != promises.get(row.booking)]
    return not (plan.assigns or plan.pauses or plan.refusals or moved)


def agree(seed: int, arrivals: int) -> tuple[int, int]:
    """Quotes that were compared with the plan, and those of them that ask others to leave."""
    chance = Random(seed)  # noqa: S311  made-up wishes
    compared = pausing = 0
    for world, _, _ in cycles(seed, arrivals):
        site = replace(world.site, running=tuple(wishes(world.site)))
        if chance.random() > 0.3 or not is_still(site, solve(site, world.policy)):
            continue
        new = an_arrival(chance, 99, site.now)
        plan = solve(replace(site, requests=(*site.requests, new)), world.policy)
        mine = {(row.starts, row.ends) for row in truth.given_by(plan) if row.booking == "b99"}
        options = Availability(site, world.policy).quote(question(new)).options
        quoted = [option for option in options if option.kind == "as_asked"]
        assert {(option.starts, option.ends) for option in quoted} == mine
        compared += 1
        pausing += any(option.pauses for option in quoted)
    return compared, pausing


def test_the_quoted_start_is_the_one_that_the_next_cycle_gives() -> None:
    compared, pausing = agree(4, 5)
    assert compared > 4
    assert pausing, "nobody is asked to leave: this shows nothing"


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**9), st.integers(4, 16))
def test_the_same_for_very_many_sites(seed: int, arrivals: int) -> None:
    agree(seed, arrivals)


def test_an_option_says_how_many_leave_and_by_which_rule_and_nobody_is_told() -> None:
    site = a_site(held=HELD, fleet=gpus(4), limits=LIMITS)
    availability = Availability(site, POLICY)
    asked = question(a_claim(count=3))
    (option, *_) = availability.quote(asked).options
    assert (option.starts - NOON, option.pauses) == (GRACE, (("higher_tier", 1), ("taken_back", 1)))
    assert availability.quote(asked).options[0] == option
    assert "firm" not in repr(option)


def test_a_claim_that_may_have_nobody_paused_is_quoted_the_end_of_others() -> None:
    site = a_site(held=HELD, fleet=gpus(4), limits=LIMITS)
    (option, *_) = Availability(site, POLICY).quote(question(a_claim(count=3, tier="spot"))).options
    assert (option.starts - NOON, option.pauses) == (6 * HOUR, ())


def test_the_control_without_the_search_the_quote_names_a_later_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Preemption, "_earliest_paused", lambda *_: None)
    site = a_site(held=HELD, fleet=gpus(4), limits=LIMITS)
    (option, *_) = Availability(site, POLICY).quote(question(a_claim(count=3))).options
    assert option.starts == NOON + 6 * HOUR
