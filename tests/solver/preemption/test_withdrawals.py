"""A pause that nobody needs is withdrawn, unless a later planned start is in the way."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from solver import Extension, Held, Limit, Notice, Plan, Policy, Request, Snapshot, solve
from solver.model.inputs import Together
from solver.model.plan_parts import CHANGED, LEFT, Parts
from solver.model.policy import VICTIM_RULES
from solver.reasons.catalogue import BY_CODE
from tests.solver.builders import HOUR, NOON, POLICY, a_held, a_limit, a_planned_start, gpus, whole
from tests.solver.pausing import GRACE, a_claim, a_site, given, notices, running

NOTICE_ENDS = 10 * 60
ENDS = 6 * HOUR


def leaving(*gpu: str) -> tuple[Held, ...]:
    """A booking that ran to six in the evening and has notice to leave in ten minutes."""
    rows = running("notified", *map(whole, gpu), ends=NOTICE_ENDS)
    return tuple(replace(row, pausing=True) for row in rows)


def its_rest(*places: str, starts: int = NOTICE_ENDS) -> Request:
    """What it would resume with; with places, its planned resume."""
    planned = a_planned_start(starts, (ENDS - NOTICE_ENDS) / HOUR, *map(whole, places)) if places else None
    rest = a_claim("notified", max(1, len(places)), tier="flex", tenant="firm", earliest=NOTICE_ENDS)
    return replace(rest, duration=ENDS - NOTICE_ENDS, paused=True, pauses=1, planned=planned)


def guaranteed(booking: str, gpu: str, tenant: str = "lab") -> Request:
    """A claim with a guaranteed start there; an expected one would get another place."""
    planned = a_planned_start(HOUR, 1, whole(gpu), strength="guaranteed")
    return a_claim(booking, tenant=tenant, planned=planned)


def decided(
    *requests: Request, held: tuple[Held, ...], count: int = 1, limits: tuple[Limit, ...] = ()
) -> Plan:
    site: Snapshot = a_site(*requests, held=held, fleet=gpus(count), limits=limits)
    return solve(replace(site, unneeded=(Extension("notified", NOON + ENDS),)), POLICY)


def test_it_stays_and_wants_nothing_any_more() -> None:
    plan = decided(its_rest("n1-0", starts=2 * HOUR), held=leaving("n1-0"))
    assert plan.withdrawn == ("notified",)
    assert given(plan) == {}


def test_its_own_planned_start_to_go_on_is_not_in_its_way_but_its_room_is_in_that_of_others() -> None:
    plan = decided(its_rest("n1-0"), a_claim(), held=leaving("n1-0"))
    assert plan.withdrawn == ("notified",)
    # A newcomer starts when it ends; who may pause it asks in the next cycle.
    assert given(plan) == {"claim": ("wait", ENDS)}


def test_a_planned_start_that_was_given_since_stands_and_so_does_the_pause() -> None:
    promised = guaranteed("since", "n1-0")
    plan = decided(its_rest("n1-0", starts=2 * HOUR), promised, held=leaving("n1-0"))
    assert plan.withdrawn == ()
    assert given(plan)["since"] == ("wait", HOUR)
    assert "notified" in given(plan)


def test_a_planned_start_that_fits_elsewhere_at_its_own_start_gives_way() -> None:
    promised = a_claim("since", planned=a_planned_start(HOUR, 1, whole("n1-0")))
    plan = decided(its_rest(), promised, held=leaving("n1-0"), count=2)
    assert plan.withdrawn == ("notified",)
    assert given(plan) == {"since": ("assign", 0)}


def booked(gpu: str = "n1-0", *, level: Together | None = "any") -> Held:
    """A window later on, which is written and not frozen yet; without a level it can't move."""
    row = a_held(gpu, booking="booked", tenant="lab", starts=2 * HOUR, ends=3 * HOUR, level=level)
    return replace(row, project="lab-p", started=False)


@pytest.mark.parametrize("later", [None, "since"])
def test_a_written_window_that_fits_elsewhere_gives_way(later: str | None) -> None:
    """A window was given the place since; a planned start next to it gives way in the same step."""
    since = a_claim("since", planned=a_planned_start(4 * HOUR, 1, whole("n1-0"), strength="firm"))
    requests = (its_rest(), *((since,) if later else ()))
    plan = decided(*requests, held=(*leaving("n1-0"), booked()), count=2)
    assert plan.withdrawn == ("notified",)
    assert [(m.booking, m.places[0].gpu, m.starts - NOON) for m in plan.moves] == [
        ("booked", "n1-1", 2 * HOUR)
    ]


