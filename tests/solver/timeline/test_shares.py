"""Shares of GPUs, and the host cores and memory that come with a device, over time."""

from dataclasses import replace

import pytest

from solver import (
    Ask,
    Assign,
    Host,
    Place,
    Plan,
    Refuse,
    Request,
    Snapshot,
    Waiting,
    solve,
)
from solver.model.demand import demands_of
from solver.model.inputs import Held
from solver.model.ordering import in_order
from solver.state.cycle_state import CycleState
from solver.timeline.gpu_calendar import GpuCalendar
from solver.timeline.host_calendar import HostCalendar
from tests.solver import truth
from tests.solver.builders import (
    HOUR,
    NOON,
    POLICY,
    a_held,
    a_planned_start,
    a_request,
    a_share,
    a_snapshot,
    an_ask,
    gpus,
    shared,
    whole,
)

TWO_HOSTS = (Host("n1", 64_000, 262_144), Host("n2", 64_000, 262_144))


def given(plan: Plan, booking: str = "b1") -> Assign:
    return next(row for row in plan.assigns if row.booking == booking)


def held_share(gpu: str, share: int, *, ends: int = HOUR, booking: str = "k") -> Held:
    row = a_held(gpu, ends=ends, booking=booking)
    return replace(row, id=f"{booking}-{gpu}", place=shared(gpu, share))


def with_cores(ask: Ask, cores: int, memory: int = 0) -> Ask:
    return replace(ask, cores=cores, memory=memory)


def codes(plan: Plan) -> set[str]:
    rows: list[Refuse | Waiting] = [*plan.refusals, *plan.waits]
    return {why.code for row in rows for why in row.reasons}


def test_shares_go_beside_each_other_until_the_gpu_is_full() -> None:
    running_requests = [a_request(f"b{n}", a_share(400)) for n in range(3)]
    plan = solve(a_snapshot(*running_requests, fleet=gpus(2)), POLICY)
    places = [given(plan, f"b{n}").places for n in range(3)]
    assert places[0] == places[1] == (shared("n1-0", 400),)
    assert places[2] == (shared("n1-1", 400),)


def test_a_share_waits_until_enough_of_the_gpu_is_given_back() -> None:
    held = (held_share("n1-0", 700), held_share("n1-0", 200, ends=3 * HOUR, booking="m"))
    plan = solve(a_snapshot(a_request(ask=a_share(300)), fleet=gpus(1), held=held), POLICY)
    (wait,) = plan.waits
    assert wait.starts == NOON + HOUR
    assert wait.places == (shared("n1-0", 300),)


@pytest.mark.parametrize("other", [an_ask(), an_ask(profile="1g.10gb")])
def test_a_gpu_is_whole_sliced_or_shared_at_any_instant(other: Ask) -> None:
    running_requests = (a_request("a", a_share(100)), a_request("b", other))
    plan = solve(a_snapshot(*running_requests, fleet=gpus(1)), POLICY)
    assert given(plan, "a").starts == NOON
    assert [wait.starts for wait in plan.waits] == [NOON + HOUR]
    assert truth.overlaps(a_snapshot(*running_requests, fleet=gpus(1)), plan) == []


def test_a_gpu_is_shared_by_one_owner_at_a_time_unless_the_policy_lets_them_mix() -> None:
    """As nodes are set up: the second account would have to wait there."""
    held = replace(held_share("n1-0", 300), owner="ann")
    running_requests = [replace(a_request(who, a_share(300)), owner=who) for who in ("ann", "bob")]
    site = a_snapshot(*running_requests, fleet=gpus(1), held=(held,))
    plan = solve(site, POLICY)
    assert [row.booking for row in plan.assigns] == ["ann"]
    assert [(row.booking, row.starts) for row in plan.waits] == [("bob", NOON + HOUR)]
    mixed = solve(site, replace(POLICY, share_owners=2))
    assert [row.booking for row in mixed.assigns] == ["ann", "bob"]


def test_a_share_takes_its_thousandths_of_quota() -> None:
    site = a_snapshot(a_request(ask=a_share(250)), fleet=gpus(1))
    plan = solve(site, POLICY)
    held = replace(site, requests=(), held=(held_share("n1-0", 250),))
    assert given(plan).places[0].share == 250
    assert solve(held, POLICY).assigns == ()


def test_a_share_of_several_gpus_is_refused_with_its_rule() -> None:
    plan = solve(a_snapshot(a_request(ask=replace(a_share(), count=2))), POLICY)
    assert [why.rule for why in plan.refusals[0].reasons] == ["R60"]


