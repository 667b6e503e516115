"""Quota: the algebra's worked checks, over time, and what it says."""

from dataclasses import replace

import pytest
from hypothesis import strategies as st

from solver import (
    Assign,
    Cap,
    Limit,
    Plan,
    Reason,
    Refuse,
    Request,
    Used,
    Waiting,
    solve,
)
from solver.model.inputs import Held
from solver.model.limits import Override
from solver.quota.gpu_hour_caps import GpuHourCaps
from solver.quota.limits import guarantee_tree, lending_tree
from solver.quota.tree import PLATFORM, Node, Tree
from solver.timeline.grid import Grid
from tests.rings import holds_for
from tests.solver.builders import (
    DAY,
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
from tests.solver.truth import given_by, over_limit

GPU = 56_000


def available(nodes: dict[str, Node], usage: dict[str, int], owner: str) -> int:
    """What the owner may still use at an instant; negative after a quota cut.

    `usage` is the use of each node; a parent's includes what it sees of its children.
    """
    node, used = nodes[owner], usage.get(owner, 0)
    if node.parent not in nodes:
        return node.cap - used
    above = available(nodes, usage, node.parent)
    through = node.cap - node.local - max(0, used - node.local)
    return max(0, node.local - used) + min(above, through)


def answer(plan: Plan, booking: str = "b1") -> tuple[Reason, ...]:
    """The reasons that a booking got."""
    rows: list[Assign | Waiting | Refuse] = [*plan.assigns, *plan.waits, *plan.refusals]
    return next(row.reasons for row in rows if row.booking == booking)


def starts(plan: Plan) -> dict[str, int]:
    """Start of everything that got one, in seconds from noon."""
    return {each.booking: each.starts - NOON for each in given_by(plan)}


def a_flex(booking: str, count: int, tenant: str = "a", **more: object) -> Request:
    """Whole GPUs in the tier that borrows."""
    ask = an_ask(count)
    return a_request(booking, ask, tier="flex", tenant=tenant, project=f"{tenant}-x", **more)  # type: ignore[arg-type]  # as a_request takes


def running(count: int, tenant: str, *, first: int = 0, ends: int = HOUR, tier: str) -> tuple[Held, ...]:
    """`count` GPUs of the first node in use by a tenant, each a booking."""
    return tuple(
        a_held(f"n1-{first + n}", ends=ends, tenant=tenant, project=f"{tenant}-x", tier=tier)
        for n in range(count)
    )


class TestAlgebra:
    """A is guaranteed 9 and B 12, B is idle: the checks of the design page, from Kueue."""

    @pytest.mark.parametrize(
        ("a", "b", "may_use"),
        [
            (a_limit("a", 9, borrow=None), a_limit("b", 12, borrow=None), 21),
            (a_limit("a", 9, borrow=1), a_limit("b", 12, borrow=None), 10),
            (a_limit("a", 9, borrow=None), a_limit("b", 12, borrow=None, lend=1), 10),
        ],
        ids=["no limits", "a borrows at most 1", "b lends at most 1"],
    )
    def test_what_a_may_use_while_b_is_idle(self, a: Limit, b: Limit, may_use: int) -> None:
        assert available(lending_tree((a, b), 21 * GPU), {}, "a") == may_use * GPU

    def test_what_is_lent_down_a_tenant_s_split(self) -> None:
        """T is guaranteed 6, its project P 4 of which it lends 1: Q may have 3, P 6."""
        tree = lending_tree(
            (
                a_limit("t", 6),
                a_limit("p", 4, parent="t", borrow=None, lend=1),
                a_limit("q", 0, parent="t", borrow=None),
            ),
            6 * GPU,
        )
        assert available(tree, {}, "q") == 3 * GPU
        assert available(tree, {}, "p") == 6 * GPU

    def test_after_a_cut_it_is_negative(self) -> None:
        tree = lending_tree((a_limit("a", 2),), 8 * GPU)
        assert available(tree, {"a": 3 * GPU, PLATFORM: 3 * GPU}, "a") == -GPU

    def test_what_no_tenant_is_guaranteed_can_be_borrowed(self) -> None:
        tree = lending_tree((a_limit("a", 2, borrow=None),), 8 * GPU)
        assert available(tree, {}, "a") == 8 * GPU

    def test_sure_is_what_the_tenant_is_guaranteed_up_to_the_projects_limit(self) -> None:
        tree = guarantee_tree((a_limit("t", 6), a_limit("p", 4, parent="t", borrow=1)))
        assert available(tree, {}, "p") == 5 * GPU
        assert available(tree, {"t": 2 * GPU}, "p") == 4 * GPU

    def test_sure_is_also_what_other_projects_lend_and_leave_idle(self) -> None:
        rows = (a_limit("t", 4), a_limit("p", 2, parent="t", borrow=None))
        open_handed = guarantee_tree((*rows, a_limit("q", 2, parent="t")))
        assert available(open_handed, {}, "p") == 4 * GPU
        assert available(open_handed, {}, "t") == 4 * GPU, "a project without a limit of its own"
        keeps = guarantee_tree((*rows, a_limit("q", 2, parent="t", lend=0)))
        assert available(keeps, {}, "p") == 2 * GPU
        assert available(keeps, {"t": 2 * GPU, "p": 2 * GPU}, "q") == 2 * GPU


some = st.integers(0, 6)


@holds_for(
    some,
    some | st.none(),
    some | st.none(),
    some | st.none(),
    st.lists(some, max_size=6),
    few=200,
    many=2_000,
)
def test_the_tree_over_time_agrees_with_the_formula(
    own: int, borrow: int | None, lend: int | None, project_lend: int | None, used: list[int]
) -> None:
    limits = (
        a_limit("a", 6, borrow=borrow, lend=lend),
        a_limit("p", own, parent="a", borrow=None, lend=project_lend),
        a_limit("q", 6 - own, parent="a", borrow=None, lend=project_lend),
        a_limit("b", 6, borrow=None, lend=lend),
    )
    nodes = lending_tree(limits, 14 * GPU)
    tree = Tree(nodes, Grid(NOON))
    for number, units in enumerate(used):
        owners = (("a", "p"), ("a", "q"), ("b",))[number % 3]
        way = tree.path_up(owners)
        if tree.over(way, units * GPU, (NOON, NOON + HOUR)) is None:
            tree.add(way, units * GPU, (NOON, NOON + HOUR))
    now = (NOON, NOON + 1)
    usage = {owner: tree.peak(owner, now) for owner in nodes}
    for owners in (("a", "p"), ("a", "q"), ("b",)):
        way = tree.path_up(owners)
        left = available(nodes, usage, owners[-1])
        assert tree.room(way, now) == max(0, left)
        for hour in (0, HOUR):
            tree.add(way, GPU, (NOON + hour, NOON + hour + HOUR))
        for hour in (0, HOUR):
            tree.add(way, -GPU, (NOON + hour, NOON + hour + HOUR))
        assert {owner: tree.peak(owner, now) for owner in nodes} == usage, "undone exactly"


class TestTiers:
    LIMITS = (a_limit("a", 4, borrow=4), a_limit("b", 4, borrow=4))

    def test_what_is_never_paused_stays_within_the_guarantee(self) -> None:
        plan = solve(
            a_snapshot(a_request("b1", an_ask(5), tenant="a", project="x"), limits=self.LIMITS),
            POLICY,
        )
        (why, *_) = answer(plan)
        assert (why.code, why.facts["guaranteed"]) == ("guarantee_only", 4 * GPU)
        assert (why.facts["used"], why.facts["asked"]) == (0, 5 * GPU)

    def test_what_can_be_paused_borrows_and_is_told_how_much(self) -> None:
        plan = solve(a_snapshot(a_flex("b1", 6), limits=self.LIMITS), POLICY)
        assert starts(plan) == {"b1": 0}
        assert answer(plan)[-1].facts == {"own": 4 * GPU, "borrowed": 2 * GPU}
        (borrow,) = plan.borrows
        assert (borrow.own, borrow.borrowed, borrow.at_risk_from) == (4 * GPU, 2 * GPU, None)

    def test_a_request_within_guarantees_waits_for_its_own(self) -> None:
        held = running(3, "a", tier="flex", ends=2 * HOUR)
        flex = replace(a_flex("b1", 2), within=True)
        spot = replace(flex, booking="b2", tier="spot")
        plan = solve(a_snapshot(flex, spot, held=held, limits=self.LIMITS), POLICY)
        assert starts(plan) == {"b1": 2 * HOUR}
        assert (answer(plan)[0].code, plan.borrows) == ("guarantee_only", ())

    def test_nobody_borrows_past_a_lenders_own_start(self) -> None:
        """B has booked its four from 3 h on: five of A's fit for 3 h, not for 4."""
        lender = tuple(
            a_held(f"n1-{n}", starts=3 * HOUR, ends=9 * HOUR, tenant="b", project="b-x") for n in range(4)
        )
        fits = a_snapshot(a_flex("b1", 5, hours=3), held=lender, limits=self.LIMITS)
        assert starts(solve(fits, POLICY)) == {"b1": 0}
        long = a_snapshot(
            a_flex("b1", 5, hours=4),
            held=lender,
            limits=self.LIMITS,
            fleet=gpus() + gpus(8, node="n2"),
        )
        big = (*self.LIMITS, a_limit("c", 8))
        plan = solve(a_snapshot(a_flex("b1", 5, hours=4), held=lender, limits=big, fleet=long.gpus), POLICY)
        assert starts(plan) == {"b1": 0}, "c is idle and lends"
        keeps = (*self.LIMITS, a_limit("c", 8, lend=0))
        plan = solve(a_snapshot(a_flex("b1", 5, hours=4), held=lender, limits=keeps, fleet=long.gpus), POLICY)
        assert starts(plan) == {"b1": 9 * HOUR}
        (why, *_) = answer(plan)
        assert (why.code, why.frees_at) == ("lent_out", NOON + 9 * HOUR)
        assert (why.facts["borrowed"], why.facts["asked"]) == (GPU, 5 * GPU)

    def test_spot_leaves_the_guarantee_untouched_and_always_borrows(self) -> None:
        held = running(4, "a", tier="spot")
        request = a_request("b1", an_ask(4), tenant="a", project="a-x")
        plan = solve(a_snapshot(request, held=held, limits=self.LIMITS), POLICY)
        assert starts(plan) == {"b1": 0}
        assert {borrow.own for borrow in plan.borrows} == {0}

    def test_spot_stays_under_guarantee_and_borrow_limit_with_all_else(self) -> None:
        held = running(7, "a", tier="flex", ends=2 * HOUR)
        request = a_request("b1", an_ask(2), tier="spot", tenant="a", project="a-x")
        plan = solve(a_snapshot(request, held=held, limits=self.LIMITS, fleet=gpus(16)), POLICY)
        assert (starts(plan), answer(plan)[0].code) == ({"b1": 2 * HOUR}, "tenant_quota")

    def test_a_guarantee_is_there_whatever_others_borrow(self) -> None:
        held = running(8, "a", tier="flex", ends=9 * HOUR)
        request = a_request("b1", an_ask(4), tenant="b", project="b-x")
        fleet = gpus() + gpus(4, node="n2")
        plan = solve(a_snapshot(request, held=held, limits=self.LIMITS, fleet=fleet), POLICY)
        assert starts(plan) == {"b1": 0}

    def test_what_a_project_never_lends_is_its_own_although_its_tenant_has_too_much(self) -> None:
        """After a cut: four are running where two may."""
        held = tuple(a_held(f"n1-{n}", ends=9 * HOUR, tenant="lab", project="other") for n in range(4))
        tenant, request = a_limit("lab", 2), a_request("b1", hours=1)
        keeps = (tenant, a_limit("folding", 1, parent="lab", lend=0))
        site = a_snapshot(request, held=held, limits=keeps)
        plan = solve(site, POLICY)
        assert starts(plan) == {"b1": 0}
        assert over_limit(site, plan) == []
        own = (replace(tenant, borrow=None), a_limit("folding", 1, parent="lab"))
        assert over_limit(replace(site, limits=own), solve(replace(site, limits=own), POLICY)) == []
        lends = replace(site, limits=(tenant, a_limit("folding", 1, parent="lab")))
        assert starts(solve(lends, POLICY)) == {"b1": 9 * HOUR}
        assert over_limit(lends, plan) != []

    def test_without_the_guarantees_borrowers_would_keep_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The negative control: lending alone refuses the lender."""
        held = running(8, "a", tier="flex", ends=9 * HOUR)
        request = a_flex("b1", 4, tenant="b")
        fleet = gpus() + gpus(4, node="n2")
        limits = (a_limit("a", 4, borrow=8), a_limit("b", 4), a_limit("c", 4, lend=0))
        site = a_snapshot(request, held=held, limits=limits, fleet=fleet)
        assert starts(solve(site, POLICY)) == {"b1": 0}
        nothing = lambda rows: guarantee_tree([replace(row, guaranteed=0) for row in rows])  # noqa: E731
        monkeypatch.setattr("solver.quota.limits.guarantee_tree", nothing)
        assert starts(solve(site, POLICY)) != {"b1": 0}


class TestRisk:
    LIMITS = (a_limit("a", 4, borrow=4), a_limit("b", 4, borrow=4))

    def test_borrowed_is_at_risk_from_when_the_lender_wants_to_run(self) -> None:
        held = running(8, "a", tier="flex", ends=9 * HOUR)
        later = 100 * 60
        request = a_request("b1", an_ask(2), tenant="b", project="b-x", earliest=later)
        plan = solve(a_snapshot(request, held=held, limits=self.LIMITS), POLICY)
        assert starts(plan) == {"b1": 9 * HOUR}
        assert [(row.borrowed, row.at_risk_from) for row in plan.borrows] == [(GPU, NOON + later)] * 4

    def test_a_lender_over_its_guarantee_puts_nobody_at_risk(self) -> None:
        held = running(8, "a", tier="flex", ends=9 * HOUR)
        request = a_flex("b1", 5, tenant="b")
        plan = solve(a_snapshot(request, held=held, limits=self.LIMITS), POLICY)
        assert {row.at_risk_from for row in plan.borrows} == {None}

    def test_a_waiting_borrower_is_told_too(self) -> None:
        held = running(8, "a", tier="standard", ends=HOUR)
        request = a_flex(
            "b1", 6, planned=a_planned_start(HOUR, 1, *map(whole, (f"n1-{n}" for n in range(6))))
        )
        plan = solve(a_snapshot(request, held=held, limits=self.LIMITS), POLICY)
        assert answer(plan)[-1].code == "borrowed"


class TestHours:
    def test_a_period_s_cap_counts_what_was_used_and_what_is_booked(self) -> None:
        day = NOON - NOON % DAY
        cap = Cap("lab", "h100", 20 * HOUR * GPU, day, day + DAY)
        used = (Used("lab", "folding", "h100", day, 17 * HOUR * GPU),)
        held = (a_held("n1-0", tenant="lab", project="folding"),)
        site = a_snapshot(a_request(hours=2), held=held, caps=(cap,), used=used)
        assert starts(solve(site, POLICY)) == {"b1": 0}
        site = a_snapshot(a_request(hours=3), held=held, caps=(cap,), used=used)
        plan = solve(site, POLICY)
        (why, *_) = answer(plan)
        assert why.code == "gpu_hours"
        assert (why.facts["limit"], why.facts["used"], "days" in why.facts) == (20, 18, False)
        assert starts(plan) == {"b1": 10 * HOUR}, "two of the three hours before midnight"

    def test_a_rolling_cap_frees_when_old_use_falls_out(self) -> None:
        day = NOON - NOON % DAY
        cap = Cap("folding", "h100", 10 * HOUR * GPU, 0, 0, rolling_days=7)
        used = (Used("lab", "folding", "h100", day - 6 * DAY, 9 * HOUR * GPU),)
        plan = solve(a_snapshot(a_request(hours=2), caps=(cap,), used=used), POLICY)
        assert starts(plan) == {"b1": 2 * DAY - DAY // 2}
        assert answer(plan)[0].frees_at == day + 2 * DAY

    @pytest.mark.parametrize(("days", "code"), [(1, "gpu_hours"), (2, "")])
    def test_old_use_counts_in_a_window_until_its_last_day(self, days: int, code: str) -> None:
        day = NOON - NOON % DAY
        cap = Cap("folding", "h100", 10 * HOUR * GPU, 0, 0, rolling_days=7)
        used = (Used("lab", "folding", "h100", day - 6 * DAY, 9 * HOUR * GPU),)
        window = a_request(hours=2, fixed=True, earliest=day + days * DAY + HOUR - NOON)
        plan = solve(a_snapshot(window, caps=(cap,), used=used), POLICY)
        assert [row.reasons[0].code for row in plan.refusals] == ([code] if code else [])

    def test_more_than_the_cap_in_one_booking_never_fits(self) -> None:
        cap = Cap("folding", "h100", HOUR * GPU, 0, 0, rolling_days=7)
        plan = solve(a_snapshot(a_request(hours=2), caps=(cap,)), POLICY)
        assert [row.reasons[0].code for row in plan.refusals] == ["gpu_hours"]

    @pytest.mark.parametrize("extra", [0, HOUR * GPU])
    def test_a_booking_of_all_that_a_cap_allows_can_fit_and_one_second_more_never(self, extra: int) -> None:
        """With an override for long enough, the cap is as much higher."""
        cap = Cap("folding", "h100", HOUR * GPU, 0, 0, rolling_days=7)
        override = Override("o1", "folding", "h100", NOON, NOON + DAY, unit_seconds=extra)
        caps = GpuHourCaps((cap,), (), (override,))
        most = (cap.most + extra) // GPU
        assert caps.never(("folding",), "h100", GPU, most) is None
        assert caps.never(("folding",), "h100", GPU, most + 1) == cap

    def test_an_override_counts_for_a_booking_as_long_as_itself_and_no_longer(self) -> None:
        cap = Cap("folding", "h100", HOUR * GPU, 0, 0, rolling_days=7)
        override = Override("o1", "folding", "h100", NOON, NOON + 2 * HOUR, unit_seconds=DAY * GPU)
        caps = GpuHourCaps((cap,), (), (override,))
        assert caps.never(("folding",), "h100", GPU, 2 * HOUR) is None
        assert caps.never(("folding",), "h100", GPU, 2 * HOUR + 1) == cap

    def test_a_cap_that_holds_longer_than_the_lack_of_room_is_said_first(self) -> None:
        day = NOON - NOON % DAY
        cap = Cap("folding", "h100", 10 * HOUR * GPU, 0, 0, rolling_days=7)
        used = (Used("lab", "folding", "h100", day - 6 * DAY, 9 * HOUR * GPU),)
        held = tuple(a_held(f"n1-{n}", ends=HOUR + n) for n in range(8))
        plan = solve(a_snapshot(a_request(hours=2), held=held, caps=(cap,), used=used), POLICY)
        assert starts(plan) == {"b1": 2 * DAY - DAY // 2}
        assert [(why.code, why.frees_at) for why in answer(plan)] == [
            ("gpu_hours", day + 2 * DAY),
            ("gpus_busy", NOON + HOUR),
        ]

    def test_a_limit_that_only_begins_to_hold_when_there_is_room_is_said_too(self) -> None:
        held = (
            a_held("n1-0", ends=HOUR),
            *(a_held(f"n1-{n}", starts=HOUR, ends=3 * HOUR, tenant="lab", project="folding") for n in (1, 2)),
        )
        limits = (a_limit("lab", 2), a_limit("folding", 2, parent="lab"))
        request = a_request(ask=replace(an_ask(), pin=("n1/0",)), hours=0.5)
        plan = solve(a_snapshot(request, held=held, limits=limits), POLICY)
        assert starts(plan) == {"b1": 3 * HOUR}
        assert [(why.code, why.frees_at) for why in answer(plan)] == [
            ("project_quota", NOON + 3 * HOUR),
            ("pinned", NOON + HOUR),
        ]

    def test_a_cap_of_a_period_counts_only_what_lies_in_it(self) -> None:
        day = NOON - NOON % DAY
        cap = Cap("lab", "h100", 2 * HOUR * GPU, day, day + DAY)
        request = a_request(hours=3, earliest=9 * HOUR)
        assert starts(solve(a_snapshot(request, caps=(cap,)), POLICY)) == {"b1": 10 * HOUR}
        (why, *_) = answer(solve(a_snapshot(request, caps=(replace(cap, most=1),)), POLICY))
        assert why.facts["asked"] == 3
        request = a_request(hours=3, earliest=10 * HOUR)
        (why, *_) = answer(solve(a_snapshot(request, caps=(replace(cap, most=1),)), POLICY))
        assert why.facts["asked"] == 2, "the third hour is tomorrow's"


@holds_for(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5), st.integers(1, 4)), max_size=6),
    st.integers(1, 2),
    st.integers(1, 3),
    st.integers(0, 12),
    few=40,
)
def test_each_reason_ends_when_what_it_names_does(
    windows: list[tuple[int, int, int]], count: int, hours: int, cap_hours: int
) -> None:
    """With held work and a daily cap: room until there is room, the limit until it allows."""
    day = NOON - NOON % DAY
    cap = Cap("lab", "h100", cap_hours * HOUR * GPU, day, day + DAY)
    taken = {(gpu, hour) for gpu, since, length in windows for hour in range(since, since + length)}
    held = tuple(a_held(f"n1-{gpu}", starts=hour * HOUR, ends=(hour + 1) * HOUR) for gpu, hour in taken)
    request = a_request(ask=an_ask(count), hours=hours)
    plan = solve(a_snapshot(request, held=held, fleet=gpus(3), caps=(cap,)), POLICY)
    room = next(
        hour
        for hour in range(24)
        if sum(not any((gpu, hour + n) in taken for n in range(hours)) for gpu in range(3)) >= count
    )
    (begins,) = starts(plan).values()
    ends = {why.code: why.frees_at for why in answer(plan)}
    assert ends.pop("gpus_busy", NOON) == NOON + room * HOUR
    if begins > room * HOUR:
        assert answer(plan)[0].check == "quota"
        assert ends == {"gpu_hours": NOON + begins}
