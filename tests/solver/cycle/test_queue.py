"""The order of the queue, and the fair share behind it."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver import Plan, Used, digest, encode, solve
from solver.cycle.order.queue import decayed
from solver.quota.limits import Claimant, split, split_to_projects
from tests.solver.builders import (
    DAY,
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
from tests.solver.truth import given_by

GPU = 56_000


def line(plan: Plan) -> list[str]:
    """Bookings by start."""
    return [each.booking for each in sorted(given_by(plan), key=lambda each: each.starts)]


class TestSplit:
    def test_run_ai_s_worked_check_gives_10_over_quota_and_a_share_of_16(self) -> None:
        """A quota of 6 each, 20 unused beyond, weights 2, 3 and 1: the second gets 10 more."""
        claimants = [Claimant("a", 6, 99, 2), Claimant("b", 6, 99, 3), Claimant("c", 6, 99, 1)]
        shares = split(38, claimants)
        assert shares["b"] == 16
        assert sum(shares.values()) == 38

    def test_who_wants_less_leaves_the_rest_to_others(self) -> None:
        shares = split(20, [Claimant("a", 0, 3, 2), Claimant("b", 0, 99, 1)])
        assert shares == {"a": 3, "b": 17}

    def test_without_weight_there_is_the_guarantee_alone(self) -> None:
        assert split(20, [Claimant("a", 4, 9, 0), Claimant("b", 0, 5, 1)]) == {"a": 4, "b": 5}

    def test_a_tenant_s_share_is_split_among_its_projects(self) -> None:
        limits = (
            a_limit("t", 4, borrow=None),
            a_limit("p", 2, parent="t", borrow=None, weight=3),
            a_limit("q", 0, parent="t", borrow=None),
        )
        shares = split_to_projects(limits, {"t": 20 * GPU, "p": 10 * GPU, "q": 10 * GPU}, 10 * GPU)
        assert shares == {"t": 10 * GPU, "p": 8 * GPU, "q": 2 * GPU}

    @settings(max_examples=30, deadline=None)
    @given(
        st.integers(0, 200),
        st.lists(st.tuples(st.integers(0, 20), st.integers(0, 50), st.integers(0, 4)), max_size=6),
    )
    def test_nobody_gets_more_than_asked_nor_less_than_sure(
        self, total: int, rows: list[tuple[int, int, int]]
    ) -> None:
        claimants = [Claimant(str(n), *row) for n, row in enumerate(rows)]
        shares = split(total, claimants)
        assert shares == split(total, claimants[::-1])
        sure = {each.owner: min(each.guaranteed, each.requested) for each in claimants}
        for each in claimants:
            assert sure[each.owner] <= shares[each.owner] <= max(each.requested, 0)
        assert sum(shares.values()) <= max(total, sum(sure.values()))
        rest = total - sum(shares.values())
        assert rest <= 0 or all(shares[each.owner] == each.requested for each in claimants if each.weight)


@pytest.mark.parametrize(("age", "left"), [(0, 1000), (DAY, 500), (2 * DAY, 250), (99 * DAY, 0)])
def test_use_halves_every_half_life(age: int, left: int) -> None:
    assert decayed(1000, age, DAY) == left


class TestLine:
    """One GPU, busy for an hour, so that everybody waits in line."""

    def test_the_tier_comes_first(self) -> None:
        plan = self.solved(a_request("low", priority=10), a_request("high", priority=50))
        assert line(plan) == ["high", "low"]

    def test_within_guarantee_goes_before_borrowing(self) -> None:
        borrower = a_request("borrower", tier="flex", tenant="a", project="x")
        owner = a_request("owner", tier="flex", tenant="b", project="y", submitted=9)
        limits = (a_limit("a", 0, borrow=1), a_limit("b", 1))
        assert line(self.solved(borrower, owner, limits=limits)) == ["owner", "borrower"]

    def test_who_had_less_of_late_goes_first(self) -> None:
        used = (Used("a", "x", "h100", NOON - DAY, 20 * HOUR * GPU),)
        much = a_request("much", tenant="a", project="x")
        little = a_request("little", tenant="b", project="y", submitted=9)
        assert line(self.solved(much, little, used=used)) == ["little", "much"]
        forgiven = (Used("a", "x", "h100", NOON - 365 * DAY, 20 * HOUR * GPU),)
        assert line(self.solved(much, little, used=forgiven)) == ["much", "little"]

    def test_a_class_counts_by_its_weight(self) -> None:
        used = (
            Used("a", "x", "h100", NOON - DAY, 10 * HOUR * GPU),
            Used("b", "y", "l40s", NOON - DAY, 20 * HOUR * GPU),
        )
        one = a_request("a", tenant="a", project="x", submitted=9)
        other = a_request("b", tenant="b", project="y")
        fleet = (*gpus(1), *gpus(1, "l40s", "l40s", node="n2"))
        site = a_snapshot(one, other, fleet=fleet, held=(a_held("n1-0"),), used=used)

        def first(**weights: int) -> str:
            policy = replace(POLICY, class_weights=tuple(sorted(weights.items())))
            return line(solve(site, policy))[0]

        assert first() == first(l40s=100) == first(h100=100) == "a", "b had twice as much"
        assert first(l40s=25) == first(l40s=0) == first(h100=300) == "b"
        assert first(l40s=25, h100=10) == "a"

    def test_usual_weights_keep_the_bytes(self) -> None:
        used = (Used("a", "x", "h100", NOON - DAY, 20 * HOUR * GPU),)
        site = a_snapshot(
            a_request("a", tenant="a", project="x"), a_request("b", tenant="b", project="y"), used=used
        )
        weighed = replace(POLICY, class_weights=(("h100", 100),))
        assert digest(solve(site, weighed)) == digest(solve(site, POLICY))
        assert b"class_weights" not in encode(POLICY)

    def test_the_policy_says_which_key_decides_first(self) -> None:
        used = (Used("a", "x", "h100", NOON - DAY, 20 * HOUR * GPU),)
        much = a_request("much", tenant="a", project="x", earliest=-DAY)
        little = a_request("little", tenant="b", project="y", earliest=-HOUR)
        site = a_snapshot(much, little, fleet=gpus(1), held=(a_held("n1-0"),), used=used)
        assert line(solve(site, POLICY)) == ["little", "much"]
        patient = replace(POLICY, order=("tier", "age", "part", "tenant", "project", "person"))
        assert line(solve(site, patient)) == ["much", "little"]

    def test_a_burst_does_not_go_before_everybody_else(self) -> None:
        burst = [a_request(f"burst{n}", tenant="a", project="x", hours=9) for n in range(3)]
        one = a_request("one", tenant="b", project="y", submitted=9)
        assert line(self.solved(*burst, one)) == ["burst0", "one", "burst1", "burst2"]

    def test_weight_counts_against_use(self) -> None:
        used = (
            Used("a", "x", "h100", NOON - DAY, 20 * HOUR * GPU),
            Used("b", "y", "h100", NOON - DAY, 12 * HOUR * GPU),
        )
        limits = (a_limit("a", 1, weight=4), a_limit("b", 1))
        one = a_request("a", tenant="a", project="x", submitted=9)
        other = a_request("b", tenant="b", project="y")
        assert line(self.solved(one, other, used=used, limits=limits)) == ["a", "b"]

    def test_of_borrowers_the_one_under_its_part_goes_first(self) -> None:
        limits = (
            a_limit("a", 0, borrow=None, weight=1),
            a_limit("b", 0, borrow=None, weight=3),
        )
        over = a_request("a", an_ask(2), tier="flex", tenant="a", project="x")
        under = a_request("b", an_ask(2), tier="flex", tenant="b", project="y", submitted=9)
        fleet, held = gpus(2), tuple(a_held(f"n1-{n}") for n in range(2))
        plan = solve(a_snapshot(over, under, fleet=fleet, held=held, limits=limits), POLICY)
        assert line(plan) == ["a", "b"], "both want more than their part"
        small = a_request("b", an_ask(1), tier="flex", tenant="b", project="y", submitted=9)
        plan = solve(a_snapshot(over, small, fleet=fleet, held=held, limits=limits), POLICY)
        assert line(plan) == ["b", "a"]

    def test_who_has_waited_for_long_goes_first_and_then_who_asked_first(self) -> None:
        young = a_request("a", earliest=-DAY, submitted=9 * HOUR)
        old = a_request("b", earliest=-DAY)
        assert line(self.solved(young, old)) == ["b", "a"]
        soon = a_request("a", submitted=2)
        assert line(self.solved(soon, a_request("b", submitted=1))) == ["b", "a"]

    def test_time_before_the_own_request_is_no_waiting(self) -> None:
        patient = a_request("a", earliest=HOUR // 2)
        waited = a_request("b", earliest=-DAY, submitted=9)
        assert line(self.solved(patient, waited)) == ["b", "a"]

    def solved(self, *requests: object, **site: object) -> Plan:
        held = (a_held("n1-0"),)
        return solve(a_snapshot(*requests, fleet=gpus(1), held=held, **site), POLICY)  # type: ignore[arg-type]  # as a_snapshot takes


def test_assigned_work_counts_as_begun_in_the_order_while_it_waits_for_its_start() -> None:
    """Who waits counts from its requested start on. Else another booking of its tenant would be
    inside the guarantee from its assignment to its start."""
    ask = a_request("b1", an_ask(2), tenant="lab", project="lab-p", tier="flex", hours=9)
    limits = (a_limit("lab", 2, borrow=None), a_limit("firm", 1, borrow=None))

    def band(starts: int) -> int:
        mine = a_held("n1-0", starts=starts, ends=12 * HOUR, tenant="lab", project="lab-p")
        held = (mine, a_held("n1-1", ends=HOUR, tenant="firm"))
        plan = solve(a_snapshot(ask, fleet=gpus(3), held=held, limits=limits), POLICY)
        return plan.waits[0].key[0]

    assert [band(0), band(POLICY.freeze_horizon), band(2 * HOUR)] == [2, 2, 0]
