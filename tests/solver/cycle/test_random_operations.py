"""A million random operations over all models: nothing illegal, nothing twice.

`pytest tests/solver/cycle/test_random_operations.py -m long`
"""

from collections import Counter
from dataclasses import dataclass, field
from random import Random

import numpy as np
import pytest

from solver import Ask, Host, Place, Policy, Snapshot
from solver.fleet.pool import Pool
from solver.model.demand import Demand, Fit, demands_of
from solver.model.inputs import Mode, Model
from solver.placement.gang import place
from solver.placement.repack import make_room
from solver.state.cycle_state import CycleState
from tests.solver.builders import A30, A100_40, H100, H200, HOUR, L40S, NOON, a_request, gpus

MODELS = (H100, A100_40, H200, A30, L40S)
MODES: tuple[Mode | None, ...] = (None, None, "whole", "sliced")


@dataclass
class Truth:
    """What runs where, slot by slot; knows the hardware's rules from the model's data alone."""

    model: Model
    modes: dict[str, Mode | None]
    running: dict[str, list[Place]] = field(default_factory=dict)

    def start(self, spot: Place) -> None:
        """AssertionError when the hardware could not make it with what runs."""
        mine = self.running.setdefault(spot.gpu, [])
        slots = set(range(spot.start, spot.start + spot.size))
        for other in mine:
            assert not slots & set(range(other.start, other.start + other.size)), (spot, other)
            assert (other.profile is None) == (spot.profile is None)
        wrong = "sliced" if spot.profile is None else "whole"
        assert self.modes[spot.gpu] != wrong
        if spot.profile is None:
            assert (spot.start, spot.size) == (0, 8)
        else:
            legal = [p for p in self.model.placements if p.profile == spot.profile]
            assert (spot.start, spot.size) in {(p.start, p.size) for p in legal}
            assert sum(each.profile == spot.profile for each in mine) < legal[0].limit
        mine.append(spot)

    def end(self, spot: Place) -> None:
        """ValueError when it does not run."""
        self.running[spot.gpu].remove(spot)


class Card:
    """A few GPUs of one model, used at random."""

    def __init__(self, model: Model, chance: Random) -> None:
        fleet = tuple(
            gpu
            for node, mode in enumerate(MODES)
            for gpu in gpus(2, "c", model.slug, node=f"n{node}", mode=mode)
        )
        self.pool = Pool("c", fleet, {model.slug: model})
        self.shapes = (None, *sorted({p.profile for p in model.placements}))
        self.truth = Truth(model, {gpu.id: gpu.mode for gpu in fleet})
        self.busy = np.zeros(len(self.pool), dtype=np.uint16)
        self.live: list[Place] = []
        self.chance = chance

    def step(self) -> None:
        """One start, forced start or end."""
        dice = self.chance.random()
        if self.live and dice < 0.45:
            self.end(self.live[self.chance.randrange(len(self.live))])
            return
        profile = self.chance.choice(self.shapes)
        if profile is not None and dice > 0.97:
            self.force(profile)
            return
        demand = Demand("c", profile, self.chance.choice((1, 1, 1, 2, 3)), "any", 1, ())
        for spot in place(self.pool, demand, self.busy) or ():
            self.start(spot)

    def force(self, profile: str) -> None:
        """Make room by moving slices."""
        slices = tuple(each for each in self.live if each.profile is not None)
        room = make_room(self.pool, Demand("c", profile, 1, "any", 1, ()), self.busy, slices, 2)
        if room is None:
            return
        for old, _ in room.moves:
            self.end(old)
        for spot in (*(new for _, new in room.moves), room.place):
            self.start(spot)

    def start(self, spot: Place) -> None:
        self.truth.start(spot)
        self.live.append(spot)
        self.busy[self.pool.column[spot.gpu]] |= self.pool.mask_of(spot)

    def end(self, spot: Place) -> None:
        self.truth.end(spot)
        self.live.remove(spot)
        self.busy[self.pool.column[spot.gpu]] &= ~self.pool.mask_of(spot) & 0xFFFF


def run_slices(steps: int) -> int:
    """So many steps over all models in turn; how many places were live in the end."""
    chance = Random(1)  # noqa: S311  made-up work, the same each time
    cards = [Card(model, chance) for model in MODELS]
    for number in range(steps):
        cards[number % len(cards)].step()
    return sum(len(card.live) for card in cards)


