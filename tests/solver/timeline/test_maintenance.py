"""Maintenance in the solver: nothing is placed across it, and what it is in the way of knows."""

from dataclasses import replace

import pytest

from solver import Extension, Maintenance, Snapshot, decode, encode, solve
from tests.solver.builders import (
    HOUR,
    NOON,
    POLICY,
    a_held,
    a_limit,
    a_planned_start,
    a_request,
    a_snapshot,
    an_ask,
    gpus,
    whole,
)
from tests.solver.pausing import a_claim, a_site, given, notices, running

ONE = gpus(1)
TWO = gpus(2)


def away(gpu: str, starts: int, ends: int) -> Maintenance:
    """Times from NOON."""
    return Maintenance(gpu, NOON + starts, NOON + ends)


def site(snapshot: Snapshot, *blackouts: Maintenance) -> Snapshot:
    return replace(snapshot, blackouts=blackouts)


def test_a_booking_that_fits_before_maintenance_starts_now() -> None:
    plan = solve(site(a_snapshot(a_request(), fleet=ONE), away("n1-0", HOUR, 2 * HOUR)), POLICY)
    assert [(a.starts, a.ends) for a in plan.assigns] == [(NOON, NOON + HOUR)]


def test_a_booking_that_would_reach_into_maintenance_waits_until_it_is_over() -> None:
    request = a_request(hours=1.5)
    plan = solve(site(a_snapshot(request, fleet=ONE), away("n1-0", HOUR, 2 * HOUR)), POLICY)
    (wait,) = plan.waits
    assert wait.starts == NOON + 2 * HOUR
    assert [reason.code for reason in wait.reasons] == ["gpus_busy", "maintenance"]
    assert wait.reasons[1].rule == "R33"
    assert wait.reasons[1].frees_at == NOON + 2 * HOUR
    assert wait.reasons[1].facts == {"gpu_class": "h100", "gpus": 1, "which": "class"}


def test_another_gpu_serves_while_one_is_away() -> None:
    request = a_request(hours=1.5)
    plan = solve(site(a_snapshot(request, fleet=TWO), away("n1-0", HOUR, 2 * HOUR)), POLICY)
    assert [a.places for a in plan.assigns] == [(whole("n1-1"),)]


def test_slices_are_kept_off_too() -> None:
    request = a_request(ask=an_ask(1, profile="1g.10gb"), hours=2)
    plan = solve(site(a_snapshot(request, fleet=ONE), away("n1-0", HOUR, 2 * HOUR)), POLICY)
    assert [wait.starts for wait in plan.waits] == [NOON + 2 * HOUR]


def test_shares_are_kept_off_too() -> None:
    request = a_request(ask=replace(an_ask(1), share=250), hours=2)
    free = solve(a_snapshot(request, fleet=ONE), POLICY)
    assert [a.starts for a in free.assigns] == [NOON]
    plan = solve(site(a_snapshot(request, fleet=ONE), away("n1-0", HOUR, 2 * HOUR)), POLICY)
    assert [wait.starts for wait in plan.waits] == [NOON + 2 * HOUR]


def test_a_fixed_window_across_maintenance_is_refused_with_the_reason_and_the_next_window() -> None:
    request = a_request(fixed=True, earliest=HOUR, hours=2)
    plan = solve(site(a_snapshot(request, fleet=ONE), away("n1-0", 2 * HOUR, 5 * HOUR)), POLICY)
    (refused,) = plan.refusals
    assert "maintenance" in [reason.code for reason in refused.reasons]
    assert [alternative.starts for alternative in refused.alternatives][:1] == [NOON + 5 * HOUR]


