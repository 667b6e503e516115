"""Shortcuts of a cycle: what they claim is so, and the plan is the same bytes without them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from solver import Gpu, Limit, Plan, Policy, Snapshot, encode, solve
from solver.cycle import planned_starts
from solver.fleet.fragmentation import Ints
from solver.fleet.pool import Columns
from solver.model.demand import Demand
from solver.model.inputs import UNITS_PER_GPU, Place
from solver.preemption.after_pauses import RoomAfterPauses
from solver.quota.quota import Quota
from solver.quota.use import Use
from solver.rebinding import strategies
from solver.state import own_room
from solver.state.cycle_state import CycleState
from solver.state.room_bounds import RoomBounds
from solver.state.room_search import HeldRoom, RoomSearch
from solver.timeline.gpu_calendar import GpuCalendar
from solver.timeline.grid import Grid
from solver.timeline.next_taken import NextTaken
from tests.bench.solver import crowded
from tests.bench.solver.cycle import CLASSES, a_request_of, a_site
from tests.bench.solver.cycle import the_next as next_of_bench
from tests.solver.builders import (
    HOUR,
    NOON,
    POLICY,
    a_held,
    a_limit,
    a_planned_start,
    a_request,
    a_snapshot,
    gpus,
    whole,
)
from tests.solver.pausing import TIERS
from tests.solver.strategies import sites, the_next

few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
MINUTE = 60
TENANTS = ("lab", "firm")


def busy_but_for(*gaps: tuple[int, int]) -> CycleState:
    """One GPU that is taken for two hours, minutes from now in the gaps excepted."""
    edges = [0, *(edge for gap in gaps for edge in gap), 120]
    held = tuple(
        replace(a_held("n1-0", starts=since * MINUTE, ends=until * MINUTE), id=f"h{since}")
        for since, until in zip(edges[::2], edges[1::2], strict=True)
    )
    return CycleState(a_snapshot(fleet=gpus(1), held=held), POLICY)


def for_minutes(minutes: int, count: int = 1) -> Demand:
    return Demand("h100", None, count, "any", minutes * MINUTE, ("lab", "lab-p"))


def is_full(state: CycleState, demand: Demand, minutes: int, *, is_reserved: bool = False) -> bool:
    """What is known without a search; with a reservation that begins at the end, of what is before it."""
    until = NOON + minutes * MINUTE
    tried = state.all.starts_between(demand, NOON, until - 1)
    return not state.bounds.may_have_room(demand, tried, *((until,) if is_reserved else ())).any()


def searched(state: CycleState, demand: Demand) -> CycleState:
    """The state after a search for the demand in the first two hours."""
    state.first_between(demand, NOON, NOON + 120 * MINUTE - 1)
    return state


class TestBounds:
    def test_nothing_is_full_before_it_was_searched(self) -> None:
        assert not is_full(busy_but_for(), for_minutes(1), 120)
        assert is_full(searched(busy_but_for(), for_minutes(1)), for_minutes(1), 120)

    def test_a_search_proves_the_same_for_as_much_time_or_more(self) -> None:
        state = searched(busy_but_for((30, 60)), for_minutes(31))
        assert is_full(state, for_minutes(31), 120)
        assert is_full(state, for_minutes(600), 120)
        assert not is_full(state, for_minutes(30), 120)
        assert not is_full(state, for_minutes(31, count=2), 120)

    def test_an_own_reservation_proves_nothing_of_what_it_takes_itself(self) -> None:
        state = searched(busy_but_for((30, 60)), for_minutes(31))
        assert is_full(state, for_minutes(31), 60)
        assert not is_full(state, for_minutes(31), 60, is_reserved=True)
        assert is_full(state, for_minutes(31), 120, is_reserved=True)

    def test_what_comes_free_makes_unknown_only_what_reaches_it(self) -> None:
        state, demand = busy_but_for((30, 60)), for_minutes(31)
        searched(state, demand)
        state.bounds.freed("h100", NOON + 70 * MINUTE)
        assert is_full(state, demand, 60)
        assert not is_full(state, demand, 80)
        state.bounds.freed("h100", NOON + 60 * MINUTE)
        assert not is_full(state, demand, 60)
        assert is_full(state, demand, 30)

    def test_a_trial_takes_back_what_became_unknown_and_keeps_what_was_found(self) -> None:
        state, demand = busy_but_for((30, 60)), for_minutes(31)
        searched(state, demand)
        with state.bounds.trial("h100"):
            state.bounds.freed("h100", NOON)
            assert not is_full(state, demand, 120)
            searched(state, for_minutes(20, count=2))
        assert is_full(state, demand, 120)
        assert is_full(state, for_minutes(20, count=2), 120)
        with state.bounds.trial("h100") as keep:
            state.bounds.freed("h100", NOON)
            keep()
        assert not is_full(state, demand, 120)

    def test_what_is_known_of_a_stretch_is_known_of_its_parts(self) -> None:
        state = searched(busy_but_for(), for_minutes(20))
        state.all.gpus["h100"].add((whole("n1-0"),), NOON + 7 * MINUTE, NOON + 9 * MINUTE)
        assert is_full(state, for_minutes(20), 120)

    def test_a_search_for_a_named_node_says_nothing_of_others(self) -> None:
        state = busy_but_for((30, 60))
        searched(state, replace(for_minutes(20), pin=("n2",)))
        assert not is_full(state, for_minutes(20), 120)

    def test_no_next_use_is_read_for_stretches_in_which_all_gpus_are_busy(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read: list[int] = []
        after_rows = NextTaken.after_rows

        def counted(table: NextTaken, rows: Ints) -> Ints:
            read.append(len(rows))
            return after_rows(table, rows)

        monkeypatch.setattr(NextTaken, "after_rows", counted)
        state = busy_but_for(*((minute, minute) for minute in range(1, 120)))
        assert len(state.all.starts_between(for_minutes(5), NOON, NOON + 120 * MINUTE)) == 121
        assert state.first_between(for_minutes(5), NOON, NOON + 120 * MINUTE) == NOON + 120 * MINUTE
        assert read == [1]


NEVER = int(np.iinfo(np.int64).max)


def slowly(site: Snapshot, policy: Policy, patch: pytest.MonkeyPatch) -> Plan:
    """The plan without any shortcut."""
    with patch.context() as without:
        without.setattr(RoomBounds, "may_have_room", lambda _, __, starts, *___: starts >= 0)
        without.setattr(RoomSearch, "_with_room", every_start)
        without.setattr(planned_starts, "room_before", lambda *_: (True, None))
        without.setattr(HeldRoom, "_is_plain", lambda *_: False)
        without.setattr(Columns, "is_quick", lambda *_: False)
        without.setattr(Quota, "has_plenty", lambda *_: False)
        without.setattr(GpuCalendar, "run", lambda *_: None)
        without.setattr(strategies, "_would_fit", lambda *_: True)
        without.setattr(RoomAfterPauses, "may_be_enough", lambda _, __, windows: [at for at, _ in windows])
        without.setattr(RoomAfterPauses, "without", lambda _, __, starts, *___: starts)
        without.setattr(Quota, "lasting_allows", lambda *_: None)
        without.setattr(CycleState, "trial", forgetting)
        return solve(site, policy)


def every_start(state: CycleState, demand: Demand, first: int, last: int) -> Ints:
    return state.all.starts_between(demand, first, last)


@contextmanager
def forgetting(state: CycleState, gpu_class: str) -> Iterator[Callable[[], None]]:
    """A trial after which nothing is known."""
    yield lambda: None
    state.bounds.freed(gpu_class, state.now)


def lives(seed: int, gpu_count: int, bookings: int) -> Iterator[Snapshot]:
    """A crowded site over some cycles: work ends early, bookings come and go, GPUs are lost and
    limits cut. On every second site somebody may be paused."""
    chance = Random(seed)  # noqa: S311  a made-up site, the same each time
    policy = Policy(1)
    limits = tuple(
        replace(a_limit(f"t{tenant}", gpu_count / 24, name), borrow=None)
        for tenant in range(12)
        for name, _ in CLASSES
    )
    site = replace(a_site(gpu_count, bookings), limits=limits if seed % 3 else ())
    if seed % 2:
        site = replace(site, tiers=TIERS, requests=tuple(map(_in_any_tier, site.requests)))
    for cycle in range(3):
        yield site
        site = next_of_bench(site, solve(site, policy))
        new = replace(a_request_of(bookings + cycle, chance), earliest=site.now, fixed=False)
        site = replace(
            site,
            held=tuple(row for row in site.held if chance.random() > 0.05),
            requests=(*(row for row in site.requests if chance.random() > 0.05), new),
            gpus=tuple(_now_and_then_lost(gpu, chance) for gpu in site.gpus),
            limits=tuple(_now_and_then_cut(row, chance) for row in site.limits),
        )


def _in_any_tier(request):  # type: ignore[no-untyped-def]  # a request in, a request out
    tier = TIERS[request.submitted % len(TIERS)]
    return replace(request, tier=tier.slug, priority=tier.priority)


def _now_and_then_lost(gpu: Gpu, chance: Random) -> Gpu:
    return replace(gpu, usable=chance.random() > 0.01)


def _now_and_then_cut(row: Limit, chance: Random) -> Limit:
    return replace(row, guaranteed=row.guaranteed // 2) if chance.random() < 0.05 else row


def same_without_shortcuts(site: Snapshot, policy: Policy, patch: pytest.MonkeyPatch) -> None:
    assert encode(solve(site, policy)) == encode(slowly(site, policy, patch))


@few
@given(sites(), st.sampled_from([1, 60, 5_000]))
def test_two_cycles_of_any_site_are_the_same_without_the_shortcuts(site: Snapshot, seconds: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        same_without_shortcuts(site, POLICY, patch)
        same_without_shortcuts(the_next(site, solve(site, POLICY), seconds), POLICY, patch)


@pytest.mark.long
@settings(few, max_examples=1_000)
@given(sites(), st.sampled_from([1, 5, 60, 1_000, 5_000]))
def test_the_same_for_very_many_sites(site: Snapshot, seconds: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        same_without_shortcuts(site, POLICY, patch)
        same_without_shortcuts(the_next(site, solve(site, POLICY), seconds), POLICY, patch)


def test_crowded_sites_that_live_are_the_same_without_the_shortcuts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for seed in (1, 2):
        for site in lives(seed, 32, 24):
            same_without_shortcuts(site, Policy(1), monkeypatch)


def crowded_lives(pausable: float, count: int = 64, waiting: int = 90) -> Iterator[Snapshot]:
    """A crowded site and what follows: planned starts kept, a newcomer that goes first, an early
    end."""
    site = crowded.site_of(count, waiting, 2, pausable)
    yield site
    settled = crowded.the_next(site, solve(site, Policy(1)))
    yield settled
    yield crowded.one_more(settled, 2, is_first=True)
    yield crowded.early_end(settled)


@pytest.mark.parametrize("pausable", [0.5, 1.0])
def test_sites_where_most_may_be_paused_are_the_same_without_the_shortcuts(
    pausable: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for site in crowded_lives(pausable):
        same_without_shortcuts(site, Policy(1), monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("count", [64, 96, 160, 240])
def test_the_same_for_larger_sites_where_most_may_be_paused(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pausable in (0.3, 0.7, 1.0):
        for site in crowded_lives(pausable, count, count):
            same_without_shortcuts(site, Policy(1), monkeypatch)


@pytest.mark.long
def test_the_same_for_larger_sites_and_more_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(20):
        for site in lives(seed, 64, 200):
            same_without_shortcuts(site, Policy(1), monkeypatch)


def test_the_control_every_shortcut_is_taken_on_a_crowded_site(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = (
        "full",
        "limited",
        "searched",
        "quota",
        "near",
        "plenty",
        "run",
        "lasting",
        "_for_tenant",
        "_for_claim",
    )
    taken = dict.fromkeys(names, 0)

    def counted(name: str, really, is_taken):  # type: ignore[no-untyped-def]  # wraps anything
        def call(*asked, **named):  # type: ignore[no-untyped-def]
            answer = really(*asked, **named)
            taken[name] += is_taken(answer)
            return answer

        return call

    full = counted("full", own_room.room_before, lambda answer: not answer[0])
    monkeypatch.setattr(planned_starts, "room_before", full)
    limited = counted("limited", own_room.is_limited_until, bool)
    monkeypatch.setattr(planned_starts, "is_limited_until", limited)
    fewer = counted("searched", RoomBounds.starts_between, lambda starts: not len(starts))
    monkeypatch.setattr(RoomBounds, "starts_between", fewer)
    monkeypatch.setattr(Quota, "is_never_over", counted("quota", Quota.is_never_over, bool))
    monkeypatch.setattr(Quota, "has_plenty", counted("plenty", Quota.has_plenty, bool))
    monkeypatch.setattr(GpuCalendar, "run", counted("run", GpuCalendar.run, lambda run: run is not None))
    lasting = counted("lasting", Quota.lasting_allows, lambda ok: ok is not None and not ok.all())
    monkeypatch.setattr(Quota, "lasting_allows", lasting)
    near = counted("near", strategies._would_fit, lambda fits: not fits)
    monkeypatch.setattr(strategies, "_would_fit", near)
    for bound in ("_for_tenant", "_for_claim"):
        hopeless = counted(bound, getattr(RoomAfterPauses, bound), lambda last: last < 2 * NOON)
        monkeypatch.setattr(RoomAfterPauses, bound, hopeless)
    for site in (*lives(2, 48, 120), *crowded_lives(0.5)):
        solve(site, Policy(1))
    assert min(taken.values()) > 0, taken


def test_the_control_a_planned_start_that_is_said_to_be_at_its_earliest_is_not_made_earlier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request = a_request(planned=a_planned_start(2 * HOUR, 1, whole("n1-0")))
    site = a_snapshot(request, fleet=gpus(1))
    assert [row.starts for row in solve(site, POLICY).assigns] == [NOON]
    monkeypatch.setattr(planned_starts, "room_before", lambda *_: (False, None))
    assert [row.starts for row in solve(site, POLICY).waits] == [NOON + 2 * HOUR]


amounts = st.tuples(
    st.sampled_from(TENANTS),
    st.sampled_from(("p", "q", "r")),
    st.sampled_from([tier.slug for tier in TIERS]),
    st.integers(1, 4),
    st.integers(-2, 8),
    st.integers(1, 8),
)
some = st.sampled_from((0, 1, 2)) | st.none()


@few
@given(st.lists(amounts, max_size=12), st.lists(st.tuples(some, some), min_size=6, max_size=6))
def test_use_that_is_added_at_once_is_what_it_is_one_by_one(
    rows: list[tuple[str, str, str, int, int, int]], edges: list[tuple[int | None, int | None]]
) -> None:
    rest = iter(edges)
    limits: list[Limit] = []
    for tenant in TENANTS:
        borrow, lend = next(rest)
        limits.append(a_limit(tenant, 4, borrow=borrow, lend=lend))
        for project in ("p", "q"):
            borrow, lend = next(rest)
            own = a_limit(f"{tenant}-{project}", 2, parent=tenant, borrow=borrow, lend=lend)
            limits.append(own)
    site = replace(a_snapshot(fleet=gpus(8), limits=tuple(limits)), tiers=TIERS)
    uses = [
        (
            Use((tenant, f"{tenant}-{project}"), tier, "h100", units * UNITS_PER_GPU),
            (NOON + since * HOUR, NOON + (since + hours) * HOUR),
        )
        for tenant, project, tier, units, since, hours in rows
    ]
    one, other = (Quota(site, {"h100": 8 * UNITS_PER_GPU}) for _ in range(2))
    for use, window in uses:
        one.add(use, window)
    other.add_all(uses)
    asked = [(Use((t, f"{t}-p"), tier.slug, "h100", 1)) for t in TENANTS for tier in TIERS]
    for use in asked:
        for hour in range(18):
            window = (NOON + hour * HOUR, NOON + (hour + 1) * HOUR)
            assert one.over(use, window) == other.over(use, window)
            assert one.borrowed(use, window) == other.borrowed(use, window)
            assert not (one.has_plenty(use) and one.over(use, window))


def test_the_next_use_of_each_gpu_is_followed_through_changes() -> None:
    chance = Random(5)  # noqa: S311  made-up windows
    pool = CycleState(a_snapshot(fleet=gpus(4)), POLICY).pools["h100"]
    grid, known = Grid(NOON, 300), [NOON + HOUR]
    calendar = GpuCalendar(pool, grid)
    placed: list[tuple[tuple[Place, ...], int, int]] = []
    for _ in range(200):
        if placed and chance.random() < 0.4:
            calendar.remove(*placed.pop(chance.randrange(len(placed))))
        else:
            first, count = chance.randrange(4), chance.randint(1, 3)
            places = tuple(whole(f"n1-{n}") for n in range(first, min(4, first + count)))
            starts = NOON + chance.randint(-60, 600) * MINUTE
            window = (starts, starts + chance.randint(1, 20_000))
            if calendar.is_free(places, *window):
                calendar.put(places, *window)
                placed.append((places, *window))
        known = [*known[-3:], NOON + chance.randint(0, 900) * MINUTE]
        for instant in known:
            busy = [
                (pool.column[place.gpu], max(starts, instant))
                for places, starts, ends in placed
                for place in places
                if grid.end(ends) > instant
            ]
            following = [min((at for c, at in busy if c == n), default=NEVER) for n in range(4)]
            assert calendar.following.after(instant).tolist() == following


def test_what_is_taken_without_others_is_what_is_left_when_they_are_dropped() -> None:
    chance = Random(3)  # noqa: S311  made-up windows
    pool = CycleState(a_snapshot(fleet=gpus(4)), POLICY).pools["h100"]
    for _ in range(30):
        calendar, placed = GpuCalendar(pool, Grid(NOON)), []
        for _ in range(12):
            starts = NOON + chance.randint(-1, 9) * HOUR
            window = (starts, starts + chance.randint(1, 5) * HOUR)
            places = (whole(f"n1-{chance.randrange(4)}"),)
            if calendar.is_free(places, *window):
                calendar.put(places, *window)
                placed.append((places, *window))
        others = [row for row in placed if chance.random() < 0.5]
        begins = NOON + chance.randint(0, 8) * HOUR
        without = calendar.busy_without(others, begins, begins + 2 * HOUR)
        for row in others:
            calendar.remove(*row)
        at = np.array([begins], dtype=np.int64)
        assert without.tolist() == calendar.busy(at, 2 * HOUR)[0].tolist()
