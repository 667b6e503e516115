"""Plans to make room by moving a few slices, or to pack many on few GPUs; nothing is moved here."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from solver.fleet.demand_mix import Mix
from solver.fleet.mig_geometry import WHOLE_MASK, Masks
from solver.fleet.pool import Pool
from solver.model.demand import Demand
from solver.model.inputs import SLOTS_PER_GPU, Place
from solver.model.ordering import place_order
from solver.placement.gang import place


@dataclass(frozen=True, slots=True)
class RepackPlan:
    """The place of the demand once the moves (from, to) are made in this order."""

    place: Place
    moves: tuple[tuple[Place, Place], ...]


def make_room(
    pool: Pool, demand: Demand, busy: Masks, movable: Sequence[Place], most: int
) -> RepackPlan | None:
    """The fewest moves, at most `most`, after which one slice of the demand fits; None: no such
    plan.

    `busy` contains the `movable` slices and is not changed.
    """
    if demand.profile is None or demand.count != 1 or demand.share is not None:
        raise ValueError("room is made for one slice")
    fitting = place(pool, demand, busy)
    if fitting is not None:
        return RepackPlan(fitting[0], ())
    candidates = sorted(_candidates(pool, demand.profile, busy, movable, most), key=_cheapest)
    for target, blockers in candidates:
        moves = _moves(pool, demand, busy, target, blockers)
        if moves is not None:
            return RepackPlan(target, moves)
    return None


def pack(pool: Pool, profiles: Sequence[str]) -> tuple[Place, ...] | None:
    """All the slices on as few GPUs of an empty pool as can be found; None: they do not fit.

    The largest first, each where it takes least from the rest, on as many GPUs as their slots need,
    then on one more until they fit. Other orders are tried before a further GPU.
    """
    wanted = Counter(profiles)
    if not all(pool.serves(profile) for profile in wanted):
        return None
    sizes = {profile: _size(pool, profile) for profile in wanted}
    order = sorted(wanted, key=lambda profile: (-sizes[profile], -pool.units(profile), profile))
    slots = sum(sizes[profile] * count for profile, count in wanted.items())
    for gpus in range(-(-slots // SLOTS_PER_GPU), len(pool) + 1):
        for each in (order, *_neighbours(order)):
            places = _packed(pool, wanted, each, gpus)
            if places is not None:
                return places
    return None


def _neighbours(order: Sequence[str]) -> Iterator[list[str]]:
    """The same order with one profile moved to the end, or with two neighbours swapped."""
    for at in range(len(order) - 1):
        yield [*order[:at], order[at + 1], order[at], *order[at + 2 :]]
    for at in range(len(order) - 2):
        yield [*order[:at], *order[at + 1 :], order[at]]


def _packed(pool: Pool, wanted: Counter[str], order: Sequence[str], gpus: int) -> tuple[Place, ...] | None:
    busy = np.zeros(len(pool), dtype=np.uint16)
    busy[gpus:] = WHOLE_MASK
    places: list[Place] = []
    for begin, profile in enumerate(order):
        later = Mix(tuple(sorted((each, 1, 0, wanted[each]) for each in order[begin:])))
        toward = pool.with_mix(later)
        found = place(toward, Demand(pool.gpu_class, profile, wanted[profile], "any", 1, ()), busy)
        if found is None:
            return None
        for spot in found:
            busy[pool.column[spot.gpu]] |= pool.mask_of(spot)
        places += found
    return tuple(places)


def _size(pool: Pool, profile: str) -> int:
    return max(g.places(profile)[0].size for g, _ in pool.kinds if g.serves(profile))


def _candidates(
    pool: Pool, profile: str, busy: Masks, movable: Sequence[Place], most: int
) -> Iterator[tuple[Place, tuple[Place, ...]]]:
    """Legal places with the movable slices in their way, where nothing else is."""
    here: dict[int, list[Place]] = {}
    for each in movable:
        here.setdefault(pool.column[each.gpu], []).append(each)
    for column in sorted(here):
        if not pool.eligible(profile)[column]:
            continue
        for spot in pool.geometries[column].places(profile):
            target = replace(spot, gpu=pool.gpus[column].id)
            mask = pool.mask_of(target)
            blockers = tuple(each for each in here[column] if pool.mask_of(each) & mask)
            fixed = int(busy[column])
            for each in blockers:
                fixed &= ~pool.mask_of(each)
            if 0 < len(blockers) <= most and not fixed & mask:
                yield target, blockers


def _cheapest(candidate: tuple[Place, tuple[Place, ...]]) -> tuple[int, int, str, int]:
    target, blockers = candidate
    return (len(blockers), sum(each.size for each in blockers), target.gpu, target.start)


def _moves(
    pool: Pool, demand: Demand, busy: Masks, target: Place, blockers: tuple[Place, ...]
) -> tuple[tuple[Place, Place], ...] | None:
    now = busy.copy()
    column = pool.column[target.gpu]
    for each in blockers:
        now[column] &= ~pool.mask_of(each) & 0xFFFF
    now[column] |= pool.mask_of(target)
    moves = []
    for each in sorted(blockers, key=lambda place: (-place.size, place_order(place))):
        if not pool.serves(each.profile):
            return None
        found = place(pool, replace(demand, profile=each.profile), now)
        if found is None:
            return None
        now[pool.column[found[0].gpu]] |= pool.mask_of(found[0])
        moves.append((each, found[0]))
    return tuple(moves)