def test_a_planned_start_that_maintenance_comes_to_lie_on_breaks_with_that_reason() -> None:
    planned = a_planned_start(HOUR, 2, whole("n1-0"))
    request = a_request(hours=2, planned=planned)
    held = (a_held("n1-0", ends=HOUR),)
    before = solve(a_snapshot(request, fleet=ONE, held=held), POLICY)
    assert [wait.starts for wait in before.waits] == [NOON + HOUR]
    snapshot = site(a_snapshot(request, fleet=ONE, held=held), away("n1-0", 2 * HOUR, 4 * HOUR))
    (wait,) = solve(snapshot, POLICY).waits
    assert wait.starts == NOON + 4 * HOUR
    assert wait.delayed_by is not None
    assert wait.delayed_by.code == "maintenance"


def test_a_planned_start_that_ends_in_the_last_step_before_maintenance_breaks() -> None:
    """Its room opens at the next step of the grid, when the maintenance has begun."""
    begins, held = 2 * HOUR + POLICY.grid // 2, (a_held("n1-0", ends=HOUR),)
    late = replace(a_request(planned=a_planned_start(HOUR, 1, whole("n1-0"))), duration=HOUR + 60)
    snapshot = site(a_snapshot(late, fleet=ONE, held=held), away("n1-0", begins, 4 * HOUR))
    (wait,) = solve(snapshot, POLICY).waits
    assert wait.delayed_by is not None
    assert wait.delayed_by.code == "maintenance"


def test_a_planned_start_before_maintenance_is_kept() -> None:
    request = a_request(hours=1, planned=a_planned_start(HOUR, 1, whole("n1-0")))
    held = (a_held("n1-0", ends=HOUR),)
    snapshot = site(a_snapshot(request, fleet=ONE, held=held), away("n1-0", 2 * HOUR, 4 * HOUR))
    (wait,) = solve(snapshot, POLICY).waits
    assert (wait.starts, wait.delayed_by) == (NOON + HOUR, None)


def test_what_runs_may_reach_into_maintenance_and_is_not_extended_into_it() -> None:
    held = (a_held("n1-0", starts=-HOUR, ends=2 * HOUR, booking="b1"),)
    snapshot = a_snapshot(fleet=ONE, held=held, extensions=(Extension("b1", NOON + 3 * HOUR),))
    (refused,) = solve(site(snapshot, away("n1-0", HOUR, 5 * HOUR)), POLICY).extensions
    assert [reason.code for reason in refused.reasons] == ["maintenance"]
    (granted,) = solve(snapshot, POLICY).extensions
    assert granted.granted


def test_maintenance_that_has_begun_and_of_a_gpu_nobody_knows_is_no_trouble() -> None:
    snapshot = site(a_snapshot(a_request(), fleet=ONE), away("n1-0", -HOUR, HOUR), away("gone", 0, HOUR))
    assert [wait.starts for wait in solve(snapshot, POLICY).waits] == [NOON + HOUR]


@pytest.mark.parametrize("turn", [1, -1])
def test_the_order_of_blackouts_is_not_part_of_the_snapshot(turn: int) -> None:
    rows = (away("n1-0", HOUR, 2 * HOUR), away("n1-1", HOUR, 2 * HOUR), away("n1-0", 0, 60))
    one = site(a_snapshot(a_request(hours=3), fleet=TWO), *rows)
    other = site(a_snapshot(a_request(hours=3), fleet=TWO), *rows[::turn])
    assert encode(one) == encode(other)
    assert encode(solve(one, POLICY)) == encode(solve(other, POLICY))
    assert decode(Snapshot, encode(one)).blackouts != ()


def test_nobody_is_paused_for_a_start_that_maintenance_forbids() -> None:
    held = running("old", whole("n1-0"))
    limits = (a_limit("lab", 1, borrow=0), a_limit("firm", 0, borrow=None))
    snapshot = a_site(a_claim(hours=2), held=held, fleet=ONE, limits=limits)
    # Negative control: without it the claim takes back what is borrowed.
    assert set(notices(solve(snapshot, POLICY))) == {"old"}
    plan = solve(site(snapshot, away("n1-0", HOUR, 3 * HOUR)), POLICY)
    assert given(plan)["claim"][1] >= 3 * HOUR
