"""What is in the way of a start: running work, the line, a limit."""

from dataclasses import replace

import numpy as np

from allocation.reasons.reason import Reason, frees, reason
from allocation.solver.model.inputs import Request
from allocation.solver.placement.gang import Demand, fits, most_together
from allocation.solver.reasons.explain import (
    QueueAhead,
    maintenance,
    mode_change,
    shape,
    why_quota,
)
from allocation.solver.state.working import Fit, Working
from allocation.solver.timeline.maintenance import missing

_OUT = frozenset({"hardware_out", "node_unanswering"})
"""Nobody knows when hardware is back."""


def why_not_at(
    working: Working, demand: Demand, starts: int, line: QueueAhead
) -> tuple[Reason, ...]:
    """What is in the way of exactly this start, blockers only; empty when nothing is.

    Room that only reservations of others take is the place in line; what running and fixed work
    takes is GPUs not free together.
    """
    found = list(_why_not_with_held(working, demand, starts))
    if not found and not _has_room(working, demand, starts):
        found.append(_in_line(demand, line))
    quota = why_quota(working, demand, starts)
    return (*found, quota) if quota else tuple(found)


def why_waiting(
    working: Working, request: Request, found: Fit, line: QueueAhead
) -> tuple[Reason, ...]:
    """Why a booking does not start at once, and when each of that stops being in the way.

    Room is in the way until the planned start, unless a limit holds for longer: then the limit
    comes first.
    """
    first = working.first_start(request.earliest)
    blockers = why_not_at(working, found.demand, first, line)
    room_at = _room_before(working, found, first)
    if room_at is not None:
        limits = [each for each in blockers if each.check == "quota"]
        if not limits:
            later = why_quota(working, found.demand, room_at)
            limits = [later] if later else []
        blockers = (*limits, *(each for each in blockers if each.check != "quota"))
    return _waiting(working, request, found, blockers, room_at) or (
        frees(_in_line(found.demand, line), found.starts),
    )


def _room_before(working: Working, found: Fit, first: int) -> int | None:
    """The first start before the planned one at which there is room, and quota says no; None:
    room is what it waits for."""
    demand = found.demand
    if found.starts <= first or working.quota.has_plenty(working.use(demand)):
        return None
    return working.first_of(demand, working.starts_between(demand, first, found.starts - 1))


def why_still_waiting(
    working: Working, request: Request, kept: Fit, line: QueueAhead
) -> tuple[Reason, ...]:
    """The same for a promise that is reserved where it was, and can't begin sooner.

    That is known for lack of room, so what running work does not take others have reserved.
    """
    first = working.first_start(request.earliest)
    found = _why_not_with_held(working, kept.demand, first) or (_in_line(kept.demand, line),)
    quota = _why_quota_of_others(working, kept, first)
    return _waiting(working, request, kept, (*found, quota) if quota else found)


def _has_room(working: Working, demand: Demand, starts: int) -> bool:
    if starts < working.no_room.first_possible(demand):
        return False
    at = np.array([starts], dtype=np.int64)
    return bool(fits(working.pools[demand.gpu_class], demand, *working.busy(demand, at))[0])


def _waiting(
    working: Working,
    request: Request,
    found: Fit,
    blockers: tuple[Reason, ...],
    room_at: int | None = None,
) -> tuple[Reason, ...]:
    """`room_at` is when there is room; None: when it starts."""
    until = found.starts if room_at is None else room_at
    said = [
        blocker if blocker.check == "quota" or blocker.code in _OUT else frees(blocker, until)
        for blocker in blockers
    ]
    if request.earliest > working.now:
        said.append(reason("not_before", request.earliest))
    return tuple(said)


def _why_quota_of_others(working: Working, kept: Fit, starts: int) -> Reason | None:
    """The limit that forbids an earlier window to what is reserved now.

    What fits beside its own reservation fits without it all the more.
    """
    use = working.use(kept.demand)
    if working.quota.has_plenty(use) or working.over(kept.demand, starts) is None:
        return None
    working.quota.add(use, kept.window, -1)
    found = why_quota(working, kept.demand, starts)
    working.quota.add(use, kept.window)
    return found


