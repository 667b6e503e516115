"""Labs, limits of persons and limits at some times: in the tree, and in cycles."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import strategies as st

from solver import (
    Cap,
    LabLimit,
    Override,
    PersonLimit,
    Quota,
    Snapshot,
    Use,
    Used,
    solve,
)
from solver.model.codec import decode, encode
from solver.model.inner_limits import FOREVER, PersonLimits
from solver.quota.gpu_hour_caps import GpuHourCaps
from solver.quota.limits import guarantee_tree, lending_tree, with_labs
from solver.quota.use import Block
from tests.rings import holds_for
from tests.solver.builders import (
    HOUR,
    NOON,
    POLICY,
    a_held,
    a_limit,
    a_request,
    a_snapshot,
    an_ask,
    gpus,
)
from tests.solver.quota.limit_tree import LimitTree, Work
from tests.solver.quota.test_quota import answer, available, starts

GPU = 56_000
HOURS = 6


def a_lab(
    owner: str,
    guaranteed: float,
    *projects: str,
    tenant: str = "a",
    borrow: float | None = None,
    lend: float | None = None,
) -> LabLimit:
    """A lab's limit in GPUs."""
    borrowed, lent = (None if each is None else int(each * GPU) for each in (borrow, lend))
    return LabLimit(owner, tenant, "h100", int(guaranteed * GPU), borrowed, lent, projects)


def test_what_a_lab_leaves_its_projects() -> None:
    """T has 8, of which lab L has 5 and lends 1; its project P has 2 and keeps them."""
    rows = (
        a_limit("t", 8),
        a_limit("p", 2, parent="t", borrow=None, lend=0),
        a_limit("r", 0, parent="t", borrow=None),
    )
    limits = with_labs(rows, (a_lab("l", 5, "p", "q", tenant="t", borrow=1, lend=1),))
    for tree in (lending_tree(limits, 8 * GPU), guarantee_tree(limits)):
        # Two are P's alone. Of the other three the lab lends one, and it borrows at most one.
        assert available(tree, {}, "q") == 4 * GPU
        assert available(tree, {}, "p") == 6 * GPU
        assert available(tree, {}, "r") == 4 * GPU


def test_a_block_says_whether_a_limit_at_some_times_forbids_the_window() -> None:
    """P may use 2 GPUs, and none from the second hour to the fourth."""
    limits = (a_limit("t", 8), a_limit("p", 0, parent="t", borrow=2))
    night = Override("n", "p", "h100", NOON + 2 * HOUR, NOON + 4 * HOUR, -2 * GPU)
    site = replace(a_snapshot(limits=limits), overrides=(night,))
    quota = Quota(site, {"h100": 8 * GPU})
    owners = quota.owners(("t", "p"), "x")

    def over(units: int, first: int, last: int) -> Block | None:
        window = (NOON + first * HOUR, NOON + last * HOUR)
        return quota.over(Use(owners, "flex", "h100", units), window)

    assert over(GPU, 0, 2) is None
    dated, usual = over(GPU, 1, 3), over(3 * GPU, 0, 2)
    assert dated is not None
    assert (dated.kind, dated.most, dated.is_dated) == ("limit", 0, True)
    assert usual is not None
    assert (usual.kind, usual.most, usual.is_dated) == ("limit", 2 * GPU, False)


@holds_for(st.integers(0, 1 << 30), few=150, many=3_000)
def test_the_quota_agrees_with_the_definitions(seed: int) -> None:
    """Bookings of persons in projects of labs, one after another, each at random hours."""
    chance = Random(seed)  # noqa: S311  a drawn world
    world, site = _drawn(chance)
    quota = Quota(site, {"h100": 16 * GPU})
    known: list[Work] = []
    for _ in range(14):
        tenant, project = chance.choice([("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1")])
        first = chance.randrange(HOURS)
        work = Work(
            tenant,
            project,
            chance.choice("xyz"),
            chance.randint(1, 4) * GPU // 2,
            first,
            chance.randint(first + 1, HOURS),
            chance.random() < 0.4,
        )
        owners = quota.owners((work.tenant, work.project), work.person)
        use = Use(owners, "standard" if work.is_paused_never else "flex", "h100", work.units)
        window = (NOON + work.first * HOUR, NOON + work.last * HOUR)
        expected = world.allows(known, work)
        assert (quota.over(use, window) is None) == expected, (work, known)
        if expected or chance.random() < 0.1:
            quota.add(use, window)
            known.append(work)
    if known:
        gone = chance.choice(known)
        known.remove(gone)
        tier = "standard" if gone.is_paused_never else "flex"
        owners = quota.owners((gone.tenant, gone.project), gone.person)
        window = (NOON + gone.first * HOUR, NOON + gone.last * HOUR)
        quota.add(Use(owners, tier, "h100", gone.units), window, -1)
        again = Use(owners, tier, "h100", gone.units)
        assert (quota.over(again, window) is None) == world.allows(known, gone)


