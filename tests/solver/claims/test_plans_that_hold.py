"""Plans that are true in the next cycle, too, and starts that move only after it was said that they
may."""

from dataclasses import replace

from solver import Cap, Request, Snapshot, solve
from solver.model.inputs import Strength
from solver.rebinding.rebinding import Rebinding
from solver.state.cycle_state import CycleState
from tests.solver import truth
from tests.solver.builders import DAY, HOUR, NOON, POLICY, a_limit, a_planned_start, gpus, whole
from tests.solver.pausing import a_claim, a_site, given, later, rest_of, running

QUARTER = HOUR // 4


def test_a_start_that_may_pause_nobody_any_more_is_placed_anew_in_the_same_plan() -> None:
    """An end frees a GPU early, and the own tenant's next booking starts there at once. When the
    one behind it wants to start, their guarantee is in use, so nobody is paused for it."""
    limits = (a_limit("lab", 2, borrow=None, weight=0), a_limit("firm", 0, borrow=None))
    victim = running("victim", whole("n1-0"), ends=8 * HOUR)
    own = running("own", whole("n1-1"), tenant="lab", tier="standard", ends=5 * HOUR)
    first = running("first", whole("n1-2"), tenant="lab", tier="standard", ends=HOUR)
    follower = a_claim("follower", hours=0.5)
    more = a_claim("more", tier="flex", hours=2, earliest=5 * QUARTER - 300)
    site = a_site(follower, more, held=(*victim, *own, *first), fleet=gpus(3), limits=limits)
    plan = solve(site, POLICY)
    assert given(plan) == {
        "follower": ("wait", HOUR),
        "more": ("wait", 5 * QUARTER - 300),
    }
    early = later(site, plan, 3 * QUARTER)
    plan = solve(replace(early, held=(*victim, *own)), POLICY)
    assert given(plan) == {
        "follower": ("assign", 3 * QUARTER),
        "more": ("wait", 5 * QUARTER),
    }
    why = plan.waits[0].delayed_by
    assert why is not None
    assert (why.code, dict(why.numbers)) == (
        "overtaken",
        {"booking": "follower", "own_tenant": 1, "rule": "guarantee"},
    )
    assert plan.waits[0].ends - NOON == 13 * QUARTER


def test_a_start_that_was_guaranteed_is_said_to_be_expected_before_another_tenant_takes_it() -> None:
    """Own work that is about to start takes the guarantee of a later own start."""
    limits = (a_limit("lab", 1, borrow=None), a_limit("firm", 1))
    near = a_claim("near", tier="flex", hours=4)
    near = replace(near, planned=a_planned_start(30, 4, whole("n1-0"), strength="expected"))
    kept = a_claim("kept", tier="flex", hours=1, earliest=2 * HOUR)
    kept = replace(kept, planned=a_planned_start(2 * HOUR, 1, whole("n1-1"), strength="guaranteed"))
    claim = a_claim("claim", tenant="firm", hours=6)
    site = a_site(near, kept, claim, fleet=gpus(2), limits=limits)
    plan = solve(site, POLICY)
    assert given(plan)["kept"] == ("wait", 2 * HOUR)
    strengths = {row.booking: row.strength for row in plan.waits}
    assert strengths["kept"] == "expected"
    started = running("near", whole("n1-0"), tenant="lab", since=0, ends=4 * HOUR)
    plan = solve(replace(later(site, plan, 5), held=started), POLICY)
    assert given(plan) == {"claim": ("assign", 5), "kept": ("wait", 4 * HOUR)}


def test_a_resume_goes_before_planned_starts_that_are_behind_it_in_the_queue() -> None:
    """The claim was planned before, so nobody has made way in this cycle yet."""
    limits = (a_limit("lab", 1), a_limit("firm", 0, borrow=None), a_limit("hub", 0, borrow=None))
    victim = running("victim", whole("n1-0"), ends=6 * HOUR)
    other = running("other", whole("n1-1"), tenant="guest", tier="standard", ends=HOUR)
    claim = a_claim("claim", hours=3, submitted=-60)
    claim = replace(claim, planned=a_planned_start(300, 3, whole("n1-0"), strength="guaranteed"))
    spot = a_claim("spot", tenant="hub", tier="spot", hours=4)
    spot = replace(spot, planned=a_planned_start(HOUR, 4, whole("n1-1"), strength="expected"))
    site = a_site(claim, spot, held=(*victim, *other), fleet=gpus(2), limits=limits, now=150)
    plan = solve(replace(site, running=(rest_of(victim, site.now),)), POLICY)
    assert [(each.booking, each.at - NOON) for each in plan.pauses] == [("victim", 300)]
    starts = given(plan)
    assert (starts["victim"], starts["spot"]) == (("wait", HOUR), ("wait", 3 * HOUR + 300))
    why = next(row.delayed_by for row in plan.waits if row.booking == "spot")
    assert why is not None
    assert dict(why.numbers)["rule"] == "tier"


