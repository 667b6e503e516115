"""What holds for every site; each with a control that shows the damage with the guard off."""

from dataclasses import replace
from random import Random
from typing import TypeVar

import pytest
from hypothesis import strategies as st

from solver import (
    Assign,
    Extension,
    Plan,
    Policy,
    Refuse,
    Request,
    Snapshot,
    Waiting,
    decode,
    digest,
    encode,
    solve,
)
from solver.fleet.mig_geometry import Geometry
from solver.fleet.pool import Pool
from solver.model.demand import Demand
from solver.quota.quota import Quota
from solver.timeline.gpu_calendar import GpuCalendar
from tests.rings import holds_for
from tests.solver import truth
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
from tests.solver.dense import a_dense_site
from tests.solver.strategies import sites, the_next

pytestmark = pytest.mark.turn

T = TypeVar("T")


def assert_true(site: Snapshot, plan: Plan) -> None:
    """Nobody has a slot twice, only what the hardware can make, whole gangs, within limits."""
    # Who can no longer be in time waits without a reservation, and prefers its places.
    proven = (w for w in plan.waits if all(r.code != "deadline_at_risk" for r in w.reasons))
    plan = replace(plan, waits=tuple(proven))
    assert truth.overlaps(site, plan) == []
    assert truth.illegal(site, plan) == []
    assert truth.uncut(site, plan) == []
    assert truth.too_many_media_engines(site, plan) == []
    assert truth.torn(site, plan) == []
    assert truth.over_limit(site, plan) == []
    assert truth.overshared(site, plan) == []
    assert truth.mixed(site, plan) == []
    assert truth.beyond_hosts(site, plan) == []
    assert truth.moved_wrongly(site, plan, POLICY.freeze_horizon) == []


def assert_answered(site: Snapshot, plan: Plan) -> None:
    """Every request is answered once, with reasons, within its own window."""
    answers: list[Assign | Waiting | Refuse] = [*plan.assigns, *plan.waits, *plan.refusals]
    assert sorted(each.booking for each in answers) == [row.booking for row in site.requests]
    assert all(each.reasons for each in answers)
    requests = {request.booking: request for request in site.requests}
    for each in truth.given_by(plan):
        request = requests[each.booking]
        assert max(request.earliest, site.now) <= each.starts < each.ends
        assert each.ends - each.starts == request.duration
        assert request.latest is None or each.ends <= request.latest
        assert not request.fixed or each.starts == request.earliest


def assert_survives(site: Snapshot, plan: Plan) -> None:
    """Documents survive the way there and back, and decide the same."""
    assert decode(Plan, encode(plan)) == plan
    assert decode(Policy, encode(POLICY)) == POLICY
    again = decode(Snapshot, encode(site))
    assert digest(solve(again, POLICY)) == digest(plan)


def assert_order_free(site: Snapshot, plan: Plan, order: Random) -> None:
    """The order in which rows come in does not matter."""
    shuffled = replace(
        site,
        models=mixed(site.models, order),
        gpus=mixed(site.gpus, order),
        held=mixed(site.held, order),
        requests=mixed(site.requests, order),
        extensions=mixed(site.extensions, order),
        limits=mixed(site.limits, order),
    )
    assert encode(shuffled) == encode(site)
    assert encode(solve(shuffled, POLICY)) == encode(plan)


def assert_kept(plan: Plan, later: Snapshot, after: Plan, newcomer: Request | None = None) -> None:
    """No planned start of `plan` is later, or gone, in the plan `after` it, unless others overtook
    it: an expected start for anybody, or a guaranteed one for a newcomer of its own tenant.

    Without a newcomer, a booking that has come inside its guarantee overtakes expected starts. The
    reason names who has the place now, which a chain of others may lie before. A later end that is
    granted comes before expected starts, too.

    What waits for hardware that is out of service has no certificate, and a deadline may pass.
    """
    proven = {wait.booking: wait for wait in plan.waits if wait.places}
    assert not proven.keys() & {each.booking for each in after.refusals}
    given = {each.booking: each.starts for each in truth.given_by(after)}
    tenants = {request.booking: request.tenant for request in later.requests}
    reasons = {wait.booking: wait.delayed_by for wait in after.waits if wait.delayed_by}
    for booking, before in proven.items():
        if given[booking] <= max(before.starts, later.now):
            assert booking not in reasons
            continue
        is_own = newcomer is not None and tenants[booking] == newcomer.tenant
        assert before.strength == "expected" or (before.strength == "guaranteed" and is_own)
        has_longer = any(each.granted for each in after.extensions)
        codes = {"overtaken", "overrun", "quota_cut"} if has_longer else {"overtaken"}
        assert reasons[booking].code in codes
        if reasons[booking].code != "overtaken":
            continue
        facts = dict(reasons[booking].numbers)
        named = facts.get("booking")
        assert named is None or (facts["own_tenant"] and tenants[str(named)] == tenants[booking])


