"""Overrides: exceptions from limits for a time or for one booking, in the trees and in cycles."""

from dataclasses import replace

import pytest
from hypothesis import strategies as st

from solver import Cap, Override, Snapshot, solve
from solver.quota.limits import lending_tree
from solver.quota.tree import Exceptions, Tree
from solver.timeline.grid import Grid
from tests.rings import holds_for
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
from tests.solver.quota.test_quota import a_flex, answer, running, starts

GPU = 56_000
# A guarantees its project all of its four GPUs; B lends its four.
LIMITS = (a_limit("a", 4, borrow=4), a_limit("a-x", 4, parent="a"), a_limit("b", 4))
FULL = running(4, "a", tier="flex", ends=9 * HOUR)


def an_override(
    gpus: float, owner: str = "a-x", *, starts: int = 0, ends: int = 9 * HOUR, booking: str = ""
) -> Override:
    """So many GPUs more for the owner, from noon on; with a booking for it alone."""
    since, until = NOON + starts, NOON + ends
    return Override(f"o-{starts}", owner, "h100", since, until, int(gpus * GPU), booking=booking)


def a_site(*overrides: Override, requests: tuple[str, ...] = ("b1",), count: int = 2) -> Snapshot:
    """A project at its limit of four until 9 h, and requests for one hour."""
    asked = [a_flex(name, count, hours=1) for name in requests]
    exempt = {each.booking for each in overrides}
    asked = [replace(each, override=each.booking if each.booking in exempt else "") for each in asked]
    return replace(a_snapshot(*asked, held=FULL, limits=LIMITS), overrides=overrides)


