"""Room before a reservation, found while it is reserved: a search without freeing it."""

import numpy as np

from solver.fleet.fragmentation import Ints
from solver.fleet.mig_geometry import WHOLE_MASK
from solver.model.demand import Demand, Fit
from solver.placement.gang import fits
from solver.state.room_search import RoomSearch, is_only_room
from solver.timeline.gpu_calendar import idle_from


def room_before(
    state: RoomSearch, demand: Demand, first: int, starts: int, own: Fit | None = None
) -> tuple[bool, int | None]:
    """False when certainly no window from `first` on that begins before `starts` has room, also not
    once its `own` reservation, which begins then, is freed; and the first that has, if it is known."""
    if demand.groups or demand.share is not None or demand.pin:
        return True, None
    is_own = own is not None and own.demand.gpu_class == demand.gpu_class
    if not is_only_room(state.all, demand):
        tried = state.all.starts_between(demand, first, starts - 1)
        return bool(state.bounds.may_have_room(demand, tried, *((starts,) if is_own else ())).any()), None
    # What begins earlier meets others in all that its own reservation takes.
    since = starts
    if own is not None and is_own:
        since = idle_from(state.all.gpus[demand.gpu_class], own.places, first, starts)
    found = state.first_between(demand, first, since - 1) if first < since else None
    if found is not None or own is None or since == starts:
        return found is not None, found
    if demand.duration > own.demand.duration:
        return True, None
    tried = state.all.starts_between(demand, max(first, since), starts - 1)
    found = _first_without(state, demand, own, tried)
    return found is not None, found


def is_limited_until(state: RoomSearch, own: Fit, first: int) -> bool:
    """True when quota certainly forbids each window from `first` on that has room and begins before a
    reservation, once that is freed."""
    demand, use = own.demand, state.use(own.demand)
    if demand.groups or not is_only_room(state.all, demand) or len(state.quota.instants(use)):
        return False
    tried = state.all.starts_between(demand, first, own.starts - 1)
    tried = tried[state.bounds.may_have_room(demand, tried, own.starts)]
    state.quota.add(use, own.window, -1)
    allowed = state.quota.allows(use, tried, demand.duration)
    state.quota.add(use, own.window)
    if allowed is None:
        return False
    hopeful = tried[allowed]
    since = idle_from(state.all.gpus[demand.gpu_class], own.places, first, own.starts)
    early = hopeful[hopeful < since]
    if len(early) and state.first_of(demand, early) is not None:
        return False
    return _first_without(state, demand, own, hopeful[hopeful >= since]) is None


def _first_without(state: RoomSearch, demand: Demand, own: Fit, tried: Ints) -> int | None:
    """The first of rising starts, before which a part of the `own` places may be idle, with room once
    these are freed."""
    tried = tried[state.bounds.may_have_room(demand, tried, own.starts)]
    if demand.shape is None:
        return state.bounds.first_idle(demand, tried, own)
    return next((at for at in tried.tolist() if _has_place_without(state, demand, at, own)), None)


def _has_place_without(state: RoomSearch, demand: Demand, starts: int, own: Fit) -> bool:
    calendar = state.all.gpus[demand.gpu_class]
    busy = calendar.busy_without([(own.places, *own.window)], starts, starts + demand.duration)
    busy = np.where(calendar.pool.allowed((), demand.where), busy, WHOLE_MASK) if demand.where else busy
    return bool(fits(calendar.pool, demand, busy[None, :])[0])
