"""A million random operations over all models: nothing illegal, nothing twice.

`pytest tests/solver/test_random_operations.py -m long`
"""

from collections import Counter
from dataclasses import dataclass, field
from random import Random

import numpy as np
import pytest

from allocation.solver.hosts import WHOLE, Host, HostAsk, Hosts, Spot
from allocation.solver.placement import Want, place
from allocation.solver.repack import make_room
from allocation.solver.topology import Pool
from allocation.solver.types import Mode, Model, Place
from tests.solver.builders import A30, A100_40, H100, H200, L40S, gpus

MODELS = (H100, A100_40, H200, A30, L40S)
MODES: tuple[Mode | None, ...] = (None, None, "whole", "sliced")


@dataclass
class Truth:
    """What runs where, slot by slot; knows the hardware's rules from the model's data alone."""

    model: Model
    modes: dict[str, Mode | None]
    running: dict[str, list[Place]] = field(default_factory=dict)

    def start(self, spot: Place) -> None:
        """AssertionError when the hardware could not make it beside what runs."""
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
        want = Want("c", profile, self.chance.choice((1, 1, 1, 2, 3)), "any", 1, ())
        for spot in place(self.pool, want, self.busy) or ():
            self.start(spot)

    def force(self, profile: str) -> None:
        """Make room by moving slices."""
        slices = tuple(each for each in self.live if each.profile is not None)
        room = make_room(self.pool, Want("c", profile, 1, "any", 1, ()), self.busy, slices, 2)
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


def an_ask(chance: Random) -> HostAsk:
    """Cores alone, a share, or some whole GPUs; sometimes of one model."""
    count = chance.choice((0, 1, 1, 1, 2, 4))
    share = 0 if count == 0 else WHOLE if count > 1 else chance.choice((130, 470, 810, WHOLE))
    models = (chance.choice(("a", "b")),) if count and chance.random() < 0.3 else ()
    return HostAsk(count, share, 1_000 * chance.randint(0, 16), 512 * chance.randint(0, 64), models)


def run_hosts(steps: int) -> int:
    """Shares, cores and memory likewise; counted apart from the product."""
    chance = Random(2)  # noqa: S311  made-up work, the same each time
    nodes = [Host(f"n{n}", "ab"[n % 2], 1 + n % 4, 64_000, 262_144) for n in range(8)]
    hosts = Hosts(nodes, Counter(an_ask(chance) for _ in range(200)))
    live: list[tuple[HostAsk, Spot]] = []
    used: Counter[tuple[int, int | str]] = Counter()
    for _ in range(steps):
        if live and chance.random() < 0.45:
            ask, spot = live.pop(chance.randrange(len(live)))
            hosts.give_back(ask, spot)
            sign = -1
        else:
            ask = an_ask(chance)
            found = hosts.choose(ask)
            if found is None:
                continue
            spot, sign = found, 1
            hosts.take(ask, spot)
            live.append((ask, spot))
        node = nodes[spot.node]
        used[spot.node, "cores"] += sign * ask.cores
        used[spot.node, "memory"] += sign * ask.memory
        for gpu in spot.gpus:
            used[spot.node, gpu] += sign * ask.share
            assert 0 <= gpu < node.gpus
            assert used[spot.node, gpu] <= WHOLE
        assert len(set(spot.gpus)) == ask.count
        assert used[spot.node, "cores"] <= node.cores
        assert used[spot.node, "memory"] <= node.memory
        assert not ask.count or not ask.models or node.model in ask.models
    return len(live)


def test_some_thousand_operations_place_nothing_illegal_or_twice() -> None:
    assert run_slices(5_000) > 0
    assert run_hosts(2_000) > 0


@pytest.mark.long
def test_a_million_operations_over_all_models_place_nothing_illegal_or_twice() -> None:
    assert run_slices(800_000) > 0
    assert run_hosts(200_000) > 0


def test_the_control_a_place_beside_the_legal_ones_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def shifted(pool: Pool, want: Want, busy: np.ndarray) -> tuple[Place, ...] | None:
        return (Place(pool.gpus[0].id, want.profile, 1, 4),)

    monkeypatch.setattr("tests.solver.test_random_operations.place", shifted)
    with pytest.raises(AssertionError):
        run_slices(100)
