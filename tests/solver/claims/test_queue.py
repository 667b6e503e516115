"""Worked examples of the queue: who goes first, and what a planned start is worth."""

from dataclasses import replace

import pytest

from solver import Policy, Snapshot, solve
from solver.model.inputs import Strength
from tests.solver.builders import DAY, HOUR, NOON, POLICY, a_limit, a_snapshot, gpus, whole
from tests.solver.claims.story import MINUTE, TIERS, asks, many, story_of
from tests.solver.pausing import a_claim, a_site, given, later, running
from tests.worlds.jobs import Job


@pytest.mark.parametrize(("tier", "rule"), [("std", "share"), ("prem", "tier")])
def test_2_without_limits_a_newcomer_starts_at_the_next_end_whatever_the_backlog(
    tier: str, rule: str
) -> None:
    jobs = [*many(24, "a", "a", "std", 4), asks("b", "b", tier, 4, at=MINUTE)]
    story = story_of(jobs, hours=4)
    assert story.started["b"] == 4 * HOUR
    assert not story.pauses
    assert set().union(*story.delayed().values()) == {(rule, 0)}
    assert all(len(rows) == 1 for rows in story.moved.values()), "each is moved once"


@pytest.mark.parametrize(
    ("newcomer", "rule"),
    [
        (asks("new", "a", "prem", 4, at=60), "tier"),
        (asks("new", "a", "std", 1 / 6, at=60, owner="eve"), "share"),
    ],
)
def test_3_inside_one_guarantee_the_own_queue_decides(newcomer: Job, rule: str) -> None:
    story = story_of([*many(24, "a", "a", "std", 4), newcomer], (a_limit("a", 8),), hours=4)
    assert story.started["new"] == 4 * HOUR
    assert not story.pauses
    assert set().union(*story.delayed().values()) == {(rule, 1)}
    strengths = {wait.strength for _, plan in story.plans for wait in plan.waits}
    assert strengths == {"guaranteed"}, "and nobody else's work can delay them"


def test_own_work_that_starts_in_a_guarantee_makes_later_starts_expected_at_once() -> None:
    jobs = [
        asks("later", "a", "flex", 1, earliest=HOUR),
        asks("now", "a", "flex", 3, at=MINUTE),
        asks("other", "b", "std", 4, at=2 * MINUTE),
    ]
    story = story_of(jobs, (a_limit("a", 1, borrow=None), a_limit("b", 1)), fleet=2, hours=1)
    waits = [(at, w) for at, plan in story.plans for w in plan.waits if w.booking == "later"]
    strengths = {at: wait.strength for at, wait in waits}
    assert (strengths[0], strengths[MINUTE]) == ("guaranteed", "expected")
    assert story.started["other"] == 2 * MINUTE, "the next claim may overtake it"
    assert story.delayed()["later"] == {("guarantee", 0)}


def test_what_another_project_does_not_lend_makes_no_start_guaranteed() -> None:
    limits = (a_limit("a", 1, borrow=1), a_limit("a-q", 1, parent="a", lend=0), a_limit("b", 1))
    jobs = [
        asks("mine", "a", "flex", 2, earliest=HOUR),
        asks("other", "b", "std", 4, at=MINUTE, earliest=2 * HOUR, fixed=True),
    ]
    story = story_of(jobs, limits, fleet=2, hours=1)
    strengths = {w.strength for _, plan in story.plans for w in plan.waits if w.booking == "mine"}
    assert strengths == {"expected"}, "the tenant who lends may need it"


def test_5_who_is_overtaken_within_its_own_limit_is_told_so() -> None:
    limits = (a_limit("a", 0, borrow=2), a_limit("b", 1, borrow=1))
    jobs = [
        *many(2, "b", "b", "flex", 1),
        asks("spot", "a", "spot", 1, at=MINUTE, count=2),
        asks("flex", "a", "flex", 3, at=2 * MINUTE),
    ]
    story = story_of(jobs, limits, fleet=2, hours=5)
    assert (story.started["flex"], story.started["spot"]) == (1 * HOUR, 4 * HOUR)
    why = {"booking": "flex", "own_tenant": 1, "rule": "tier"}
    assert story.moved == {"spot": [(2 * MINUTE, 4 * HOUR, why)]}


def test_10_a_fixed_window_goes_over_expected_work_and_moves_for_nobody() -> None:
    limits = (a_limit("a", 0, borrow=None), a_limit("b", 4, borrow=0), a_limit("c", 4, borrow=0))
    window = asks("window", "b", "std", 2, at=MINUTE, earliest=HOUR, count=4, fixed=True)
    jobs = [*many(24, "a", "a", "flex", 1), window, asks("c", "c", "prem", 1, at=90, count=4)]
    story = story_of(jobs, limits, hours=3)
    assert story.started["window"] == HOUR
    rows = {name: rows for name, rows in story.delayed().items() if ("firm", 0) in rows}
    assert len(rows) >= 4
    assert "window" not in story.moved


