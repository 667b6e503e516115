"""Planned starts give way to a newcomer at their own starts: late binding."""

from dataclasses import replace

import numpy as np
import pytest

from solver import Place, Plan, Request, Snapshot, encode, solve
from solver.model.demand import Fit, demand_of
from solver.rebinding.rebinding import Rebinding, neighbourhoods
from solver.rebinding.strategies import proven, rebind_with
from solver.state.cycle_state import CycleState
from tests.solver import truth
from tests.solver.builders import (
    HOUR,
    NOON,
    POLICY,
    a_planned_start,
    a_request,
    a_snapshot,
    an_ask,
    gpus,
    whole,
)


def a_slice(gpu: str, start: int = 0) -> Place:
    return Place(gpu, "1g.10gb", start, 1)


def promised(booking: str, *places: Place, profile: str | None = "1g.10gb") -> Request:
    """A booking with a firm start in an hour, which nobody delays."""
    ask = an_ask(len(places), profile=profile)
    planned = a_planned_start(HOUR, 1, *places, strength="firm")
    return a_request(booking, ask, earliest=HOUR, planned=planned)


def scattered(newcomer: Request) -> Snapshot:
    """Two GPUs, each with a planned slice."""
    slices = (promised("p1", a_slice("n1-0")), promised("p2", a_slice("n1-1")))
    return a_snapshot(*slices, newcomer, fleet=gpus(2))


def starts(plan: Plan) -> dict[str, int]:
    return {row.booking: row.starts - NOON for row in truth.given_by(plan)}


def test_a_fixed_window_is_let_in_when_promised_slices_can_lie_beside_each_other() -> None:
    site = scattered(a_request("new", earliest=HOUR, fixed=True))
    plan = solve(site, POLICY)
    assert plan.refusals == ()
    assert starts(plan) == {"p1": HOUR, "p2": HOUR, "new": HOUR}
    assert truth.overlaps(site, plan) == []
    assert len({place.gpu for row in plan.waits for place in row.places}) == 1


def test_a_flexible_booking_starts_earlier_when_that_delays_nobody() -> None:
    plan = solve(scattered(a_request("new", earliest=HOUR)), POLICY)
    assert starts(plan) == {"p1": HOUR, "p2": HOUR, "new": HOUR}


def test_whole_gpus_make_way_for_a_gang_that_must_be_together() -> None:
    fleet = (*gpus(2), *gpus(2, node="n2"))
    ones = [promised(f"p{n}", whole(f"n{n}-0"), profile=None) for n in (1, 2)]
    gang = a_request("new", an_ask(2, together="node", required=True), earliest=HOUR, fixed=True)
    site = a_snapshot(*ones, gang, fleet=fleet)
    plan = solve(site, POLICY)
    assert starts(plan) == {"p1": HOUR, "p2": HOUR, "new": HOUR}
    assert truth.overlaps(site, plan) == []
    assert truth.torn(site, plan) == []


def test_nobody_is_moved_for_what_does_not_fit_all_the_same() -> None:
    site = scattered(a_request("new", an_ask(2), earliest=HOUR, fixed=True))
    plan = solve(site, POLICY)
    assert [row.booking for row in plan.refusals] == ["new"]
    places = {row.booking: row.places for row in plan.waits}
    assert places == {"p1": (a_slice("n1-0"),), "p2": (a_slice("n1-1"),)}


def test_moved_planned_starts_are_the_same_bytes_for_any_order_of_rows() -> None:
    site = scattered(a_request("new", earliest=HOUR, fixed=True))
    plan = encode(solve(site, POLICY))
    assert encode(solve(replace(site, requests=site.requests[::-1]), POLICY)) == plan


def test_the_control_without_moving_the_window_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rebinding, "place_with_moves", lambda *_: None)
    plan = solve(scattered(a_request("new", earliest=HOUR, fixed=True)), POLICY)
    assert [row.booking for row in plan.refusals] == ["new"]


def test_the_policy_limits_how_many_are_moved_for_one() -> None:
    """Both nodes have two bookings, so two have to move, to nodes with one GPU."""
    fleet = (*gpus(2), *gpus(2, node="n2"), *gpus(1, node="n3"), *gpus(1, node="n4"))
    taken = [whole(f"n{n}-{at}") for n in (1, 2) for at in (0, 1)]
    ones = [promised(f"p{at}", place, profile=None) for at, place in enumerate(taken)]
    gang = a_request("new", an_ask(2, together="node", required=True), earliest=HOUR, fixed=True)
    site = a_snapshot(*ones, gang, fleet=fleet)
    assert solve(site, replace(POLICY, moved_bookings=2)).refusals == ()
    plan = solve(site, replace(POLICY, moved_bookings=1))
    assert [row.booking for row in plan.refusals] == ["new"]


def test_the_policy_limits_the_sets_of_nodes_and_the_pieces_of_a_proof() -> None:
    fleet = tuple(gpu for n in range(4) for gpu in gpus(2, node=f"n{n}"))
    gang = demand_of(an_ask(2, together="node", required=True), "h100", HOUR, ("lab", "folding"))
    one = replace(gang, count=1, level="any")
    near = {f"p{n}": Fit(one, (whole(f"n{n}-0"),), NOON + HOUR) for n in range(4)}
    found = {}
    for limit in (3, 1):
        policy = replace(POLICY, node_sets=limit, exact_pieces=limit)
        state = CycleState(a_snapshot(fleet=fleet), policy)
        for fit in near.values():
            state.reserve(fit)
        room = np.full(len(fleet), 1, dtype=np.uint8)
        sets = neighbourhoods(state, gang, NOON + HOUR, near, room)
        moved = rebind_with(state, gang, NOON + HOUR, {"p0": near["p0"]}, proven)
        found[limit] = (len(sets), moved is not None)
    assert found == {3: (3, True), 1: (1, False)}