def test_a_promised_share_keeps_its_start_beside_others() -> None:
    request = a_request(ask=a_share(500), planned=a_planned_start(HOUR, 1, shared("n1-0", 500)))
    held = (
        a_held("n1-0"),
        replace(held_share("n1-0", 500), starts=NOON + HOUR, ends=NOON + 5 * HOUR),
    )
    plan = solve(a_snapshot(request, fleet=gpus(1), held=held), POLICY)
    assert [wait.starts for wait in plan.waits] == [NOON + HOUR]


def test_a_planned_share_that_no_longer_fits_beside_others_is_given_up() -> None:
    request = a_request(ask=a_share(500), planned=a_planned_start(HOUR, 1, shared("n1-0", 500)))
    held = (
        replace(held_share("n1-0", 500, ends=3 * HOUR), id="h1"),
        replace(held_share("n1-0", 500, ends=5 * HOUR, booking="l"), id="h2"),
    )
    plan = solve(a_snapshot(request, fleet=gpus(1), held=held), POLICY)
    assert [wait.starts for wait in plan.waits] == [NOON + 3 * HOUR]


def test_host_cores_are_part_of_what_must_be_free() -> None:
    busy = replace(a_held("n1-0", ends=2 * HOUR), cores=60_000)
    request = a_request(ask=with_cores(an_ask(), 8_000))
    site = a_snapshot(request, fleet=gpus(2), held=(busy,), hosts=TWO_HOSTS)
    plan = solve(site, POLICY)
    (wait,) = plan.waits
    assert wait.starts == NOON + 2 * HOUR
    assert "host_busy" in codes(plan)
    (separate,) = solve(replace(site, gpus=(*gpus(2), *gpus(2, node="n2"))), POLICY).assigns
    assert separate.places == (whole("n2-0"),)


def test_memory_is_counted_like_cores() -> None:
    running_requests = [a_request(f"b{n}", with_cores(an_ask(), 0, 100_000)) for n in range(3)]
    plan = solve(a_snapshot(*running_requests, fleet=gpus(8), hosts=TWO_HOSTS[:1]), POLICY)
    assert [row.starts for row in plan.assigns] == [NOON, NOON]
    assert [row.starts for row in plan.waits] == [NOON + HOUR]


def test_planned_starts_share_the_cores_that_their_node_has_now() -> None:
    """The node had more cores when both were planned."""
    ask = with_cores(an_ask(), 40_000)
    starts = [a_planned_start(HOUR, 1, whole(f"n1-{number}")) for number in range(2)]
    planned = [
        replace(a_request(f"b{number}", ask, earliest=HOUR), planned=start)
        for number, start in enumerate(starts)
    ]
    plan = solve(a_snapshot(*planned, fleet=gpus(2), hosts=TWO_HOSTS[:1]), POLICY)
    assert [row.starts - NOON for row in plan.waits] == [HOUR, 2 * HOUR]


def test_a_gang_is_spread_over_nodes_that_can_serve_it() -> None:
    ask = with_cores(an_ask(6), 20_000)
    fleet = (*gpus(8), *gpus(8, node="n2"))
    plan = solve(a_snapshot(a_request(ask=ask), fleet=fleet, hosts=TWO_HOSTS), POLICY)
    nodes = [place.gpu.split("-")[0] for place in given(plan).places]
    assert sorted(nodes) == ["n1"] * 3 + ["n2"] * 3
    together = replace(ask, together="node", required=True)
    refused = solve(a_snapshot(a_request(ask=together), fleet=fleet, hosts=TWO_HOSTS), POLICY)
    assert codes(refused) == {"host_too_small"}


def test_slices_of_one_ask_take_cores_each() -> None:
    ask = with_cores(an_ask(4, profile="1g.10gb"), 20_000)
    fleet = (*gpus(1), *gpus(1, node="n2"))
    plan = solve(a_snapshot(a_request(ask=ask), fleet=fleet, hosts=TWO_HOSTS), POLICY)
    nodes = [place.gpu.split("-")[0] for place in given(plan).places]
    assert sorted(nodes) == ["n1", "n1", "n2", "n2"]


def test_a_node_that_has_not_said_what_it_has_serves_no_ask_for_cores() -> None:
    plan = solve(a_snapshot(a_request(ask=with_cores(an_ask(), 1))), POLICY)
    assert codes(plan) == {"host_too_small"}


