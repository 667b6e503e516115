"""Strategies that place a few reservations anew at their own starts, so that one more fits.

A strategy is called with all of them freed. It returns the newcomer's fit, not reserved, and the
new fits of the others, reserved; or None with none of them reserved.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from solver.fleet.mig_geometry import WHOLE_MASK
from solver.fleet.pool import Pool
from solver.model.demand import Demand, Fit
from solver.model.inputs import Place
from solver.model.ordering import place_order
from solver.placement.gang import fits
from solver.placement.rearrange import Movable, Neighbourhood, Window, rearrange
from solver.placement.repack import pack
from solver.state.cycle_state import CycleState
from solver.timeline.host_calendar import Free

Reserved = Mapping[str, Fit]
Rebound = tuple[Fit, dict[str, Fit]]
Strategy = Callable[[CycleState, Demand, int, Reserved], Rebound | None]

_ROOMY = 8
_MOST_CHOICES = 1_000
"""Places that are tried in one search: about 20 ms."""


def rebind_with(
    state: CycleState, demand: Demand, starts: int, near: Reserved, strategy: Strategy
) -> Rebound | None:
    """The result of the strategy; None: it found nothing, and nothing is changed."""
    if not _would_fit(state, demand, starts, near):
        return None
    with state.bounds.trial(demand.gpu_class) as keep:
        for found in near.values():
            state.free(found)
        answer = strategy(state, demand, starts, near)
        if answer is not None:
            keep()
            return answer
        for found in near.values():
            state.reserve(found)
    return None


def _would_fit(state: CycleState, demand: Demand, starts: int, near: Reserved) -> bool:
    """False when GPUs are too few even without those reservations; other needs are not checked."""
    calendar = state.all.gpus[demand.gpu_class]
    if demand.share is not None or calendar.has_shares:
        return True
    others = ((found.places, *found.window) for found in near.values())
    busy = calendar.busy_without(others, starts, starts + demand.duration)
    return bool(fits(calendar.pool, demand, busy))


def newcomer_first(state: CycleState, demand: Demand, starts: int, near: Reserved) -> Rebound | None:
    """Place the newcomer where it fits best, then the others."""
    newcomer = state.at(demand, starts)
    return None if newcomer is None else _others_around(state, newcomer, near)


def newcomer_at(place: Place) -> Strategy:
    """A strategy that places the newcomer exactly there."""

    def strategy(state: CycleState, demand: Demand, starts: int, near: Reserved) -> Rebound | None:
        newcomer, pool = Fit(demand, (place,), starts), state.pools[demand.gpu_class]
        if not pool.allowed(demand.pin, demand.where)[pool.column[place.gpu]]:
            return None
        if state.over(demand, starts) is not None or not state.all.is_free(newcomer):
            return None
        return _others_around(state, newcomer, near)

    return strategy


def packed(state: CycleState, demand: Demand, starts: int, near: Reserved) -> Rebound | None:
    """Pack slices on as few as possible of the GPUs that they had alone, then the newcomer."""
    pool = state.pools[demand.gpu_class]
    if any(found.demand.where or (pool.has_zones and found.demand.count > 1) for found in near.values()):
        return None
    columns = {pool.column[place.gpu] for found in near.values() for place in found.places}
    since = min(found.starts for found in near.values())
    until = max(found.ends for found in near.values())
    at = np.array([since], dtype=np.int64)
    busy = state.all.gpus[demand.gpu_class].busy(at, until - since)[0]
    idle = [replace(pool.gpus[column], zone="") for column in sorted(columns) if not busy[column]]
    pieces = [found.demand.profile or "" for found in near.values() for _ in found.places]
    places = pack(Pool(pool.gpu_class, idle, pool.models), pieces) if idle else None
    if places is None:
        return None
    left: dict[str | None, list[Place]] = {}
    for place in sorted(places, key=place_order, reverse=True):
        left.setdefault(place.profile, []).append(place)
    ends = {
        booking: replace(found, places=_taken(left[found.demand.profile], found.demand.count))
        for booking, found in sorted(near.items())
    }
    if not _reserved(state, [*ends.values()]):
        return None
    newcomer = state.at(demand, starts)
    if newcomer is None:
        for found in ends.values():
            state.free(found)
        return None
    return newcomer, ends


def proven(state: CycleState, demand: Demand, starts: int, near: Reserved) -> Rebound | None:
    """The fewest moves on these GPUs and a few roomy ones, by branch and bound."""
    pieces = [(booking, place) for booking, found in near.items() for place in found.places]
    is_small = len(pieces) + demand.count <= state.policy.exact_pieces
    # The model has no shares and no pins.
    is_able = demand.share is None and not demand.pin and not any(p.share for _, p in pieces)
    if not (is_small and is_able):
        return None
    movable = [
        Movable(
            place,
            place.size,
            near[name].window,
            name,
            near[name].demand.level,
            near[name].demand.host_resources,
            near[name].demand.where,
        )
        for name, place in pieces
    ]
    near_by = _neighbourhood(state, demand, starts, pieces)
    found = rearrange(near_by, demand, starts, movable, _MOST_CHOICES)
    if found is None:
        return None
    places: dict[str, list[Place]] = {}
    for item, place in found.ends:
        places.setdefault(item.gang, []).append(place)
    ends = {
        booking: replace(near[booking], places=tuple(sorted(mine, key=place_order)))
        for booking, mine in sorted(places.items())
    }
    newcomer = Fit(demand, found.places, starts)
    # The calendar knows more than the model: owners of shares, and later reservations.
    if state.over(demand, starts) is not None or not _reserved(state, [*ends.values(), newcomer]):
        return None
    state.free(newcomer)
    return newcomer, ends


def _neighbourhood(
    state: CycleState, demand: Demand, starts: int, pieces: list[tuple[str, Place]]
) -> Neighbourhood:
    pool, calendar = state.pools[demand.gpu_class], state.all.gpus[demand.gpu_class]
    busy = calendar.busy(np.array([starts], dtype=np.int64), demand.duration)[0]
    taken = np.bitwise_count(busy & np.uint16(WHOLE_MASK))
    roomy = sorted(range(len(pool)), key=lambda column: (int(taken[column]), column))
    columns = {pool.column[place.gpu] for _, place in pieces} | {*roomy[: _ROOMY + demand.count]}

    def is_free(place: Place, window: Window) -> bool:
        return calendar.is_free((place,), *window)

    def free(window: Window) -> Free:
        at = np.array([window[0]], dtype=np.int64)
        return state.all.hosts.free(pool, at, window[1] - window[0]).row(0)

    return Neighbourhood(pool, tuple(sorted(columns)), is_free, free)


def _others_around(state: CycleState, newcomer: Fit, near: Reserved) -> Rebound | None:
    """Keep reservations that can stay, then place the others at their own starts, largest first."""
    state.reserve(newcomer)
    ends: dict[str, Fit] = {}
    away: dict[str, Fit] = {}
    for booking, found in sorted(near.items()):
        if state.all.is_free(found):
            state.reserve(found)
            ends[booking] = found
        else:
            away[booking] = found
    for booking, found in sorted(away.items(), key=_largest_first):
        other = state.at(found.demand, found.starts)
        if other is None:
            for each in (newcomer, *ends.values()):
                state.free(each)
            return None
        ends[booking] = replace(other, class_rank=found.class_rank)
        state.reserve(other)
    state.free(newcomer)
    return newcomer, ends


def _reserved(state: CycleState, wanted: list[Fit]) -> bool:
    """Reserve all of them; False: one is not free, and none is reserved."""
    for number, found in enumerate(wanted):
        if not state.all.is_free(found):
            for each in wanted[:number]:
                state.free(each)
            return False
        state.reserve(found)
    return True


def _taken(left: list[Place], count: int) -> tuple[Place, ...]:
    return tuple(sorted((left.pop() for _ in range(count)), key=place_order))


def _largest_first(row: tuple[str, Fit]) -> tuple[int, int, tuple[object, ...], str]:
    booking, found = row
    first = place_order(found.places[0])
    size = sum(place.size for place in found.places)
    return (-size, found.starts, first, booking)
