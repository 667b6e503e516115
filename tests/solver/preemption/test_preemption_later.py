"""Pauses over time: notice ahead of a start, and resumes."""

from dataclasses import replace

from solver import PlannedStart, Request, Snapshot, solve
from tests.solver.builders import DAY, HOUR, NOON, POLICY, a_limit, gpus, whole
from tests.solver.pausing import GRACE, a_claim, a_site, given, later, notices, rest_of, running

LENDER = (a_limit("lab", 4, borrow=0), a_limit("firm", 0, borrow=None))


FOUR = tuple(whole(f"n1-{n}") for n in range(4))


def lent(*requests, now: int = 0, **more) -> Snapshot:  # type: ignore[no-untyped-def]  # as a_claim
    """Four GPUs guaranteed to lab, all of them borrowed by two bookings of firm."""
    held = (*running("old", *FOUR[:2], since=-2 * HOUR), *running("young", *FOUR[2:]))
    more = {"held": held, "fleet": gpus(4), "limits": LENDER, **more}
    return a_site(*requests, now=now, **more)


class TestLeadTime:
    request = 2 * HOUR

    def test_the_worked_situation_of_a_lender_that_comes_back_in_two_hours(self) -> None:
        site = lent(a_claim(count=2, earliest=self.request))
        plan = solve(site, POLICY)
        assert notices(plan) == {}
        assert given(plan) == {"claim": ("wait", self.request)}
        assert {row.booking: row.at_risk_from for row in plan.borrows} == {
            "old": NOON + self.request,
            "young": NOON + self.request,
        }
        places = plan.waits[0].places
        notice = self.request - GRACE - POLICY.notice_margin
        for now in (5, 60, HOUR, notice - 1):
            site = later(site, plan, now)
            plan = solve(site, POLICY)
            assert notices(plan) == {}
            assert plan.waits[0].places == places
            assert given(plan) == {"claim": ("wait", self.request)}
        plan = solve(later(site, plan, notice), POLICY)
        assert notices(plan) == {"young": ("claim", self.request)}
        assert given(plan) == {"claim": ("wait", self.request)}

    def test_a_fixed_window_waits_with_its_own_window_until_the_notice(self) -> None:
        site = lent(a_claim(count=2, earliest=self.request, fixed=True))
        plan = solve(site, POLICY)
        assert (given(plan), notices(plan)) == ({"claim": ("wait", self.request)}, {})
        site = later(site, plan, self.request - GRACE - POLICY.notice_margin)
        plan = solve(site, POLICY)
        assert notices(plan) == {"young": ("claim", self.request)}
        assert given(plan) == {"claim": ("assign", self.request)}

    def test_a_fixed_window_too_near_for_the_notice_gets_what_is_left_of_it(self) -> None:
        plan = solve(lent(a_claim(count=2, fixed=True)), POLICY)
        assert notices(plan) == {"young": ("claim", GRACE)}
        (row,) = plan.assigns
        assert (row.starts, row.ends) == (NOON + GRACE, NOON + HOUR)

    def test_a_start_that_waits_for_the_end_of_a_cool_down_says_so(self) -> None:
        """Both have resumed a minute ago. A start hours later has another cause."""
        rows = (*running("old", *FOUR[:2], since=-60), *running("young", *FOUR[2:], since=-60))
        held = tuple(replace(row, pauses=1) for row in rows)
        rests = NOON - 60 + POLICY.cool_down
        for earliest, until in ((0, rests), (self.request, None)):
            plan = solve(lent(a_claim(count=2, earliest=earliest), held=held), POLICY)
            (why,) = (each for each in plan.waits[0].reasons if each.code == "makes_room")
            assert (why.facts["unnotified"], why.facts.get("until")) == (1, until)
            assert plan.waits[0].starts >= rests

    def test_a_notice_that_comes_late_moves_the_start_and_says_so(self) -> None:
        site = lent(a_claim(count=2, earliest=self.request))
        plan = solve(later(site, solve(site, POLICY), self.request - 60), POLICY)
        assert notices(plan) == {"young": ("claim", self.request - 60 + GRACE)}
        assert plan.waits[0].delayed_by is not None

    def test_no_booking_is_named_when_a_lower_guarantee_lets_it_pause_nobody(self) -> None:
        site = lent(a_claim(count=2, earliest=self.request, tier="flex"))
        site = later(site, solve(site, POLICY), 5)
        assert site.requests[0].planned is not None
        assert site.requests[0].planned.strength == "expected", "its victim has no notice yet"
        limits = (a_limit("lab", 0, borrow=None, weight=0), LENDER[1])
        (wait,) = solve(replace(site, limits=limits), POLICY).waits
        assert wait.starts > NOON + self.request
        assert wait.delayed_by is not None
        assert wait.delayed_by.code == "overtaken", "no rule lets it pause the victim any more"
        assert "booking" not in wait.delayed_by.facts

    def test_newcomers_do_not_take_the_room(self) -> None:
        site = lent(a_claim(count=2, earliest=self.request, hours=9))
        plan = solve(site, POLICY)
        newcomer = a_claim("new", 4, hours=5, submitted=5)
        limits = (a_limit("lab", 8, borrow=0), LENDER[1])
        site = later(replace(site, limits=limits), plan, 5)
        after = solve(replace(site, requests=(*site.requests, newcomer)), POLICY)
        assert given(after)["claim"] == ("wait", self.request)
        assert given(after)["new"][1] >= self.request + 9 * HOUR

    def test_a_start_elsewhere_at_the_same_time_saves_the_pause(self) -> None:
        site = lent(a_claim(count=2, earliest=self.request))
        site = later(site, solve(site, POLICY), 5)
        plan = solve(replace(site, gpus=gpus(6)), POLICY)
        assert {place.gpu for place in plan.waits[0].places} == {"n1-4", "n1-5"}
        assert not any(why.code == "makes_room" for why in plan.waits[0].reasons)

    def test_who_is_cheapest_when_the_notice_is_due_is_paused(self) -> None:
        site = lent(a_claim(count=2, earliest=self.request))
        plan = solve(site, POLICY)
        site = later(site, plan, self.request - GRACE)
        held = tuple(replace(row, saved=site.now - 60) if row.booking == "old" else row for row in site.held)
        assert list(notices(solve(replace(site, held=held), POLICY))) == ["old"]