def aged(*, patience: int) -> dict[str, int]:
    """Starts on one GPU of a tenant that had much, while another asks for an hour every hour."""
    limits = (a_limit("a", 0, borrow=None), a_limit("b", 0, borrow=None), a_limit("c", 1))
    light = [asks(f"b{n:02}", "b", "flex", 1, at=1 + n * HOUR // 2) for n in range(16)]
    first = asks("first", "a", "flex", 1)
    heavy = [asks(f"a{n}", "a", "flex", 1, at=n) for n in (1, 2)]
    claims = [asks("c", "c", "std", 1, at=int(3.5 * HOUR))]
    policy = Policy(1, patience=patience, cool_down=1, epoch=60)
    jobs = [first, *heavy, *light, *claims]
    return story_of(jobs, limits, fleet=1, hours=9, policy=policy, heavy="a").started


def test_11_who_has_waited_too_long_starts_at_the_next_end() -> None:
    patient = aged(patience=3 * DAY)
    assert "a2" not in patient
    impatient = aged(patience=3 * HOUR)
    assert impatient["a2"] < 8 * HOUR
    assert impatient["c"] < impatient["a2"], "claims inside their guarantee still go first"


@pytest.mark.parametrize(("strength", "first"), [("guaranteed", HOUR), ("expected", 3 * HOUR)])
def test_nobody_else_delays_a_guaranteed_start(strength: Strength, first: int) -> None:
    limits = (a_limit("lab", 1, borrow=None),)
    held = running("other", whole("n1-0"), tenant="firm", ends=HOUR, tier="std")
    mine = a_claim("mine", tier="flex", hours=1)
    site = replace(a_snapshot(mine, held=held, limits=limits, fleet=gpus(1)), tiers=tuple(TIERS.values()))
    plan = solve(site, POLICY)
    assert plan.waits[0].strength == "guaranteed"
    plan = replace(plan, waits=(replace(plan.waits[0], strength=strength),))
    site = later(site, plan, 5)
    newcomer = replace(a_claim("new", tenant="firm", hours=2), tier="prem", priority=90)
    after = solve(replace(site, requests=(*site.requests, newcomer)), POLICY)
    assert given(after)["mine"] == ("wait", first)


def at_one(now: int, hole: int) -> Snapshot:
    """One tenant has its guarantee in use until 14:00, and then a guaranteed start; another GPU is
    free from `hole` on. It is 13:00 or later."""
    held = running("own", whole("n1-0"), tenant="lab", ends=2 * HOUR)
    if hole > now:
        held += running("other", whole("n1-1"), tenant="firm", ends=hole)
    request = a_claim("next", tier="flex", hours=4)
    limits = (a_limit("lab", 1, borrow=None), a_limit("firm", 1))
    tiers = tuple(TIERS.values())
    site = a_snapshot(request, held=held, limits=limits, fleet=gpus(2))
    return replace(site, now=NOON + now, tiers=tiers)


def test_12_a_guaranteed_start_is_not_exchanged_for_an_earlier_expected_one() -> None:
    site = at_one(HOUR, hole=9 * HOUR)
    plan = solve(site, POLICY)
    assert (given(plan)["next"], plan.waits[0].strength) == (("wait", 2 * HOUR), "guaranteed")
    hole = later(at_one(HOUR, hole=int(1.5 * HOUR)), plan, HOUR + 5)
    assert given(solve(hole, POLICY))["next"] == ("wait", 2 * HOUR)
    now = later(at_one(2 * HOUR - 30, hole=2 * HOUR - 40), plan, 2 * HOUR - 30)
    assert given(solve(now, POLICY))["next"] == ("assign", 2 * HOUR - 30)
    expected = replace(plan, waits=(replace(plan.waits[0], strength="expected"),))
    control = later(at_one(HOUR, hole=int(1.5 * HOUR)), expected, HOUR + 5)
    assert given(solve(control, POLICY))["next"] == ("wait", int(1.5 * HOUR))


def test_spot_that_is_asked_for_lowers_no_part_of_who_borrows() -> None:
    """A tenant with a guarantee that is not in use asks for spot: the rest that others borrow by
    weight stays, and so does their order."""
    limits = (
        a_limit("lab", 3, borrow=None, weight=0),
        a_limit("firm", 0, borrow=None, weight=0),
        a_limit("hub", 0, borrow=None, weight=3),
    )
    busy = running("busy", whole("n1-0"), whole("n1-1"), tenant="lab", tier="standard")
    guest = running("guest", whole("n1-2"), tenant="guest", tier="standard", ends=HOUR)
    older = a_claim("older", tier="flex", tenant="firm", submitted=-120)
    heavier = a_claim("heavier", tier="flex", tenant="hub", submitted=-60)
    site = a_site(older, heavier, held=(*busy, *guest), fleet=gpus(3), limits=limits)
    before = given(solve(site, POLICY))
    assert before["heavier"][1] < before["older"][1]
    spot = a_claim("spot", tier="spot", submitted=-30)
    after = given(solve(replace(site, requests=(*site.requests, spot)), POLICY))
    assert {name: after[name] for name in before} == before