class TestDated:
    @pytest.mark.parametrize(
        ("override", "at"),
        [
            (None, 9 * HOUR),
            (an_override(2), 0),
            (an_override(1), 9 * HOUR),
            (an_override(2, starts=3 * HOUR), 3 * HOUR),
            # The whole window has to be inside.
            (an_override(2, ends=HOUR // 2), 9 * HOUR),
            (an_override(2, ends=HOUR), 0),
            (an_override(2, owner="b"), 9 * HOUR),
        ],
        ids=["none", "enough", "too few", "later", "ends before", "exact", "of another"],
    )
    def test_raises_the_limit_inside_its_window(self, override: Override | None, at: int) -> None:
        site = a_site(*filter(None, [override]))
        assert starts(solve(site, POLICY)) == {"b1": at}

    def test_lowers_the_limit_and_the_reason_states_the_one_in_force(self) -> None:
        """Three of four until 2 h: two run, so two more wait."""
        site = replace(a_site(an_override(-1, ends=2 * HOUR)), held=FULL[:2])
        plan = solve(site, POLICY)
        (why, *_) = answer(plan)
        assert starts(plan) == {"b1": 2 * HOUR}
        assert (why.code, why.facts["limit"], why.facts["used"]) == (
            "project_quota",
            3 * GPU,
            2 * GPU,
        )

    def test_a_start_is_at_the_end_of_a_lower_limit_on_the_grid(self) -> None:
        lower = an_override(-1, ends=2 * HOUR + 212)
        plan = solve(replace(a_site(lower), held=FULL[:2]), POLICY)
        assert starts(plan) == {"b1": 2 * HOUR + POLICY.grid}

    def test_no_guarantee_rises(self) -> None:
        """Work that is never paused gets nothing above its organisation's guarantee."""
        request = a_request("b1", an_ask(2), tenant="a", project="a-x", hours=1)
        overrides = (an_override(2), replace(an_override(2, "a"), id="o-a"))
        held = running(4, "a", tier="standard", ends=9 * HOUR)
        site = replace(a_snapshot(request, held=held, limits=LIMITS), overrides=overrides)
        assert starts(solve(site, POLICY)) == {"b1": 9 * HOUR}
        assert sum(each.borrowed for each in solve(a_site(an_override(2)), POLICY).borrows) == 2 * GPU

    def test_raises_what_an_organisation_borrows_in_one_class(self) -> None:
        fleet = gpus(4) + gpus(4, node="n2", gpu_class="a100")
        limits = tuple(a_limit(owner, 2, name) for owner in "ab" for name in ("a100", "h100"))
        asked = [
            a_request(name, an_ask(3, name), tier="flex", tenant="a", project="a-x", hours=1)
            for name in ("a100", "h100")
        ]
        more = replace(an_override(1, "a"), gpu_class="a100")
        site = replace(a_snapshot(*asked, fleet=fleet, limits=limits), overrides=(more,))
        plan = solve(site, POLICY)
        assert (starts(plan), [each.booking for each in plan.refusals]) == ({"a100": 0}, ["h100"])

    def test_after_its_end_running_work_stays_and_a_planned_start_is_cut(self) -> None:
        start = a_planned_start(2 * HOUR, 1, whole("n1-6"), whole("n1-7"))
        planned = replace(a_flex("b1", 2, hours=1), earliest=NOON + 2 * HOUR, planned=start)
        over = running(6, "a", tier="flex", ends=9 * HOUR)
        site = replace(a_site(requests=()), held=over, requests=(planned,))
        plan = solve(site, POLICY)
        assert not plan.pauses
        assert starts(plan) == {"b1": 9 * HOUR}


class TestOnce:
    """Example 12: a project at its limit of four, and two more for one booking."""

    def test_its_units_count_for_nobody_and_are_borrowed(self) -> None:
        site = a_site(an_override(2, booking="b9"), requests=("b1", "b9"), count=2)
        site = replace(
            site,
            requests=tuple(
                each if each.booking == "b9" else replace(each, ask=an_ask(1)) for each in site.requests
            ),
        )
        plan = solve(site, POLICY)
        assert starts(plan) == {"b9": 0, "b1": 9 * HOUR}
        assert sum(each.borrowed for each in plan.borrows) == 2 * GPU
        (wait,) = (row for row in plan.waits if row.booking == "b1")
        assert wait.reasons[0].code == "project_quota"

    def test_another_waits_until_one_of_the_four_ends(self) -> None:
        """While it runs, its two GPUs neither stand in the way of others nor help them."""
        its = tuple(
            replace(
                a_held(f"n1-{n}", tenant="a", project="a-x", booking="b9"),
                tier="flex",
                ends=NOON + 9 * HOUR,
                override="b9",
            )
            for n in (6, 7)
        )
        ends = replace(FULL[0], ends=NOON + HOUR)
        site = a_site(an_override(2, booking="b9"), count=1)
        plan = solve(replace(site, held=(ends, *FULL[1:], *its)), POLICY)
        assert starts(plan) == {"b1": HOUR}

    def test_only_so_many(self) -> None:
        site = a_site(an_override(1, booking="b1"))
        assert starts(solve(site, POLICY)) == {"b1": 9 * HOUR}


def test_gpu_hours_above_a_cap_for_work_inside_the_window() -> None:
    cap = Cap("a-x", "h100", 2 * GPU * HOUR, NOON - 12 * HOUR, NOON + 30 * 24 * HOUR)
    request = a_flex("b1", 2, hours=2)
    site = replace(a_snapshot(request, limits=LIMITS), caps=(cap,))
    more = replace(an_override(0, starts=HOUR), unit_seconds=2 * GPU * HOUR)
    assert not starts(solve(site, POLICY))
    assert starts(solve(replace(site, overrides=(more,)), POLICY)) == {"b1": HOUR}
    short = replace(more, ends=more.starts + HOUR)
    assert not starts(solve(replace(site, overrides=(short,)), POLICY))


some = st.integers(0, 6)
windows = st.tuples(some, some).map(sorted)


@holds_for(
    st.lists(st.tuples(st.sampled_from("apb"), st.integers(-2, 3), windows), max_size=4),
    st.lists(st.tuples(st.sampled_from([("a", "p"), ("a", "p", "b9"), ("b",)]), some, windows), max_size=8),
    st.integers(0, 3),
    few=200,
    many=2_000,
)
def test_the_tree_allows_what_the_caps_of_each_instant_allow(
    raised: list[tuple[str, int, list[int]]],
    asked: list[tuple[tuple[str, ...], int, list[int]]],
    exempt: int,
) -> None:
    limits = (
        a_limit("a", 4, borrow=2),
        a_limit("p", 2, parent="a", borrow=1, lend=1),
        a_limit("b", 3, borrow=1, lend=2),
    )
    nodes = lending_tree(limits, 8 * GPU)
    found = Exceptions(
        tuple(
            (owner, n * GPU, NOON + since * HOUR, NOON + until * HOUR) for owner, n, (since, until) in raised
        ),
        {"b9": {"p": exempt * GPU}},
    )
    tree = Tree(nodes, Grid(NOON), found)
    taken: list[tuple[tuple[str, ...], int, list[int]]] = []
    for owners, units, (since, until) in asked:
        if since == until:
            continue
        path, window = tree.path_up(owners), (NOON + since * HOUR, NOON + until * HOUR)
        fits = all(_fits(nodes, found, taken, (owners, units), hour) for hour in range(since, until))
        assert (tree.over(path, units * GPU, window) is None) == fits
        if fits:
            tree.add(path, units * GPU, window)
            taken.append((owners, units, [since, until]))


def _fits(nodes: dict, found: Exceptions, taken: list, more: tuple, hour: int) -> bool:  # type: ignore[type-arg]
    """Whether no cap forbids it in one hour, from the definition."""
    used: dict[str, int] = {}
    counted: dict[str, int] = {}
    fits = True
    now = [(owners, units) for owners, units, (since, until) in taken if since <= hour < until]
    for owners, units in [*now, more]:
        arriving, fits = units * GPU, True
        names = [name for name in reversed(owners) if name in nodes] + ["*"]
        for name in names:
            node = nodes[name]
            exempt = found.exempt["b9"].get(name, 0) if "b9" in owners else 0
            counts = max(0, arriving - exempt)
            before = used.get(name, 0)
            used[name] = before + arriving
            counted[name] = counted.get(name, 0) + counts
            cap = node.cap + sum(
                extra
                for owner, extra, since, until in found.raised
                if owner == name and since <= NOON + hour * HOUR < until
            )
            fits = fits and (counts == 0 or counted[name] <= cap)
            arriving = max(0, used[name] - node.local) - max(0, before - node.local)
    return fits


class TestKept:
    """What was booked before a limit was cut keeps its start; it counts, so new work waits for it."""

    def planned(self, name: str = "b1", at: int = 2 * HOUR) -> Snapshot:
        """A project with four GPUs in use until 9 h and a planned start of two, above its limit."""
        start = a_planned_start(at, 1, whole("n1-6"), whole("n1-7"))
        kept = replace(a_flex(name, 2, hours=1), earliest=NOON + at, planned=start, override=name)
        return replace(a_site(requests=()), requests=(kept, a_flex("b2", 1, hours=1)))

    def kept(self, booking: str, owner: str = "a-x") -> Override:
        return Override(f"k-{booking}", owner, "h100", 0, 0, booking=booking, keeps=True)

    def test_it_starts_as_planned_and_new_work_waits_until_use_is_below_the_limit(self) -> None:
        assert starts(solve(self.planned(), POLICY)) == {"b1": 9 * HOUR, "b2": 9 * HOUR}
        site = replace(self.planned(), overrides=(self.kept("b1"),))
        assert starts(solve(site, POLICY)) == {"b1": 2 * HOUR, "b2": 9 * HOUR}

    def test_it_counts_for_others_while_it_runs(self) -> None:
        """Three run until 1 h and two kept ones until 3 h; four are allowed, so three fit at 3 h."""
        start = a_planned_start(0, 3, whole("n1-6"), whole("n1-7"))
        kept = replace(a_flex("b1", 2, hours=3), planned=start, override="b1")
        over = running(3, "a", tier="flex", ends=HOUR)
        site = replace(a_site(requests=()), held=over, requests=(kept, a_flex("b2", 3, hours=1)))
        site = replace(site, overrides=(self.kept("b1"),))
        assert starts(solve(site, POLICY)) == {"b1": 0, "b2": 3 * HOUR}

    def test_another_owners_limit_still_forbids_it(self) -> None:
        site = replace(self.planned(), overrides=(self.kept("b1", owner="a"),))
        assert starts(solve(site, POLICY)) == {"b1": 9 * HOUR, "b2": 9 * HOUR}

    def test_no_cap_of_gpu_hours_forbids_it(self) -> None:
        cap = Cap("a-x", "h100", 3 * HOUR * GPU, 0, 0, rolling_days=1)
        site = replace(a_site(requests=()), held=(), caps=(cap,))
        asked = [replace(a_flex(name, 2, hours=2), override=name) for name in ("b1", "b2")]
        site = replace(site, requests=tuple(asked))
        assert starts(solve(site, POLICY)) == {}
        assert starts(solve(replace(site, overrides=(self.kept("b1"),)), POLICY)) == {"b1": 0}

    def test_no_new_work_under_the_limit_has_it_paused(self) -> None:
        """Two kept ones run on one guaranteed GPU of their project, so new work of it could take them."""
        limits = (a_limit("a", 4, borrow=4), a_limit("a-x", 1, parent="a"), a_limit("b", 7))
        held = running(2, "a", tier="flex", ends=9 * HOUR)
        held = tuple(replace(each, override=each.booking) for each in held)
        kept = tuple(self.kept(each.booking) for each in held)
        asked = a_flex("b2", 1, hours=1)
        site = replace(a_snapshot(asked, held=held, limits=limits), overrides=kept)
        plan = solve(site, POLICY)
        assert (plan.pauses, starts(plan)) == ((), {"b2": 9 * HOUR})