def _drawn(chance: Random) -> tuple[LimitTree, Snapshot]:
    def maybe(most: int) -> int | None:
        return None if chance.random() < 0.4 else chance.randint(0, most)

    limits = [
        a_limit("a", chance.randint(4, 9), borrow=maybe(6), lend=maybe(6)),
        a_limit("b", chance.randint(0, 6), borrow=maybe(6), lend=maybe(6)),
    ]
    for project in ("a1", "a2", "a3"):
        if chance.random() < 0.7:
            most = chance.randint(0, 2)
            limits.append(a_limit(project, most, parent="a", borrow=maybe(4), lend=maybe(2)))
    labs = [a_lab("la", chance.randint(0, 4), "a1", "a2", borrow=maybe(3), lend=maybe(3))]
    if chance.random() < 0.5:
        labs.append(a_lab("lb", chance.randint(0, 4), "a3", borrow=maybe(3), lend=maybe(3)))
    persons = [
        PersonLimit(scope, person, "h100", chance.randint(0, 6) * GPU // 2)
        for scope in ("a", "a1", "a3", "b1")
        for person in ("", "x", "y")
        if chance.random() < 0.25
    ]
    steps = [
        Override(f"w{number}", owner, "h100", NOON + first * HOUR, NOON + last * HOUR, more * GPU)
        for number, owner in enumerate(("a", "la", "a1", "lb", "b", "a x", "a1 x", "b1 y"))
        for first, last in [sorted(chance.sample(range(HOURS + 1), 2))]
        for more in [chance.choice([-2, -1, 1, 2])]
        if chance.random() < 0.5
    ]
    site = replace(
        a_snapshot(limits=tuple(limits)),
        labs=tuple(labs),
        persons=tuple(persons),
        overrides=tuple(steps),
    )
    return LimitTree(limits, labs, persons, steps, 16 * GPU, NOON), site


class TestCycle:
    """A has eight; its lab of two projects has four and borrows one."""

    LIMITS = (a_limit("a", 8), a_limit("p", 2, parent="a", borrow=None))
    LAB = a_lab("lab-1", 4, "p", "q", borrow=1)

    def site(self, count: int, *, project: str = "q", **more: object) -> Snapshot:
        """Three GPUs of P in use for two hours, and a request of ann."""
        held = tuple(
            replace(a_held(f"n1-{n}", ends=2 * HOUR, tenant="a", project="p", tier="flex"), owner="ann")
            for n in range(3)
        )
        asked = a_request("b1", an_ask(count), tier="flex", tenant="a", project=project, hours=1)
        site = a_snapshot(replace(asked, owner="ann"), held=held, limits=self.LIMITS)
        return replace(site, **more)  # type: ignore[arg-type]  # fields of a snapshot

    def test_a_lab_limits_its_projects_together(self) -> None:
        assert starts(solve(self.site(2, labs=(self.LAB,)), POLICY)) == {"b1": 0}
        plan = solve(self.site(3, labs=(self.LAB,)), POLICY)
        (why, *_) = answer(plan)
        assert starts(plan) == {"b1": 2 * HOUR}
        assert (why.code, why.facts["owner"], why.frees_at) == (
            "lab_quota",
            "lab-1",
            NOON + 2 * HOUR,
        )
        assert (why.facts["used"], why.facts["limit"]) == (3 * GPU, 5 * GPU)
        assert starts(solve(self.site(3, project="r", labs=(self.LAB,)), POLICY)) == {"b1": 0}

    def test_more_than_the_lab_may_ever_use_is_refused(self) -> None:
        plan = solve(self.site(6, labs=(self.LAB,)), POLICY)
        assert [each.booking for each in plan.refusals] == ["b1"]
        assert answer(plan)[0].code == "lab_quota"

    @pytest.mark.parametrize(
        ("rows", "at", "whose"),
        [
            ([("a", "ann", 4)], 2 * HOUR, "tenant"),
            ([("a", "ann", 5)], 0, ""),
            ([("a", "", 4)], 2 * HOUR, "tenant"),
            ([("a", "", 4), ("a", "ann", 5)], 0, ""),
            ([("q", "", 2)], 0, ""),
            ([("p", "", 4)], 0, ""),
            ([("a", "bob", 4)], 0, ""),
        ],
    )
    def test_a_person_waits_for_an_own_limit(
        self, rows: list[tuple[str, str, int]], at: int, whose: str
    ) -> None:
        persons = tuple(PersonLimit(scope, who, "h100", most * GPU) for scope, who, most in rows)
        plan = solve(self.site(2, persons=persons), POLICY)
        assert starts(plan) == {"b1": at}
        if whose:
            (why, *_) = answer(plan)
            assert (why.code, why.facts["whose"]) == ("person_quota", whose)
            assert (why.facts["limit"], why.frees_at) == (4 * GPU, NOON + 2 * HOUR)

    @pytest.mark.parametrize(
        ("more", "at"),
        [
            (Override("o1", "a ann", "h100", NOON, NOON + HOUR, GPU), 0),
            (Override("o1", "a bob", "h100", NOON, NOON + HOUR, GPU), 2 * HOUR),
            (Override("o1", "a ann", "h100", NOON, NOON + HOUR // 2, GPU), 2 * HOUR),
            (Override("o1", "a ann", "h100", 0, 0, GPU, booking="b1"), 0),
        ],
        ids=["enough", "of another", "ends before", "for the booking"],
    )
    def test_an_override_raises_the_limit_of_a_person(self, more: Override, at: int) -> None:
        persons = (PersonLimit("a", "", "h100", 4 * GPU),)
        site = self.site(2, persons=persons, overrides=(more,))
        (asked,) = site.requests
        site = replace(site, requests=(replace(asked, override=more.booking),))
        assert starts(solve(site, POLICY)) == {"b1": at}

    def test_a_booking_fits_a_lower_limit_over_its_whole_window(self) -> None:
        """Two of the lab until 4 h, at night; forever: a request that never fits has no start."""
        low = Override("w1", "lab-1", "h100", NOON + HOUR // 2, NOON + 4 * HOUR, -3 * GPU)
        plan = solve(self.site(2, labs=(self.LAB,), overrides=(low,)), POLICY)
        (why, *_) = answer(plan)
        assert starts(plan) == {"b1": 2 * HOUR}
        assert (why.code, why.facts["limit"]) == ("lab_quota", 2 * GPU)
        for_good = replace(low, units=-4 * GPU, ends=FOREVER)
        plan = solve(self.site(2, labs=(self.LAB,), overrides=(for_good,)), POLICY)
        assert starts(plan) == {}
        found = [(why.code, why.frees_at) for why in answer(plan)]
        assert found == [("lab_quota", None), ("no_room_in_horizon", None)]

    def test_its_bytes_come_back_and_old_ones_have_none(self) -> None:
        persons = (PersonLimit("a", "", "h100", GPU),)
        site = self.site(2, labs=(self.LAB,), persons=persons)
        assert decode(Snapshot, encode(site)) == decode(Snapshot, encode(site))
        assert decode(Snapshot, encode(site)).labs == (self.LAB,)
        plain = encode(self.site(2))
        assert b"labs" not in plain
        assert b"persons" not in plain


def test_owners_name_the_limits_of_their_person_once() -> None:
    limits = PersonLimits((PersonLimit("a", "", "h100", 1), PersonLimit("p", "ann", "h100", 2)))
    owners = limits.owners(("a", "p", "o1"), "ann")
    assert owners == ("a", "p", "p ann", "a ann", "o1")
    assert limits.owners(owners, "ann") == owners
    assert limits.owners(("a", "p"), "bob") == ("a", "p", "a bob")
    assert limits.owners(("a", "p"), "") == ("a", "p")
    assert [limits.most("h100", name) for name in ("p ann", "a ann", "a", "o1")] == [
        2,
        1,
        None,
        None,
    ]


def test_a_lab_and_a_person_make_two_wait_on_two_classes() -> None:
    """Ann's three are too many for the lab next to P; Bob has the one A100 that he may have."""
    fleet = gpus(8) + gpus(4, node="n2", gpu_class="a100", model="a100-40gb")
    limits = (*TestCycle.LIMITS, a_limit("b", 2, "a100"))
    second = LabLimit("lab-2", "b", "a100", 2 * GPU, None, 0, ("b-x",))
    his = replace(
        a_held("n2-0", booking="a9", ends=HOUR, tenant="b", project="b-x", tier="flex"),
        owner="bob",
    )
    asks = a_request("b2", an_ask(1, "a100"), tier="flex", tenant="b", project="b-x", hours=1)
    site = TestCycle().site(3, labs=(TestCycle.LAB, second))
    site = replace(
        site,
        gpus=fleet,
        limits=limits,
        held=(*site.held, his),
        requests=(*site.requests, replace(asks, owner="bob")),
        persons=(
            PersonLimit("a", "ann", "h100", 8 * GPU),
            PersonLimit("b-x", "", "a100", GPU),
        ),
    )
    plan = solve(site, POLICY)
    assert starts(plan) == {"b1": 2 * HOUR, "b2": HOUR}
    codes = [answer(plan, name)[0].code for name in ("b1", "b2")]
    assert codes == ["lab_quota", "person_quota"]
    assert answer(plan, "b2")[0].facts["whose"] == "project"


def test_a_cap_of_a_lab_counts_all_its_projects_and_no_others() -> None:
    day, hour = 86_400, 3_600
    lab = LabLimit("physics", "t", "h100", 0, None, None, ("a", "b"))
    used = (Used("t", "a", "h100", 0, 2 * hour, ""), Used("t", "c", "h100", 0, 9 * hour, ""))
    caps = GpuHourCaps((Cap("physics", "h100", 10 * hour, 0, 0, 7),), used, labs=(lab,))
    window = (day, day + hour)
    assert caps.over(("t", "b"), "h100", 8, window) is None
    assert caps.over(("t", "b"), "h100", 9, window) is not None
    caps.add(("t", "a"), "h100", 5, window)
    assert caps.over(("t", "b"), "h100", 4, window) is not None
    assert caps.over(("t", "c"), "h100", 99, window) is None
    assert caps.over(("t", "b"), "l40s", 99, window) is None
    assert caps.never(("t", "b"), "h100", 11, hour) is not None
