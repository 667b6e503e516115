"""Bookings that have lost their start, and what projects keep from each other in the queue."""

from dataclasses import replace

from solver import Availability, Plan, Request, Snapshot, solve
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
from tests.solver.cycle.test_quote_pauses import as_asked
from tests.solver.pausing import running
from tests.solver.truth import given_by

MINUTE = 60


def starts(plan: Plan) -> dict[str, int]:
    """Minutes until each start."""
    return {row.booking: (row.starts - NOON) // MINUTE for row in given_by(plan)}


def a_site_with_an_improvement() -> Snapshot:
    """A newcomer takes the first minutes of the only GPU that is free for long. What is ahead gets
    earlier by what is left, and only then there is room for who has a deadline."""
    planned = [whole("n1-0")]
    return a_snapshot(
        a_request("new", an_ask(2), hours=1 / 6, submitted=-500, tier="flex", priority=90),
        a_request(
            "ahead", hours=2, submitted=-400, tier="flex", planned=a_planned_start(60 * MINUTE, 2, *planned)
        ),
        a_request(
            "deadline",
            hours=3,
            submitted=-300,
            tier="flex",
            latest=330 * MINUTE,
            planned=a_planned_start(150 * MINUTE, 3, *planned),
        ),
        a_request(
            "behind", hours=1, submitted=-200, tier="flex", planned=a_planned_start(180 * MINUTE, 1, *planned)
        ),
        fleet=gpus(2),
        held=(
            a_held("n1-1", starts=-60, ends=10 * MINUTE),
            a_held("n1-1", starts=20 * MINUTE, ends=900 * HOUR),
        ),
    )


def test_who_has_a_deadline_takes_what_those_ahead_leave_before_those_behind_do() -> None:
    plan = solve(a_site_with_an_improvement(), POLICY)
    found = starts(plan)
    assert found["new"] == 10
    assert found["ahead"] == 20, "it is not improved, and this shows nothing"
    assert found["deadline"] == 140
    (behind,) = (row for row in plan.waits if row.booking == "behind")
    assert behind.starts >= NOON + 320 * MINUTE
    assert behind.delayed_by is not None
    assert behind.delayed_by.code == "overtaken"


def test_what_a_project_does_not_lend_puts_no_other_project_first() -> None:
    """Who takes its guarantee back makes borrowed starts later in the same turn."""
    limits = (
        a_limit("firm", 2, borrow=None),
        a_limit("theirs", 2, parent="firm", borrow=None, lend=0),
        a_limit("lab", 2, borrow=None),
    )
    lent = replace(
        a_request(
            "lent",
            an_ask(2),
            tenant="firm",
            project="other",
            tier="flex",
            earliest=HOUR,
            submitted=-9,
            planned=a_planned_start(HOUR, 1, whole("n1-0"), whole("n1-1")),
        ),
        owner="ann",
    )
    back = replace(a_request("back", an_ask(2), tier="flex", earliest=HOUR, submitted=-5), owner="bob")
    plan = solve(a_snapshot(lent, back, fleet=gpus(4), limits=limits), POLICY)
    assert starts(plan)["back"] == 60
    (late,) = (row for row in plan.waits if row.booking == "lent")
    assert late.starts >= NOON + 2 * HOUR
    assert late.key[0] == 2, "it is borrowed, and so is its place in the queue"
    assert late.delayed_by is not None
    assert late.delayed_by.code == "overtaken"


def test_a_quote_counts_its_own_request_where_the_idle_rest_is_split() -> None:
    """Nobody else of its tenant asks for anything, so only its own request gives it a part."""
    limits = (a_limit("lab", 0, borrow=None, weight=0), a_limit("firm", 0, borrow=None, weight=1))
    lab = a_request(
        "b0", tier="flex", hours=4, submitted=-9, planned=a_planned_start(2 * HOUR, 4, whole("n1-0"))
    )
    held = (a_held("n1-0", starts=-60, ends=2 * HOUR),)
    site = a_snapshot(lab, fleet=gpus(1), limits=limits, held=held)
    asked = a_request("~", tier="flex", tenant="firm", project="p")
    given = starts(solve(replace(site, requests=(*site.requests, asked)), POLICY))["~"]
    (quoted,) = as_asked(Availability(site, POLICY), asked)
    assert (quoted.starts - NOON) // MINUTE == given == 120


def test_a_start_that_nothing_proves_is_not_firm_when_it_comes_near() -> None:
    """The second by which it would be late is here, and somebody ahead has the GPU later on."""
    at = 30 * MINUTE
    risky = a_request(
        "risky",
        hours=1,
        tier="spot",
        priority=10,
        latest=HOUR + 30,
        planned=a_planned_start(30, 1, whole("n1-0")),
    )
    ahead = a_request(
        "ahead",
        hours=1,
        tier="flex",
        earliest=at,
        planned=a_planned_start(at, 1, whole("n1-0"), strength="expected"),
    )
    plan = solve(a_snapshot(risky, ahead, fleet=gpus(1)), POLICY)
    assert starts(plan)["ahead"] == 30
    assert not plan.assigns


def test_a_claim_goes_round_the_planned_start_that_can_not_move() -> None:
    """One GPU is free until a planned start that has no other place; on the other one somebody can
    be paused, and the planned start there can move."""
    limits = (a_limit("lab", 2), a_limit("firm", 1), a_limit("other", 0, borrow=None))
    soon, late = 20 * MINUTE, 5 * HOUR
    stays = a_request(
        "stays",
        hours=1,
        priority=90,
        earliest=soon,
        planned=a_planned_start(soon, 1, whole("n1-0"), strength="guaranteed"),
    )
    moves = a_request(
        "moves",
        hours=1,
        tenant="firm",
        project="p",
        earliest=late,
        planned=a_planned_start(late, 1, whole("n1-1"), strength="guaranteed"),
    )
    claim = a_request("claim", hours=6, submitted=60)
    held = (
        *running("victim", whole("n1-1"), tenant="other", ends=4 * HOUR),
        replace(a_held("n1-2", starts=-60, ends=late - 600, tier="standard"), tenant="firm"),
    )
    site = a_snapshot(stays, moves, claim, held=held, fleet=gpus(3), limits=limits)
    plan = solve(site, POLICY)
    assert [pause.booking for pause in plan.pauses] == ["victim"]
    assert starts(plan)["claim"] < 20
    assert starts(plan)["moves"] == 300
    assert starts(plan)["stays"] == 20


def test_who_gets_a_start_after_all_is_named_by_those_that_it_makes_later() -> None:
    risky = a_request(
        "risky",
        hours=1,
        tier="flex",
        priority=60,
        latest=90 * MINUTE,
        planned=a_planned_start(30 * MINUTE, 1, whole("n1-0")),
    )
    second = a_planned_start(45 * MINUTE, 1, whole("n1-0"), strength="expected")
    behind = a_request("behind", hours=1, tier="flex", earliest=45 * MINUTE, planned=second)
    plan = solve(a_snapshot(risky, behind, fleet=gpus(1)), POLICY)
    assert starts(plan) == {"risky": 0, "behind": 60}
    (late,) = plan.waits
    assert late.delayed_by is not None
    assert (late.delayed_by.code, dict(late.delayed_by.numbers)["booking"]) == (
        "overtaken",
        "risky",
    )


def test_starts_of_two_classes_that_their_tenant_frees_get_their_turns_in_queue_order() -> None:
    """The second newcomer frees a start ahead of the one that the first has freed."""
    limits = (a_limit("lab", 2), a_limit("lab", 2, "a100"))
    late = 2 * HOUR

    def at(booking: str, gpu: str, *classes: str, submitted: int) -> Request:
        planned = a_planned_start(late, 1, whole(gpu), strength="guaranteed")
        return a_request(booking, an_ask(1, *classes), submitted=submitted, planned=planned)

    site = a_snapshot(
        a_request("new", submitted=-9, earliest=HOUR),
        a_request("new-2", an_ask(1, "a100"), submitted=-8, earliest=HOUR),
        at("ahead", "n2-0", "a100", submitted=-7),
        at("behind", "n1-0", submitted=-6),
        fleet=(*gpus(1), *gpus(1, node="n2", gpu_class="a100")),
        held=(a_held("n1-0", ends=late), a_held("n2-0", ends=late)),
        limits=limits,
    )
    assert starts(solve(site, POLICY)) == {"new": 120, "new-2": 120, "ahead": 180, "behind": 180}