def test_a_written_window_that_fits_nowhere_else_stands_and_so_does_the_pause() -> None:
    other = running("other", whole("n1-1"), tenant="third", tier="standard")
    for held in ((booked(), *other), (booked(level=None),)):
        plan = decided(its_rest(), held=(*leaving("n1-0"), *held), count=2)
        assert (plan.withdrawn, plan.moves) == ((), ())


def test_the_withdrawal_is_written_only_with_the_move_that_makes_its_room() -> None:
    site = a_site(its_rest(), held=(*leaving("n1-0"), booked()), fleet=gpus(2))
    site = replace(site, unneeded=(Extension("notified", NOON + ENDS),))
    parts = Parts(solve(site, POLICY), site)
    assert parts.withheld({("move", "booked"): CHANGED}).keys() == {
        ("move", "booked"),
        ("withdrawal", "notified"),
    }
    assert parts.withheld({("move", "booked"): LEFT}).keys() == {("move", "booked")}


def test_a_limit_that_others_use_by_then_holds() -> None:
    limits = (a_limit("firm", 1),)
    since = guaranteed("since", "n1-1", tenant="firm")
    held = leaving("n1-0")
    assert decided(its_rest(), held=held, count=2, limits=limits).withdrawn == ("notified",)
    assert decided(its_rest(), since, held=held, count=2, limits=limits).withdrawn == ()


def test_a_tier_that_is_never_paused_since_keeps_what_it_borrowed() -> None:
    held = tuple(replace(row, tier="standard") for row in leaving("n1-0"))
    limits = (a_limit("firm", 0, borrow=None), a_limit("lab", 1))
    rest = replace(its_rest(), tier="standard")
    assert decided(rest, held=held, limits=limits).withdrawn == ("notified",)


def test_hardware_that_takes_no_new_work_keeps_who_runs_there() -> None:
    site = a_site(its_rest(), held=leaving("n1-0"), fleet=gpus(1, usable=False))
    plan = solve(replace(site, unneeded=(Extension("notified", NOON + ENDS),)), POLICY)
    assert plan.withdrawn == ("notified",)


def test_a_gang_stays_whole_or_goes_whole() -> None:
    held = leaving("n1-0", "n1-1")
    promised = guaranteed("since", "n1-1")
    assert decided(its_rest("n1-0", "n1-1"), held=held, count=2).withdrawn == ("notified",)
    assert decided(its_rest(), promised, held=held, count=2).withdrawn == ()


def awaited(*places: str, starts: int = NOTICE_ENDS, tenant: str = "lab") -> Request:
    """The claim that it has notice for, with its firm start there."""
    planned = a_planned_start(starts, 1, *map(whole, places), strength="firm")
    return a_claim("awaited", max(1, len(places)), planned=planned, tenant=tenant)


def found(
    *requests: Request,
    held: Iterable[Held] = (),
    away: str = "",
    count: int = 1,
    limits: tuple[Limit, ...] = (),
    firm: str = "firm",
    rule: str = "",
    policy: Policy = POLICY,
) -> Plan:
    """The plan of a site with a notice of which nothing says that it is not needed."""
    rest = replace(its_rest(), tenant=firm, project=f"{firm}-p")
    mine = tuple(replace(row, tenant=firm, project=f"{firm}-p") for row in leaving("n1-0"))
    fleet = tuple(replace(gpu, usable=gpu.id != away) for gpu in gpus(count))
    site = a_site(rest, *requests, held=(*mine, *held), fleet=fleet, limits=limits)
    notice = Notice("notified", "awaited", NOON + ENDS, rule)
    return solve(replace(site, notices=(notice,)), policy)


def test_a_notice_stays_while_its_claim_is_to_start_there() -> None:
    plan = found(awaited("n1-0"))
    assert plan.withdrawn == ()
    assert given(plan)["awaited"] == ("wait", NOTICE_ENDS)


def test_it_is_withdrawn_when_its_claim_waits_no_more() -> None:
    """It is stopped, its project is closed, or its approval is asked for again."""
    assert found().withdrawn == ("notified",)


@pytest.mark.parametrize("tenant", ["lab", "firm"])
def test_it_is_withdrawn_when_a_limit_of_its_claim_is_cut(tenant: str) -> None:
    """Also a limit that is now below what the one with notice has itself."""
    claim = awaited("n1-0", tenant=tenant)
    enough = (a_limit(tenant, 1),)
    assert found(claim, limits=enough).withdrawn == ()
    plan = found(claim, limits=(a_limit(tenant, 0),))
    assert plan.withdrawn == ("notified",)
    assert notices(plan) == {}