def two_cycles(site: Snapshot, seconds: int, order: Random) -> None:
    """Everything that holds of a site, of the next cycle, and of that with a strong newcomer."""
    plan = solve(site, POLICY)
    assert_true(site, plan)
    assert_answered(site, plan)
    assert_survives(site, plan)
    assert_order_free(site, plan, order)
    later = with_extensions(the_next(site, plan, until_next(site, plan, seconds)), order)
    after = solve(later, POLICY)
    assert_true(later, after)
    assert_kept(plan, later, after)
    strong = a_request("new", an_ask(1, "h100", "a100", "l40s"), priority=99, hours=9)
    crowded = replace(later, requests=(*later.requests, strong))
    assert_kept(plan, crowded, solve(crowded, POLICY), strong)


def with_extensions(site: Snapshot, chance: Random) -> Snapshot:
    """The site with extensions of some running bookings, and the planned starts of others."""
    rows = sorted((row for row in site.held if row.started), key=lambda row: row.booking)
    until = {row.booking: row.ends + chance.randint(1, 4) * 1_000 for row in rows if chance.random() < 0.4}
    extensions = tuple(Extension(booking, ends) for booking, ends in until.items())
    return replace(site, extensions=extensions)


def until_next(site: Snapshot, plan: Plan, seconds: int) -> int:
    """So many seconds, but not past the next planned start: there is a cycle at each event. Who
    comes later than the freeze horizon is too late to have modes changed."""
    if any(gpu.stands for gpu in site.gpus):
        seconds = min(seconds, POLICY.freeze_horizon)
    starts = [row.starts for row in site.held] + [row.starts for row in truth.given_by(plan)]
    return min([seconds, *(at - site.now for at in starts if at > site.now)])


# So many draws find each fault of test_planted_faults.py.
DRAWS = 100
STEPS = st.sampled_from([1, 5, 60, 1_000, 5_000])
ORDERS = st.randoms(use_true_random=False)
MOSTLY = st.sampled_from([True, True, False])
DENSE = (st.builds(a_dense_site, st.integers(0, 10**9), has_limits=MOSTLY), STEPS, ORDERS)

test_two_cycles_of_a_dense_site = holds_for(*DENSE, few=DRAWS, many=3_000)(two_cycles)
test_two_cycles_of_a_strange_site = holds_for(sites(), STEPS, ORDERS, few=40, many=3_000)(two_cycles)


def mixed(rows: tuple[T, ...], order: Random) -> tuple[T, ...]:
    """The same rows in another order."""
    return tuple(order.sample(rows, len(rows)))


@holds_for(sites(), st.integers(1, 4), st.integers(1, 8), few=40)
def test_a_guarantee_can_be_had_while_others_only_borrow(
    site: Snapshot, guaranteed: int, borrowers: int
) -> None:
    """Whatever flex and spot of other tenants hold, quota never keeps the owner out."""
    fleet = (*gpus(8, node="b1"), *gpus(guaranteed, node="b2"))
    held = tuple(
        replace(a_held(f"b1-{n}", ends=20 * HOUR, tenant="firm", project="firm-p"), tier=tier)
        for n, tier in zip(range(borrowers), ("flex", "spot") * 4, strict=False)
    )
    limits = tuple(row for row in site.limits if row.gpu_class != "h100" or row.owner != "lab")
    limits = tuple(row for row in limits if row.parent != "lab" or row.gpu_class != "h100")
    site = replace(
        site,
        gpus=fleet,
        held=held,
        extensions=(),
        requests=(a_request("b1", an_ask(guaranteed), hours=2),),
        limits=(*limits, a_limit("lab", guaranteed)),
    )
    plan = solve(site, POLICY)
    assert [row.booking for row in plan.assigns] == ["b1"]