def an_ask(chance: Random) -> Ask:
    """A share, some whole GPUs or a slice with cores and memory, of one class or of either."""
    count = chance.choice((1, 1, 1, 2, 4))
    shape = "whole" if count > 1 else chance.choice(("whole", "share", "share", "slice"))
    classes = chance.choice((("a",), ("b",), ("a", "b")))
    return Ask(
        count,
        classes,
        "2g.20gb" if shape == "slice" else None,
        "node",
        required=True,
        share=chance.choice((130, 470, 810)) if shape == "share" else None,
        cores=1_000 * chance.randint(0, 16),
        memory=512 * chance.randint(0, 64),
        any_class=len(classes) > 1,
    )


HOSTS = {f"n{n}": Host(f"n{n}", 64_000, 262_144) for n in range(8)}


def a_working(chance: Random) -> CycleState:
    """Eight nodes of one to four H100 in two classes; what is asked for is known."""
    fleet = tuple(
        gpu for n in range(8) for gpu in gpus(1 + n % 4, "ab"[n % 2], node=f"n{n}", mode=MODES[n // 2])
    )
    lately = tuple(a_request(f"b{n}", an_ask(chance)) for n in range(200))
    hosts = tuple(HOSTS.values())
    return CycleState(Snapshot(NOON, (H100,), fleet, (), lately, (), (), hosts=hosts), Policy(1))


@dataclass
class Books:
    """Shares, cores and memory, counted apart from the product."""

    used: Counter[tuple[str, str]] = field(default_factory=Counter)

    def count(self, found: Fit, ask: Ask, sign: int) -> None:
        """AssertionError for too much of anything, and for what was not asked for."""
        assert len({spot.gpu for spot in found.places}) == ask.count
        assert found.demand.gpu_class in ask.classes
        for spot in found.places:
            node = spot.gpu.split("-")[0]
            self.used[node, "cores"] += sign * ask.cores
            self.used[node, "memory"] += sign * ask.memory
            self.used[spot.gpu, "thousandths"] += sign * (ask.share or 125 * spot.size)
            assert self.used[node, "cores"] <= HOSTS[node].cores
            assert self.used[node, "memory"] <= HOSTS[node].memory
            assert 0 <= self.used[spot.gpu, "thousandths"] <= 1_000
            kind = "share" if ask.share else "slice" if ask.profile else "whole"
            self.used[spot.gpu, kind] += sign
            kinds = ("share", "slice", "whole")
            assert sum(self.used[spot.gpu, each] > 0 for each in kinds) <= 1


def run_hosts(steps: int) -> int:
    """Shares, cores and memory likewise, over the days: what ends is given back."""
    chance = Random(2)  # noqa: S311  made-up work, the same each time
    state, books = a_working(chance), Books()
    live: list[tuple[Ask, Fit]] = []
    for _ in range(steps):
        if live and chance.random() < 0.45:
            ask, found = live.pop(chance.randrange(len(live)))
            state.free(found)
            books.count(found, ask, -1)
            continue
        ask = an_ask(chance)
        given = state.first_at(demands_of(a_request(ask=ask)), NOON)
        if given is not None:
            state.reserve(given)
            books.count(given, ask, 1)
            live.append((ask, given))
    assert state.all.gpus["a"].busy(np.array([NOON + HOUR]), 1).max() == 0
    return len(live)


def test_some_hundred_operations_place_nothing_illegal_or_twice() -> None:
    assert run_slices(600) > 0
    assert run_hosts(150) > 0


@pytest.mark.long
def test_a_million_operations_over_all_models_place_nothing_illegal_or_twice() -> None:
    assert run_slices(800_000) > 0
    assert run_hosts(200_000) > 0


def test_the_control_a_place_beside_the_legal_ones_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def shifted(pool: Pool, demand: Demand, busy: np.ndarray) -> tuple[Place, ...] | None:
        return (Place(pool.gpus[0].id, demand.profile, 1, 4),)

    monkeypatch.setattr("tests.solver.cycle.test_random_operations.place", shifted)
    with pytest.raises(AssertionError):
        run_slices(100)