def test_what_asks_for_no_cores_leaves_the_nodes_that_have_many() -> None:
    """Two idle GPUs, one on a node without cores to spare."""
    fleet = (*gpus(1, domains=None), *gpus(1, node="n2", domains=None))
    hosts = (Host("n1", 64_000, 262_144), Host("n2", 2_000, 262_144))
    others = [a_request(f"o{n}", with_cores(an_ask(), 32_000), earliest=HOUR) for n in range(4)]
    first = a_request("b1", priority=90)
    plan = solve(a_snapshot(first, *others, fleet=fleet, hosts=hosts), POLICY)
    assert given(plan).places == (whole("n2-0"),)


def test_any_class_takes_the_one_where_it_costs_later_asks_least() -> None:
    """The others can only use h100, so who can use either leaves it to them."""
    fleet = (*gpus(1), *gpus(1, "l40s", "l40s", node="n2", domains=None))
    either = a_request("b1", replace(an_ask(1, "h100", "l40s"), any_class=True), priority=90)
    others = [a_request(f"o{n}", earliest=HOUR) for n in range(4)]
    plan = solve(a_snapshot(either, *others, fleet=fleet), POLICY)
    assert given(plan).gpu_class == "l40s"
    in_order = replace(either, ask=an_ask(1, "h100", "l40s"))
    assert given(solve(a_snapshot(in_order, *others, fleet=fleet), POLICY)).gpu_class == "h100"


def test_deciding_one_by_one_is_what_a_cycle_does() -> None:
    """The bench of placement asks `CycleState` task by task; `solve` gives the same places."""
    shapes = (
        with_cores(an_ask(), 9_000),
        a_share(470, cores=4_000, memory=8_192),
        with_cores(an_ask(1, "l40s", "h100"), 3_000),
        a_share(320, "h100", "l40s", cores=2_000),
        with_cores(an_ask(2, together="node", required=True), 6_000),
        an_ask(profile="2g.20gb"),
    )
    running_requests = tuple(
        a_request(f"b{n:02}", replace(shapes[n % 6], any_class=n % 6 > 1), fixed=True, submitted=n)
        for n in range(36)
    )
    fleet = (*gpus(8), *gpus(4, "l40s", "l40s", node="n2", domains=None))
    site = in_order(a_snapshot(*running_requests, fleet=fleet, hosts=TWO_HOSTS))
    state, one_by_one = CycleState(site, POLICY), {}
    for request in running_requests:
        found = state.first_at(demands_of(request), NOON)
        if found is not None:
            state.reserve(found)
            one_by_one[request.booking] = found.places
    plan = solve(site, POLICY)
    assert {row.booking: row.places for row in plan.assigns} == one_by_one
    assert 10 < len(one_by_one) < 36


class TestControls:
    """Each guard taken out once: the damage appears."""

    def test_without_counting_shares_a_gpu_is_given_more_than_once(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        site = crowded(a_share(600))
        assert thousandths(site) <= 1_000
        monkeypatch.setattr(GpuCalendar, "_share", lambda *_: None)
        assert thousandths(site) > 1_000

    def test_without_counting_cores_a_node_gives_more_than_it_has(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        site = crowded(with_cores(an_ask(), 40_000))
        assert len(solve(site, POLICY).assigns) == 1
        monkeypatch.setattr(HostCalendar, "take", lambda *_: None)
        assert len(solve(site, POLICY).assigns) > 1


def crowded(ask: Ask) -> Snapshot:
    running_requests: list[Request] = [a_request(f"b{n}", ask) for n in range(3)]
    return a_snapshot(*running_requests, fleet=gpus(3 if ask.cores else 1), hosts=TWO_HOSTS[:1])


def thousandths(site: Snapshot) -> int:
    rows: list[Place] = [place for row in solve(site, POLICY).assigns for place in row.places]
    return sum(place.share or 0 for place in rows)


def test_what_takes_no_shares_is_left_to_whole_gpus() -> None:
    old = tuple(replace(gpu, shares=False) for gpu in gpus(2, node="n1"))
    running_requests = (a_request("b1", a_share(300)), a_request("b2", an_ask(2)))
    site = a_snapshot(*running_requests, fleet=(*old, *gpus(1, node="n2")))
    plan = solve(site, POLICY)
    assert [place.gpu for place in given(plan).places] == ["n2-0"]
    assert {place.gpu for place in given(plan, "b2").places} == {"n1-0", "n1-1"}