class TestControls:
    """Each guard taken out once: the damage its property looks for appears."""

    def test_without_the_calendar_s_rows_a_slot_is_given_twice(self, monkeypatch: pytest.MonkeyPatch) -> None:
        site = a_snapshot(a_request("a"), a_request("b"), fleet=gpus(1))
        assert truth.overlaps(site, solve(site, POLICY)) == []
        monkeypatch.setattr(GpuCalendar, "add", lambda *_: None)
        assert truth.overlaps(site, solve(site, POLICY)) == [("a", "b")]

    def test_without_the_token_bit_a_gpu_gets_two_media_engines(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ask = an_ask(2, profile="1g.10gb+me")
        site = a_snapshot(a_request(ask=ask, hours=1), fleet=gpus(1))
        assert solve(site, POLICY).refusals
        monkeypatch.setattr("solver.fleet.pool.geometry_of", Geometry)
        monkeypatch.setattr("solver.fleet.mig_geometry._tokens", lambda *_: {})
        assert truth.too_many_media_engines(site, solve(site, POLICY)) != []

    def test_without_the_mode_a_gpu_fixed_to_whole_is_sliced(self, monkeypatch: pytest.MonkeyPatch) -> None:
        site = a_snapshot(a_request(ask=an_ask(profile="1g.10gb")), fleet=gpus(1, mode="whole"))
        assert truth.illegal(site, solve(site, POLICY)) == []
        monkeypatch.setattr(Pool, "suits", lambda pool, _: pool.usable)
        assert truth.illegal(site, solve(site, POLICY)) != []

    def test_without_groups_a_gang_that_must_be_together_is_torn(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ask = an_ask(2, together="node", required=True)
        fleet = gpus(1, node="n1") + gpus(1, node="n2")
        site = a_snapshot(a_request(ask=ask), fleet=fleet)
        assert truth.torn(site, solve(site, POLICY)) == []
        monkeypatch.setattr("solver.model.demand.demand_of", _anywhere)
        assert truth.torn(site, solve(site, POLICY)) == ["b1"]

    def test_without_the_quota_s_rows_a_tenant_gets_over_its_limit(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        site = a_snapshot(a_request("a"), a_request("b"), limits=(a_limit("lab", 1),))
        assert truth.over_limit(site, solve(site, POLICY)) == []
        monkeypatch.setattr(Quota, "add", lambda *_: None)
        assert truth.over_limit(site, solve(site, POLICY)) != []

    def test_without_its_planned_start_the_start_is_taken_by_a_stronger_newcomer(self) -> None:
        four = (whole(f"n1-{index}") for index in range(4))
        all_four = a_planned_start(HOUR, 1, *four, strength="firm")
        promised = a_request("p", an_ask(4), priority=10, planned=all_four)
        newcomer = a_request("n", hours=2, priority=90)
        held = tuple(a_held(f"n1-{index}") for index in range(4))
        site = a_snapshot(promised, newcomer, fleet=gpus(4), held=held)
        assert _start(solve(site, POLICY), "p") == NOON + HOUR
        forgotten = replace(site, requests=(replace(promised, planned=None), newcomer))
        assert _start(solve(forgotten, POLICY), "p") == NOON + 3 * HOUR

    def test_without_sorting_the_order_of_rows_decides(self, monkeypatch: pytest.MonkeyPatch) -> None:
        site = a_snapshot(a_request("a"), a_request("b"), held=(a_held("n1-0"),))
        other = replace(site, requests=site.requests[::-1])
        assert encode(site) == encode(other)
        monkeypatch.setattr("solver.model.codec.in_order", lambda snapshot: snapshot)
        assert encode(site) != encode(other)


def _start(plan: Plan, booking: str) -> int:
    return next(each.starts for each in truth.given_by(plan) if each.booking == booking)


def _anywhere(
    _: object, gpu_class: str, duration: int, owners: tuple[str, ...], tier: str, owner: str
) -> Demand:
    return Demand(gpu_class, None, 2, "any", duration, owners, tier, owner=owner)
