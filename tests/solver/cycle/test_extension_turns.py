"""Later ends of what runs, at the place of their owner in the queue."""

from dataclasses import replace

import pytest

from solver import Extension, Plan, Request, Snapshot, decode, encode, solve
from solver.model.inputs import Strength
from tests.solver.builders import (
    HOUR,
    NOON,
    POLICY,
    a_held,
    a_planned_start,
    a_request,
    a_snapshot,
    gpus,
    whole,
)


def a_site(*others: Request, submitted: int = 5, free: int = 0, waiting: bool = False) -> Snapshot:
    """One GPU on which `mine` runs for an hour and asks for two more, and some that are free."""
    held = (replace(a_held("n1-0", booking="mine", ends=HOUR), tenant="lab", project="folding"),)
    added = replace(
        a_request("longer", submitted=submitted, hours=2, earliest=HOUR, fixed=True), planned=None
    )
    longer = Extension("mine", NOON + 3 * HOUR, added, waiting)
    return a_snapshot(*others, fleet=gpus(1 + free), held=held, extensions=(longer,))


def planned(submitted: int, strength: Strength = "expected") -> Request:
    """An hour that is planned on the GPU of `mine`, at its end."""
    planned = a_planned_start(HOUR, 1, whole("n1-0"), strength=strength)
    return a_request("next", hours=1, submitted=submitted, planned=planned)


def decided(site: Snapshot) -> Plan:
    plan = solve(site, POLICY)
    assert encode(solve(decode(Snapshot, encode(site)), POLICY)) == encode(plan)
    return plan


def start_of(plan: Plan) -> tuple[int, str]:
    (wait,) = plan.waits
    return (wait.starts - NOON) // HOUR, wait.places[0].gpu


def test_an_expected_start_behind_makes_way_and_is_told_for_whom() -> None:
    plan = decided(a_site(planned(9)))
    assert plan.extensions[0].granted
    (wait,) = plan.waits
    assert start_of(plan)[0] == 3
    assert wait.delayed_by is not None
    assert (wait.delayed_by.code, wait.delayed_by.facts["booking"]) == ("overtaken", "mine")


@pytest.mark.parametrize("new", [False, True])
def test_those_ahead_are_not_starved_by_what_runs(new: bool) -> None:  # noqa: FBT001
    ahead = planned(1)
    plan = decided(a_site(replace(ahead, planned=None) if new else ahead))
    assert [each.code for each in plan.extensions[0].reasons] == ["extension_busy"]
    assert start_of(plan) == (1, "n1-0")


def test_a_start_ahead_and_a_firm_one_go_elsewhere_at_their_second() -> None:
    other = replace(a_held("n1-0", booking="other", starts=2 * HOUR, ends=3 * HOUR), level="any")
    ahead = replace(planned(1), earliest=NOON + HOUR)
    site = a_site(ahead, free=2)
    plan = decided(replace(site, held=(*site.held, other)))
    assert plan.extensions[0].granted
    assert start_of(plan)[0] == 1
    assert start_of(plan)[1] != "n1-0"
    (move,) = plan.moves
    assert (move.booking, move.starts) == ("other", NOON + 2 * HOUR)
    fixed = replace(a_held("n1-0", booking="other", starts=2 * HOUR, ends=3 * HOUR), level=None)
    kept = decided(replace(site, held=(*site.held, fixed)))
    assert [each.code for each in kept.extensions[0].reasons] == ["extension_busy"]
    assert start_of(kept)[0] == 1


def test_one_that_waits_is_answered_by_a_grant_alone() -> None:
    assert not decided(a_site(planned(1), waiting=True)).extensions
    assert decided(a_site(planned(9), waiting=True)).extensions[0].granted