class TestGoingOn:
    def test_who_is_told_gets_a_planned_resume_in_the_same_plan(self) -> None:
        site = lent(a_claim(count=2))
        site = replace(site, running=(rest_of(site.held[2:], site.now),))
        plan = solve(site, POLICY)
        assert notices(plan) == {"young": ("claim", GRACE)}
        (resume,) = (row for row in plan.waits if row.booking == "young")
        assert resume.starts == NOON + HOUR + 300  # GRACE + HOUR, on the grid
        assert resume.ends - resume.starts == 6 * HOUR - GRACE

    def paused(self, **more) -> Request:  # type: ignore[no-untyped-def]  # as a_claim
        request = a_claim("p", tier="flex", tenant="firm", **more)
        return replace(request, paused=True, pauses=1)

    def full(self, *requests, ends: int = DAY) -> Snapshot:  # type: ignore[no-untyped-def]
        held = running("x", *FOUR, tenant="lab", tier="standard", ends=ends)
        return a_site(*requests, held=held, fleet=gpus(4), limits=LENDER)

    def test_a_window_that_shrinks_while_it_waits_is_given_what_is_left(self) -> None:
        site = self.full(self.paused(hours=3, latest=3 * HOUR), ends=HOUR)
        (wait,) = solve(site, POLICY).waits
        assert (wait.starts, wait.ends) == (NOON + HOUR, NOON + 3 * HOUR)
        planned = PlannedStart(wait.starts, wait.ends, wait.places, wait.strength)
        shorter = replace(self.paused(hours=2.5, latest=3 * HOUR), planned=planned)
        again = solve(replace(site, now=NOON + HOUR // 2, requests=(shorter,)), POLICY)
        assert again.waits[0].delayed_by is None
        assert (again.waits[0].starts, again.waits[0].ends) == (wait.starts, wait.ends)

    def test_it_is_kept_waiting_while_its_deadline_lets_it(self) -> None:
        site = self.full(self.paused(hours=3, latest=3 * HOUR))
        plan = solve(site, POLICY)
        assert (plan.refusals, len(plan.waits)) == ((), 1)
        assert plan.waits[0].ends <= NOON + 3 * HOUR
        over = solve(replace(site, now=NOON + 3 * HOUR), POLICY)
        assert [row.booking for row in over.refusals] == ["p"]

    def test_it_is_kept_waiting_when_no_start_is_in_sight(self) -> None:
        plan = solve(self.full(self.paused(), ends=60 * DAY), POLICY)
        assert (plan.refusals, len(plan.waits)) == ((), 1)


def test_a_planned_start_in_the_way_of_a_guarantee_may_have_somebody_paused_at_its_second() -> None:
    """The planned start of lab keeps its second, not its GPU: its own flex work leaves for it, and
    what firm is guaranteed starts now."""
    limits = (a_limit("lab", 1, borrow=None), a_limit("firm", 1, borrow=None))
    held = running("flexible", whole("n1-0"), tenant="lab", ends=9 * HOUR)
    later_start = a_claim("planned", earliest=2 * HOUR, tier="assured")
    site = a_site(later_start, held=held, fleet=gpus(2), limits=limits)
    site = later(site, solve(site, POLICY), 5)
    assert [place.gpu for place in site.requests[0].planned.places] == ["n1-1"]  # type: ignore[union-attr]
    ask = a_claim("claim", hours=4, tenant="firm", submitted=5)
    plan = solve(replace(site, requests=(*site.requests, ask)), POLICY)
    assert given(plan) == {"claim": ("assign", 5), "planned": ("wait", 2 * HOUR)}
    assert notices(plan) == {}
    (wait,) = plan.waits
    assert [place.gpu for place in wait.places] == ["n1-0"]
    assert wait.reasons[0].code == "makes_room"
    # The notice is given in its time, and the start stays where it was.
    end = 2 * HOUR - GRACE - POLICY.notice_margin
    site = replace(later(site, plan, end), held=(*held, *running("claim", whole("n1-1"))))
    plan = solve(site, POLICY)
    assert notices(plan) == {"flexible": ("planned", 2 * HOUR)}
    assert given(plan)["planned"] == ("wait", 2 * HOUR)