def _why_not_with_held(working: Working, demand: Demand, starts: int) -> tuple[Reason, ...]:
    """What is held does not change in a cycle, so all that want the same are told the same."""
    if demand.pin:
        return _why_not_with_held_uncached(working, demand, starts)
    key = (*demand.kind, demand.duration, starts)
    if key not in working.beside_held:
        working.beside_held[key] = _why_not_with_held_uncached(working, demand, starts)
    return working.beside_held[key]


def _why_not_with_held_uncached(
    working: Working, demand: Demand, starts: int
) -> tuple[Reason, ...]:
    left = working.left_by_held(demand, starts)
    if left.is_enough:
        return ()
    pool = working.pools[demand.gpu_class]
    found = [_host_busy(demand) if left.has_gpus else _busy(demand, left.together)]
    if demand.pin:
        found = [_why_not_there(working, demand, starts)]
    for code, count in () if demand.pin else missing(pool, demand.shape):
        if working.would_fit_in_service(demand, starts):
            found.append(reason(code, out=count, gpus=len(pool), gpu_class=demand.gpu_class))
    away, back = working.maintenance.away(demand.gpu_class, (starts, starts + demand.duration))
    if away:
        found.append(maintenance(away, "class", back, demand.gpu_class))
    return (*found, *_why_not_in_mode(working, demand, starts))


def _why_not_in_mode(working: Working, demand: Demand, starts: int) -> tuple[Reason, ...]:
    """GPUs that are free, and still have or soon need the other mode."""
    name, modes = demand.gpu_class, working.held_modes
    if not modes.may_switch(name):
        return ()
    pool, at = working.pools[name], np.array([starts], dtype=np.int64)
    busy = working.held_only[name].busy(at, demand.duration)[0]
    free = pool.capacity(demand.shape, busy) > 0
    count = int((free & modes.others(pool, demand.shape, (at, demand.duration))[0]).sum())
    return (mode_change(name, count, modes.lead(name), demand.shape),) if count else ()


def _why_not_there(working: Working, demand: Demand, starts: int) -> Reason:
    """Why not where it is pinned to; `elsewhere` is 1 when there would be room without the pin."""
    pool = working.pools[demand.gpu_class]
    named = pool.within(demand.pin) & pool.suits(demand.shape)
    if not (named & pool.usable).any():
        return reason("pin_out", out=int(named.sum()), pin=",".join(demand.pin))
    free, at = replace(demand, pin=()), np.array([starts], dtype=np.int64)
    is_free = bool(fits(pool, free, *working.busy(free, at))[0])
    return reason("pinned", elsewhere=int(is_free), pin=",".join(demand.pin))


def _busy(demand: Demand, most: int, *, planned: bool = False) -> Reason:
    """`planned`: planned starts take room, too."""
    flag = 1 if planned else None
    return reason(
        "gpus_busy",
        left=most,
        asked=demand.count,
        level=demand.level,
        planned=flag,
        **shape(demand),
    )


def why_not_free(working: Working, demand: Demand, starts: int) -> Reason:
    """Why a window can't be had beside all that is placed and promised, with what is free of it."""
    busy, _ = working.busy(demand, np.array([starts], dtype=np.int64))
    most = most_together(working.pools[demand.gpu_class], demand, busy[0])
    if most >= demand.count:
        return reason("window_busy")
    return _busy(demand, most, planned=True)


def _host_busy(demand: Demand) -> Reason:
    return reason("host_busy", cores=demand.cores, memory=demand.memory)


def _in_line(demand: Demand, line: QueueAhead) -> Reason:
    ahead = {"ahead": line.bookings, "ahead_units": line.units, "position": line.bookings + 1}
    return reason("line", gpu_class=demand.gpu_class, **ahead)