@pytest.mark.parametrize(
    ("code", "tenant", "rule"),
    [
        ("taken_back", "lab", "taken_back"),
        ("taken_back", "firm", "own_part"),
        ("higher_tier", "firm", "higher_tier"),
        ("fairer_share", "lab", "fairer_share"),
    ],
)
def test_it_is_withdrawn_when_the_policy_drops_its_rule(code: str, tenant: str, rule: str) -> None:
    claim = awaited("n1-0", tenant=tenant)
    others = tuple(each for each in VICTIM_RULES if each != rule)
    for left, expected in ((others, ("notified",)), (VICTIM_RULES, ()), ((rule,), ())):
        policy = replace(POLICY, victim_rules=left)
        plan = found(claim, rule=BY_CODE[code].id, policy=policy)
        assert plan.withdrawn == expected, left
    plan = found(claim, rule=BY_CODE[code].id, policy=replace(POLICY, victim_rules=()))
    assert given(plan)["awaited"] == ("wait", ENDS)


def test_it_is_withdrawn_when_its_claim_became_impossible() -> None:
    claim = replace(awaited("n1-0"), latest=NOON + NOTICE_ENDS + HOUR - 1)
    plan = found(claim)
    assert plan.withdrawn == ("notified",)


def test_it_is_withdrawn_when_its_claim_has_room_elsewhere() -> None:
    plan = found(awaited("n1-0"), count=2)
    assert plan.withdrawn == ("notified",)
    assert given(plan) == {"awaited": ("assign", 0)}


def test_it_is_withdrawn_when_its_claim_was_moved_to_another_gpu() -> None:
    assert found(awaited("n1-1"), count=2).withdrawn == ("notified",)


def test_it_is_withdrawn_when_its_node_is_drained() -> None:
    """It ends at its own time there, and its claim can't start there any more."""
    other = running("other", whole("n1-1"), tenant="third", tier="standard")
    plan = found(awaited("n1-0"), held=other, away="n1-0", count=2)
    assert plan.withdrawn == ("notified",)
    assert given(plan)["awaited"][1] == ENDS


def test_it_is_withdrawn_when_another_gpu_of_its_claim_is_lost() -> None:
    plan = found(awaited("n1-0", "n1-1"), away="n1-1", count=2)
    assert plan.withdrawn == ("notified",)


def test_it_stays_when_its_claim_takes_another_gpu_instead_of_the_lost_one() -> None:
    """The claim is placed anew at the same second, with the room of the one that leaves."""
    plan = found(awaited("n1-0", "n1-1"), away="n1-1", count=3)
    assert plan.withdrawn == ()
    assert given(plan)["awaited"] == ("wait", NOTICE_ENDS)


def test_it_stays_when_a_new_notice_would_be_as_late() -> None:
    """Its claim can start a minute later, and a new notice would follow at once."""
    late = running("late", whole("n1-1"), tenant="third", tier="standard", ends=120)
    rest = replace(its_rest(), earliest=NOON + 60)
    mine = tuple(replace(row, ends=NOON + 60) for row in leaving("n1-0"))
    claim = awaited("n1-0", "n1-1", starts=60)
    site = a_site(rest, claim, held=(*mine, *late), fleet=gpus(2))
    site = replace(site, notices=(Notice("notified", "awaited", NOON + ENDS),))
    plan = solve(site, POLICY)
    assert plan.withdrawn == ()
    assert 60 < given(plan)["awaited"][1] <= GRACE + POLICY.notice_margin


def test_each_notice_is_about_its_own_claim() -> None:
    second = running("second", whole("n1-1"), tenant="firm", ends=NOTICE_ENDS)
    held = (*leaving("n1-0"), *(replace(row, pausing=True) for row in second))
    rest = replace(its_rest(), booking="second", duration=HOUR)
    site = a_site(its_rest(), rest, awaited("n1-0"), held=held, fleet=gpus(2))
    open_notices = (
        Notice("notified", "awaited", NOON + ENDS),
        Notice("second", "stopped", NOON + NOTICE_ENDS + HOUR),
    )
    plan = solve(replace(site, notices=open_notices), POLICY)
    assert plan.withdrawn == ("second",)
    assert given(plan)["awaited"] == ("wait", NOTICE_ENDS)
