"""Only the first bookings of the queue get a planned start where the policy bounds its depth."""

from dataclasses import replace

from solver import Limit, Plan, Policy, Request, Snapshot, encode, solve
from tests.bench.solver.crowded import the_next
from tests.solver.builders import HOUR, NOON, a_limit, a_request, a_snapshot, an_ask, gpus
from tests.solver.pausing import TIERS

TWO = Policy(1, plan_depth=2)


def waiting(number: int, hours: float = 4, tier: str = "flex", **more: object) -> Request:
    """One GPU, as the booking of that number in the queue."""
    request = a_request(f"b{number}", an_ask(1), hours=hours, tier=tier, priority=30, submitted=number)
    return replace(request, **more)  # type: ignore[arg-type]  # fields of a request


def a_site(*requests: Request, count: int = 1, limits: tuple[Limit, ...] = ()) -> Snapshot:
    return replace(a_snapshot(*requests, fleet=gpus(count), limits=limits), tiers=TIERS)


def unplanned(plan: Plan) -> list[str]:
    """Bookings without a planned start, all of which say why."""
    found = [wait for wait in plan.waits if not wait.places]
    assert all(wait.reasons[0].code == "behind_the_plan" for wait in found)
    return [wait.booking for wait in found]


def test_who_is_behind_the_depth_waits_without_a_planned_start_until_it_is_its_turn() -> None:
    site = a_site(*(waiting(number) for number in range(5)))
    plan = solve(site, TWO)
    assert [row.booking for row in plan.assigns] == ["b0"]
    assert unplanned(plan) == ["b2", "b3", "b4"]
    following = solve(the_next(site, plan), TWO)
    assert unplanned(following) == ["b3", "b4"]
    starts = {wait.booking: wait.starts for wait in following.waits if wait.places}
    assert starts == {"b1": NOON + 4 * HOUR, "b2": NOON + 8 * HOUR}
    # It never had a start that could be late.
    assert all(wait.delayed_by is None for wait in following.waits)
    third = solve(the_next(the_next(site, plan), following), TWO)
    assert encode(third) == encode(solve(the_next(the_next(site, plan), following), TWO))
    assert [w.starts for w in third.waits if not w.places] == [
        w.starts for w in following.waits if not w.places
    ]


def test_who_falls_behind_the_depth_is_told_who_went_first() -> None:
    site = a_site(*(waiting(number) for number in range(2)))
    plan = solve(site, TWO)
    ahead = [waiting(number, priority=90) for number in (7, 8)]
    later = the_next(site, plan)
    following = solve(replace(later, requests=(*later.requests, *ahead)), TWO)
    wait = next(wait for wait in following.waits if wait.booking == "b1")
    assert wait.reasons[0].code == "behind_the_plan"
    why = wait.delayed_by
    assert why is not None
    assert (why.code, dict(why.numbers)["rule"]) == ("overtaken", "tier")


def test_who_is_behind_the_depth_starts_at_once_where_nobody_is_delayed() -> None:
    gang = waiting(1, ask=an_ask(2))
    site = a_site(waiting(0, hours=2), gang, waiting(2, hours=3), waiting(3, hours=2), count=2)
    plan = solve(site, TWO)
    assert [row.booking for row in plan.assigns] == ["b0", "b3"]
    assert unplanned(plan) == ["b2"]


def test_guarantees_windows_and_deadlines_are_planned_wherever_they_stand() -> None:
    claim = replace(waiting(5), tenant="firm")
    window = waiting(6, fixed=True, earliest=NOON + 30 * HOUR)
    timely = waiting(7, latest=NOON + 60 * HOUR)
    borrowed = [waiting(number) for number in range(5)]
    limits = (a_limit("firm", 1), a_limit("lab", 0, borrow=None))
    plan = solve(a_site(*borrowed, claim, window, timely, limits=limits), TWO)
    planned = {wait.booking for wait in plan.waits if wait.places}
    planned |= {row.booking for row in plan.assigns}
    assert {"b5", "b6", "b7"} <= planned
    assert set(unplanned(plan)) < {"b0", "b1", "b2", "b3", "b4"}


def test_without_a_depth_everybody_is_planned() -> None:
    site = a_site(*(waiting(number) for number in range(5)))
    assert unplanned(solve(site, Policy(1))) == []
    assert b"plan_depth" not in encode(Policy(1))