def test_a_pause_gives_back_gpu_hours_to_the_second() -> None:
    """Room opens on the grid, up to five minutes after the victim would have ended."""
    ends, whole_day = 2 * HOUR + 1, (NOON - DAY // 2, NOON + DAY // 2)
    victim = running("victim", whole("n1-0"), tenant="lab", ends=ends)
    cap = Cap("lab", "h100", (HOUR + ends + HOUR - 100) * 56_000, *whole_day)
    limits = (a_limit("lab", 1, borrow=None),)
    site = a_site(a_claim("claim"), held=victim, fleet=gpus(1), limits=limits, caps=(cap,))
    plan = solve(replace(site, running=(rest_of(victim, site.now),)), POLICY)
    (pause,) = plan.pauses
    rows = truth.given_by(plan)
    booked = [(NOON - HOUR, pause.at), *((row.starts, row.ends) for row in rows)]
    assert sum(min(until, cap.ends) - since for since, until in booked) * 56_000 == cap.most


def test_a_start_within_the_guarantee_goes_when_own_work_ahead_takes_the_guarantee() -> None:
    limits = (a_limit("lab", 1, borrow=None), a_limit("firm", 1, borrow=None))
    low = replace(a_claim("low", tier="flex", hours=2, earliest=HOUR), within=True)
    planned = a_planned_start(HOUR, 2, whole("n1-0"), strength="guaranteed")
    ahead = a_claim("ahead", tier="assured", hours=1, earliest=2 * HOUR)
    site = a_site(replace(low, planned=planned), ahead, fleet=gpus(2), limits=limits)
    plan = solve(site, POLICY)
    assert given(plan) == {"ahead": ("wait", 2 * HOUR), "low": ("wait", 3 * HOUR)}
    why = next(row.delayed_by for row in plan.waits if row.booking == "low")
    assert why is not None
    assert why.code == "overtaken"


def test_hours_of_a_later_start_do_not_push_out_an_earlier_one() -> None:
    """A cap of hours counts all that starts later, so what was planned first is over it alone."""
    limits = (a_limit("lab", 1, borrow=None), a_limit("firm", 1, borrow=None))
    low = replace(a_claim("low", tier="flex", hours=2, earliest=HOUR), within=True)
    low = replace(low, planned=a_planned_start(HOUR, 2, whole("n1-0"), strength="guaranteed"))
    week = a_claim("week", tier="assured", hours=2, earliest=7 * DAY)
    week = replace(week, planned=a_planned_start(7 * DAY, 2, whole("n1-0"), strength="guaranteed"))
    newcomer = a_claim("newcomer", tenant="firm", tier="assured", hours=1)
    cap = Cap("lab", "h100", 3 * HOUR * 56_000, 0, 0, rolling_days=2)
    site = a_site(low, week, newcomer, fleet=gpus(2), limits=limits, caps=(cap,))
    starts = given(solve(site, POLICY))
    assert starts["newcomer"] == ("assign", 0)
    assert (starts["low"], starts["week"]) == (("wait", HOUR), ("wait", 7 * DAY))


def test_a_booking_that_is_refused_leaves_no_attempts_to_move_others() -> None:
    """Else a planned start behind it would get earlier by its refusal."""
    site = a_site(fleet=gpus(2))
    rebinding = Rebinding(CycleState(site, POLICY), site)
    before = rebinding.attempts
    rebinding.open_to_newcomers()
    opened = rebinding.attempts
    rebinding.open_to_newcomers()
    assert rebinding.attempts == opened != before
    rebinding.attempts = before
    rebinding.open_to_newcomers()
    assert rebinding.attempts == opened


def test_a_newcomer_behind_others_brings_them_no_attempts_to_move_places() -> None:
    """`moved` would start at 3,000 if two places changed, which only a proof search finds."""
    fleet = (*gpus(2), *gpus(2, node="n2"))
    limits = (a_limit("lab", 2, borrow=None), a_limit("firm", 1, borrow=None))
    held = running("run", whole("n2-0"), tenant="lab", tier="standard", since=-5_700, ends=5_400)
    hours = {"prem": 3, "late": 1.5, "moved": 0.75, "long": 6, "near": 0.75}
    prem = a_claim("prem", tier="assured", hours=3, earliest=100, submitted=-7_000)
    late = a_claim("late", hours=1.5, earliest=-2_387, submitted=-5_000)
    moved = a_claim("moved", tenant="firm", tier="flex", hours=0.75, earliest=3_000, submitted=-4_000)
    long = a_claim("long", tenant="firm", hours=6, earliest=-1_000, submitted=-1_500)
    near = a_claim("near", tier="flex", hours=0.75, earliest=100, submitted=-1_200)
    planned: tuple[tuple[Request, int, str, Strength], ...] = (
        (prem, 300, "n1-0", "guaranteed"),
        (late, 6_000, "n1-1", "guaranteed"),
        (moved, 6_000, "n2-0", "expected"),
        (long, 4_800, "n2-1", "guaranteed"),
        (near, 300, "n2-1", "expected"),
    )
    requests = [
        replace(row, planned=a_planned_start(at, hours[row.booking], whole(gpu), strength=strength))
        for row, at, gpu, strength in planned
    ]
    site = a_site(*requests, held=held, fleet=fleet, limits=limits)
    kept = a_claim("kept", hours=1.5, earliest=600, submitted=-1_000)
    kept = replace(kept, until=NOON + 2 * HOUR, planned=a_planned_start(3 * HOUR, 1.5, whole("n2-0")))
    site = replace(site, pending=(kept,))
    last = a_claim("last", tenant="hub", tier="spot", hours=1.4)
    starts = given(solve(site, POLICY))
    assert starts["moved"] == ("wait", 5_400)
    after = given(solve(replace(site, requests=(*site.requests, last)), POLICY))
    assert after == starts | {"last": ("wait", 8_100)}


def test_a_start_within_the_guarantee_behind_own_work_names_no_limit_that_was_cut() -> None:
    """Their order has changed: the other one, which may borrow, is ahead now."""
    held = running("run", whole("n1-0"), tenant="lab", tier="standard", ends=8 * HOUR)
    ahead = a_claim("ahead", tier="flex", hours=2, submitted=-60)
    within = replace(a_claim("within", tier="flex", hours=2), within=True)
    ahead, within = (
        replace(row, planned=a_planned_start(HOUR, 2, whole(gpu), strength="expected"))
        for row, gpu in ((ahead, "n1-1"), (within, "n1-2"))
    )
    site = a_site(ahead, within, held=held, fleet=gpus(3), limits=(a_limit("lab", 2, borrow=None),))
    site = replace(site, requests=tuple(replace(r, earliest=NOON + HOUR) for r in site.requests))

    def why(site: Snapshot) -> tuple[str, dict[str, object]]:
        plan = solve(site, POLICY)
        found = next(row.delayed_by for row in plan.waits if row.booking == "within")
        assert found is not None
        return found.code, dict(found.numbers)

    assert why(site) == ("overtaken", {"own_tenant": 1, "rule": "guarantee"})
    assert why(replace(site, limits=(a_limit("lab", 1, borrow=None),)))[0] == "quota_cut"


def test_a_guaranteed_start_behind_a_resume_of_its_own_organisation_names_no_limit_that_was_cut() -> None:
    """The resumed booking had no notice yet when the start was planned, so its rest did not count."""
    victim = running("victim", whole("n1-0"), ends=8 * HOUR)
    resumed = running("resumed", whole("n1-1"), tenant="lab", tier="standard", ends=8 * HOUR)
    resumed = tuple(replace(row, pauses=1) for row in resumed)
    planned = a_planned_start(HOUR, 2, whole("n1-0"), strength="guaranteed")
    claim = replace(a_claim("claim", tier="flex", hours=2, earliest=HOUR), planned=planned)
    limits = (a_limit("lab", 1, borrow=None), a_limit("firm", 0, borrow=None))
    site = a_site(claim, held=(*victim, *resumed), fleet=gpus(2), limits=limits)

    def why(site: Snapshot) -> tuple[str, dict[str, object]]:
        (wait,) = solve(site, POLICY).waits
        assert wait.starts == NOON + 8 * HOUR
        assert wait.delayed_by is not None
        return wait.delayed_by.code, dict(wait.delayed_by.numbers)

    assert why(site) == ("overtaken", {"own_tenant": 1, "rule": "guarantee"})
    cut = (a_limit("lab", 0, borrow=None), a_limit("firm", 0, borrow=None))
    assert why(replace(site, limits=cut)) == ("quota_cut", {})
