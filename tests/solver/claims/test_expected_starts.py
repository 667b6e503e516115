"""Expected starts of an earlier cycle reserve nothing: only who is ahead comes first."""

from dataclasses import replace

from solver import Request, Snapshot, solve
from tests.solver.builders import HOUR, NOON, POLICY, a_limit, a_planned_start, gpus, whole
from tests.solver.pausing import a_claim, a_site, given, later, running


def expected(booking: str, starts: int, hours: float, gpu: str, **of: object) -> Request:
    """A request of one GPU with an expected start there, of work that may not be paused."""
    planned = a_planned_start(starts, hours, whole(gpu), strength="expected")
    return replace(a_claim(booking, hours=hours, **of), planned=planned)  # type: ignore[arg-type]  # fields of a claim


def a_full_queue(*requests: Request, busy: int = 1) -> Snapshot:
    """Two GPUs without limits, `busy` of them in use for eight hours."""
    held = [
        row
        for n in range(busy)
        for row in running(f"run{n}", whole(f"n1-{n}"), tier="standard", ends=8 * HOUR)
    ]
    return a_site(*requests, held=tuple(held), fleet=gpus(2), limits=(a_limit("lab", 2),))


def test_who_is_first_takes_an_idle_gpu_in_spite_of_its_own_later_start() -> None:
    """Its old start comes after one of somebody who stands behind it, and who has not begun."""
    behind = expected("behind", HOUR, 6, "n1-1", submitted=0)
    first = expected("first", 7 * HOUR, 6, "n1-1", submitted=-60)
    plan = solve(a_full_queue(first, behind), POLICY)
    assert given(plan) == {"first": ("assign", 0), "behind": ("wait", 6 * HOUR)}


def test_a_request_at_the_end_of_the_queue_delays_nobody_ahead() -> None:
    ahead = [expected(f"b{n}", (8 + 2 * n) * HOUR, 2, "n1-0", submitted=n - 100) for n in range(6)]
    site = a_full_queue(*ahead, busy=2)
    before = given(solve(site, POLICY))
    last = a_claim("last", count=2, hours=5, submitted=0)
    after = given(solve(replace(site, requests=(*site.requests, last)), POLICY))
    assert {name: after[name] for name in before} == before


def test_with_nothing_happening_the_plan_stays() -> None:
    jobs = [
        a_claim(f"b{n:02}", count=1 + n % 2, hours=1 + n % 3, tier="flex", submitted=n - 100)
        for n in range(30)
    ]
    site = a_full_queue(*jobs, busy=2)
    plan = solve(site, POLICY)
    for seconds in (5, 10, 65, 130):
        site = later(site, plan, seconds)
        before, plan = plan, solve(site, POLICY)
        starts = {row.booking: row.starts for row in before.waits}
        assert {row.booking: row.starts for row in plan.waits} == starts
        assert site.now == NOON + seconds


def test_a_planned_start_does_not_move_for_a_step_of_the_grid_or_less() -> None:
    """The other GPU is free a minute earlier, where somebody behind has planned to start."""
    first = expected("first", HOUR, 2, "n1-0", submitted=-60, earliest=HOUR - 900)
    behind = expected("behind", HOUR - 60, 1, "n1-1", submitted=0, earliest=HOUR - 900)
    held = [
        *running("run0", whole("n1-0"), tier="standard", ends=HOUR),
        *running("run1", whole("n1-1"), tier="standard", ends=HOUR - 60),
    ]
    site = a_site(first, behind, held=held, fleet=gpus(2), limits=(a_limit("lab", 2),))
    starts = {grid: given(solve(site, replace(POLICY, grid=grid)))["first"] for grid in (50, 60, 300)}
    assert starts == {50: ("wait", HOUR - 60), 60: ("wait", HOUR), 300: ("wait", HOUR)}


def test_a_planned_start_moves_for_less_if_it_begins_at_once() -> None:
    first = expected("first", 200, 2, "n1-0", submitted=-60)
    held = running("run", whole("n1-0"), tier="standard", ends=200)
    site = a_site(first, held=held, fleet=gpus(2), limits=(a_limit("lab", 2),))
    assert given(solve(site, POLICY))["first"] == ("assign", 0)
