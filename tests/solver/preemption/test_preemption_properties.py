"""What holds of pauses on every site, over many cycles; with controls."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from solver import Snapshot, decode, encode, solve
from solver.model.plan import Plan
from solver.preemption.leaving import Departures
from solver.preemption.victim_rules import VictimRules
from solver.state.running import RunningBooking
from tests.rings import holds_for
from tests.solver.builders import HOUR, NOON, POLICY, a_limit, gpus, whole
from tests.solver.cycle.test_properties import mixed
from tests.solver.pausing import GRACE, a_claim, a_site, notices, running
from tests.solver.world import World, a_world, an_arrival, is_needed

pytestmark = pytest.mark.turn

seeds = st.integers(0, 10**9)


def cycles(seed: int, arrivals: int) -> Iterator[tuple[World, Snapshot, Plan]]:
    """A world from the first arrival until everything has ended: each plan, after its checks."""
    chance = Random(seed)  # noqa: S311  a made-up site, the same each time
    world = a_world(chance)
    for number in range(arrivals):
        new = an_arrival(chance, number, world.site.now)
        world.site = replace(world.site, requests=(*world.site.requests, new))
        before = world.site
        yield world, before, world.cycle()
        world.until(world.site.now + chance.choice((1, 5, 60, 600, 3_600)))
    for _ in range(60 * arrivals):
        if not world.site.requests and not world.site.held:
            return
        before = world.site
        yield world, before, world.cycle()
        if world.until(world.next_event()):
            world.log.append((world.site.now, "", ""))
    raise AssertionError(f"it never comes to rest: {world.log}")


def lived(seed: int, arrivals: int) -> World:
    """The world at its end. While nothing ends by itself, nobody is paused again and again."""
    for world, _, _ in cycles(seed, arrivals):
        since = [at for at, (_, victim, _) in enumerate(world.log) if not victim]
        lately = world.log[since[-1] + 1 :] if since else []
        often = Counter(victim for _, victim, _ in lately)
        assert max(often.values(), default=0) <= 2, f"paused again and again: {world.log}"
    return world


# So many draws find each fault of test_planted_faults.py.
WORLDS = 25


@holds_for(seeds, few=WORLDS, many=300)
def test_pauses_come_to_rest_and_every_plan_on_the_way_is_true(seed: int) -> None:
    lived(seed, 8)


@pytest.mark.long
@settings(max_examples=500, deadline=None)
@given(seeds, st.integers(2, 16))
@example(259, 14)  # a planned start that needs host cores alone
@example(1151, 16)  # one would lie inside its guarantee once another has left
@example(112, 14)  # one ends before another begins: their cores do not add up
@example(425, 13)  # somebody leaves for a claim that is decided after the one looked at
@example(595, 9)  # a tenant's own claim has some of it leave after another's has
def test_the_same_for_very_many_worlds(seed: int, arrivals: int) -> None:
    lived(seed, arrivals)


@pytest.mark.parametrize("seeds", [range(2, 5), pytest.param(range(5, 12), marks=pytest.mark.long)])
def test_the_order_in_which_rows_come_in_does_not_matter_to_pauses(seeds: range) -> None:
    order, pauses = Random(5), 0  # noqa: S311  made-up orders
    for seed in seeds:
        for world, before, plan in cycles(seed, 6):
            pauses += len(plan.pauses)
            site = replace(before, running=world.site.running)
            shuffled = replace(
                site,
                held=mixed(site.held, order),
                requests=mixed(site.requests, order),
                running=mixed(site.running, order),
                limits=mixed(site.limits, order),
                tiers=mixed(site.tiers, order),
            )
            assert encode(solve(shuffled, world.policy)) == encode(plan)
            assert decode(Plan, encode(plan)) == plan
    assert pauses, "nobody was paused: this shows nothing"


class TestControls:
    """A rule taken out once: what it keeps away appears."""

    limits = (a_limit("lab", 4), a_limit("firm", 4, borrow=None), a_limit("inst", 0, borrow=None))

    def site(self, tenant: str, **more) -> Snapshot:  # type: ignore[no-untyped-def]  # as a_claim
        held = tuple(row for n in range(4) for row in running(f"f{n}", whole(f"n1-{n}")))
        claim = a_claim(tenant=tenant, **more)
        return a_site(claim, held=held, fleet=gpus(4), limits=self.limits)

    def test_without_the_guarantee_of_the_victim_what_lies_inside_it_is_paused(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        site = self.site("lab")
        assert notices(solve(site, POLICY)) == {}

        def everybody(
            departures: Departures, gpu_class: str, tenant: str, starts: int, *, planned: bool
        ) -> list[RunningBooking]:
            del planned
            return list(departures.able(gpu_class, tenant, starts))

        monkeypatch.setattr(Departures, "borrowers", everybody)
        assert notices(solve(site, POLICY)) != {}

    def test_without_filling_back_somebody_is_paused_who_is_not_needed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        limits = (self.limits[0], a_limit("firm", 0, borrow=None))
        site = replace(self.site("lab"), limits=limits)
        plan = solve(site, POLICY)
        assert [is_needed(site, plan, pause.booking) for pause in plan.pauses] == [True]
        monkeypatch.setattr("solver.preemption.victims._filled_back", lambda _, gone, __: gone)
        monkeypatch.setattr("solver.preemption.victims.VictimSearch.sets", lambda *_: ())
        plan = solve(site, POLICY)
        assert not all(is_needed(site, plan, pause.booking) for pause in plan.pauses)

    def test_without_comparing_shares_two_borrowers_pause_each_other_for_ever(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        limits = tuple(a_limit(name, 0, borrow=None) for name in ("lab", "firm", "inst"))
        site = replace(self.site("inst", tier="flex"), gpus=gpus(1), limits=limits)
        site = replace(site, held=site.held[:1])
        assert turns(site) == 0
        monkeypatch.setattr("tests.solver.world.check", lambda *_: None)
        monkeypatch.setattr(VictimRules, "_is_poorer", lambda *_: True)
        assert turns(site) == 0, "the potential would not rise"
        assert [drop.rule for drop in solve(site, POLICY).dropped] == ["fairer_share"]
        monkeypatch.setattr(VictimRules, "raise_potential", lambda *_: True)
        assert turns(site) > 3


def turns(site: Snapshot) -> int:
    """How many pauses there are in half an hour when nothing else happens."""
    quick = tuple(replace(tier, protected=0, pauses=None) for tier in site.tiers)
    world = World(replace(site, tiers=quick))
    while world.site.now < NOON + HOUR // 2:
        world.cycle()
        world.until(world.site.now + GRACE)
    return len(world.log)
