"""Pauses come to rest where bookings of several classes can be paused: all moves of small sites."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

import pytest

from solver import Ask, Plan, Request, solve
from solver.model.inputs import Held, Place
from solver.model.limits import Limit
from solver.preemption.claimed_places import ClaimedPlaces
from solver.preemption.victim_rules import VictimRules
from solver.quota.quota import Quota
from tests.solver.builders import HOUR, NOON, a_limit, an_ask, gpus
from tests.solver.pausing import TIERS, a_claim, a_site, notices, rest_of
from tests.solver.truth import given_by
from tests.solver.world import RESTLESS

FLEET = (*gpus(2, node="n1"), *gpus(4, "l40s", "l40s", node="n2", domains=None))
CLASS_OF = {gpu.id: gpu.gpu_class for gpu in FLEET}
QUICK = tuple(replace(tier, protected=0, pauses=None) for tier in TIERS)
MOST_STATES = 120

Placed = tuple[tuple[str, tuple[Place, ...]], ...]
"""Who is in place and where, in the order of the grants."""


@dataclass(frozen=True)
class Site:
    """What people want, and what their organisations may have."""

    wants: dict[str, Request]
    limits: tuple[Limit, ...]

    def move(self, placed: Placed, name: str) -> Placed | None:
        """Who is in place once this booking has asked; None: it waits for others to end."""
        held = tuple(row for at, each in enumerate(placed) for row in self._rows(at, *each))
        site = replace(
            a_site(self.wants[name], held=held, fleet=FLEET, limits=self.limits),
            tiers=QUICK,
            running=tuple(self._rest(*each) for each in placed),
        )
        plan = solve(site, RESTLESS)
        assert plan.dropped == ()
        places = _places_now(plan, name)
        if places is None:
            return None
        stays = tuple(each for each in placed if each[0] not in notices(plan))
        return (*stays, (name, places))

    def _rows(self, at: int, name: str, places: tuple[Place, ...]) -> Iterator[Held]:
        request = self.wants[name]
        for place in places:
            yield Held(
                f"{name}/{place.gpu}",
                name,
                request.tenant,
                request.project,
                place,
                NOON - HOUR,
                NOON + 9 * HOUR,
                started=True,
                tier=request.tier,
                since=NOON - HOUR,
                saved=NOON,
                granted=(1, at),
                mixed=bool(request.ask.groups),
            )

    def _rest(self, name: str, places: tuple[Place, ...]) -> Request:
        rows = [*self._rows(0, name, places)]
        return replace(rest_of(rows, NOON), ask=self.wants[name].ask)


def _places_now(plan: Plan, name: str) -> tuple[Place, ...] | None:
    """Its places if it starts now, or as soon as somebody has left who has notice for it."""
    row = next((each for each in given_by(plan) if each.booking == name), None)
    if row is None or not (row.starts == NOON or plan.pauses):
        return None
    return row.places


def a_random_site(chance: Random) -> Site:
    """Five bookings of two or three organisations; most are of both classes."""
    tenants = ("lab", "firm", "inst")[: chance.choice((2, 2, 3))]
    wants = {}
    for number in range(5):
        both = chance.random() < 0.6
        one = chance.choice(("h100", "l40s"))
        ask: Ask = an_ask(chance.randint(1, 2), "h100" if both else one)
        if both:
            ask = replace(an_ask(1), groups=(an_ask(chance.randint(1, 2), "l40s"),))
        tier = chance.choice(("flex", "flex", "flex", "spot", "standard"))
        wants[f"b{number}"] = a_claim(
            f"b{number}", ask=ask, tier=tier, tenant=chance.choice(tenants), hours=9
        )
    limits = tuple(
        a_limit(tenant, chance.choice((0, 0, 1)), name, borrow=None, weight=chance.choice((1, 2)))
        for tenant in tenants
        for name in ("h100", "l40s")
    )
    return Site(wants, limits)


def rings_of(site: Site, most: int = MOST_STATES) -> list[list[frozenset[str]]]:
    """Ways on which the same set of bookings is in place again, from an empty site on."""
    found: list[list[frozenset[str]]] = []
    known: set[tuple[str, ...]] = set()

    def look(placed: Placed, way: list[frozenset[str]]) -> None:
        names = tuple(name for name, _ in placed)
        here = frozenset(names)
        if here in way:
            found.append([*way[way.index(here) :], here])
            return
        if names in known or len(known) >= most:
            return
        known.add(names)
        for name in site.wants.keys() - here:
            after = site.move(placed, name)
            if after is not None:
                look(after, [*way, here])

    look((), [])
    return found


@pytest.mark.parametrize("seeds", [range(4), pytest.param(range(4, 60), marks=pytest.mark.long)])
def test_no_set_of_bookings_is_in_place_again(seeds: range) -> None:
    for seed in seeds:
        site = a_random_site(Random(seed))  # noqa: S311  a made-up site, the same each time
        assert rings_of(site) == [], f"site {seed}"


def test_a_rule_that_is_not_sound_makes_a_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the rules there is none; were mixed bookings claimants like others and every share fairer, b0
    and a2 would pause each other for ever."""
    both = replace(an_ask(1), groups=(an_ask(1, "l40s"),))
    wants = {
        name: a_claim(name, ask=ask, tier="flex", tenant=tenant, hours=9)
        for name, ask, tenant in (
            ("b0", both, "firm"),
            ("b1", both, "firm"),
            ("a2", both, "lab"),
            ("a3", an_ask(2, "l40s"), "lab"),
        )
    }
    limits = tuple(a_limit(t, 0, n, borrow=None) for t in ("lab", "firm") for n in ("h100", "l40s"))
    site = Site(wants, limits)
    assert rings_of(site) == []

    by_slug = {tier.slug: tier for tier in QUICK}
    monkeypatch.setattr(Quota, "tier", lambda _, slug: by_slug[slug.removesuffix(" mixed")])
    monkeypatch.setattr(ClaimedPlaces, "may_pause_together", lambda *_: True)
    monkeypatch.setattr(VictimRules, "_is_poorer", lambda *_: True)
    monkeypatch.setattr(VictimRules, "raise_potential", lambda *_: True)
    assert rings_of(site)
