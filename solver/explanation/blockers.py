"""What blocks a start: running work, the queue, hardware out of service, a limit."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from solver.explanation.explain import (
    QueueAhead,
    maintenance,
    mode_change,
    shape,
    where_facts,
    why_quota,
)
from solver.fleet.mig_geometry import Masks
from solver.fleet.pool import Pool
from solver.model.demand import Demand, Fit
from solver.model.inputs import Request
from solver.placement.gang import fits, most_together
from solver.reasons.reason import Reason, frees, reason
from solver.state.cycle_state import CycleState

_OUT = frozenset({"hardware_out", "node_unanswering"})
"""The return of such hardware is unknown."""


def why_not_at(
    state: CycleState, demand: Demand, starts: int, ahead: QueueAhead, room_at: int | None = None
) -> tuple[Reason, ...]:
    """The blockers of exactly this start; empty when there are none. `room_at`: the first start from then on
    with room, if it is known.

    Room taken only by reservations is a place in the queue; room taken by held work is busy GPUs.
    """
    if demand.groups:
        every = (why_not_at(state, each, starts, ahead) for each in demand.parts)
        found = [each for reasons in every for each in reasons]
        is_full = not found and not state.has_room(demand, starts)
        return (_queued(demand, ahead),) if is_full else tuple(dict.fromkeys(found))
    found = list(_why_not_with_held(state, demand, starts))
    has_room = found or (state.has_room(demand, starts) if room_at is None else room_at == starts)
    if not has_room:
        found.append(_queued(demand, ahead))
    quota = why_quota(state, demand, starts)
    return (*found, quota) if quota else tuple(found)


def why_limited(state: CycleState, demand: Demand, first: int, last: int) -> Reason | None:
    """The limit that forbids the first window with room in [first, last]; None: none has room."""
    room_at = _first_between(state, demand, first, last)
    return None if room_at is None else why_quota(state, demand, room_at)


def why_waiting(
    state: CycleState, request: Request, found: Fit, ahead: QueueAhead, room_at: int | None = None
) -> tuple[Reason, ...]:
    """Why a booking does not start at once, and when each reason ends. `room_at`: the first start with room
    before it, if that is known.

    Room is missing until the planned start, unless a limit holds longer: then the limit comes
    first.
    """
    first = state.first_start(request.earliest)
    blockers = why_not_at(state, found.demand, first, ahead, room_at)
    room_at = _room_before(state, found, first, room_at)
    if room_at is not None:
        limits = [each for each in blockers if each.check == "quota"]
        if not limits:
            later = why_quota(state, found.demand, room_at)
            limits = [later] if later else []
        blockers = (*limits, *(each for each in blockers if each.check != "quota"))
    return _waiting(state, request, found, blockers, room_at) or (
        frees(_queued(found.demand, ahead), found.starts),
    )


def _room_before(state: CycleState, found: Fit, first: int, known: int | None) -> int | None:
    """The first earlier start with room, if it is without quota; None: only room is missing. `known`: that
    start, if it is known."""
    demand = found.demand
    if found.starts <= first or all(map(state.quota.has_plenty, state.uses(demand))):
        return None
    starts = known
    if starts is None:
        starts = _first_between(state, demand, first, found.starts - 1)
    # Earlier room that quota allows was left out to spare a GPU a change of mode.
    return starts if starts is not None and state.over(demand, starts) is not None else None


def _first_between(state: CycleState, demand: Demand, first: int, last: int) -> int | None:
    if demand.groups:
        return state.first_of(demand, state.all.starts_between(demand, first, last))
    return state.first_between(demand, first, last)


def why_still_waiting(
    state: CycleState, request: Request, kept: Fit, ahead: QueueAhead
) -> tuple[Reason, ...]:
    """The same for a planned start that keeps its place and can't be earlier.

    It is known to lack room, so what held work leaves free is reserved by others.
    """
    first = state.first_start(request.earliest)
    found = _why_not_with_held(state, kept.demand, first) or (_queued(kept.demand, ahead),)
    quota = _why_quota_of_others(state, kept, first)
    return _waiting(state, request, kept, (*found, quota) if quota else found)


def why_limited_still(
    state: CycleState, request: Request, kept: Fit, ahead: QueueAhead, room_at: int
) -> tuple[Reason, ...]:
    """The same for a planned start that is reserved, before which quota forbids all room; `room_at` is the
    first."""
    use = state.use(kept.demand)
    state.quota.add(use, kept.window, -1)
    found = why_waiting(state, request, kept, ahead, room_at)
    state.quota.add(use, kept.window)
    return found


def why_not_yet(state: CycleState, request: Request, kept: Fit, ahead: QueueAhead) -> tuple[Reason, ...]:
    """Reasons why a booking waits whose planned start is reserved at the requested second. Its own
    places have room."""
    found = _why_not_with_held(state, kept.demand, kept.starts)
    quota = _why_quota_of_others(state, kept, kept.starts)
    return _waiting(state, request, kept, (*found, quota) if quota else found) or (
        frees(_queued(kept.demand, ahead), kept.starts),
    )


def _waiting(
    state: CycleState,
    request: Request,
    found: Fit,
    blockers: tuple[Reason, ...],
    room_at: int | None = None,
) -> tuple[Reason, ...]:
    """The blockers with their ends; `room_at` is when there is room, None: when it starts."""
    until = found.starts if room_at is None else room_at
    said = [
        blocker if blocker.check == "quota" or blocker.code in _OUT else frees(blocker, until)
        for blocker in blockers
    ]
    if request.earliest > state.now and not request.paused:
        # Of a paused booking it is when its notice ends, which nobody asked for.
        said.append(reason("not_before", request.earliest))
    if said and request.ask.groups and state.quota.tier(request.tier).pausable:
        said.append(reason("free_room_only"))
    return tuple(said)


def _why_quota_of_others(state: CycleState, kept: Fit, starts: int) -> Reason | None:
    """The limit that forbids an earlier window, without the booking's own reservation.

    A window that fits next to its own reservation fits without it, too.
    """
    uses, quota = state.uses(kept.demand), state.quota
    if all(map(quota.has_plenty, uses)) or state.over(kept.demand, starts) is None:
        return None
    for use in uses:
        quota.add(use, kept.window, -1)
    found = why_quota(state, kept.demand, starts)
    for use in uses:
        quota.add(use, kept.window)
    return found


def _why_not_with_held(state: CycleState, demand: Demand, starts: int) -> tuple[Reason, ...]:
    """Blockers among held work, cached by kind and window: held work does not change in a cycle."""
    if demand.groups:
        every = (_why_not_with_held(state, each, starts) for each in demand.parts)
        return tuple(each for reasons in every for each in reasons)
    if demand.is_bound:
        return _why_not_with_held_uncached(state, demand, starts)
    key = (*demand.kind, starts, *state.held_room.window(demand, starts))
    if key not in state.held_blockers:
        state.held_blockers[key] = _why_not_with_held_uncached(state, demand, starts)
    return state.held_blockers[key]


def _why_not_with_held_uncached(state: CycleState, demand: Demand, starts: int) -> tuple[Reason, ...]:
    pool = state.pools[demand.gpu_class]
    held, hosts = state.held_room.busy(demand, starts)
    if fits(pool, demand, held, hosts)[0]:
        return ()
    if demand.pin:
        found = [_why_not_there(state, demand, starts)]
    elif fits(pool, demand, held)[0]:
        found = [reason("host_busy", cores=demand.cores, memory=demand.memory)]
    else:
        found = [_busy(demand, most_together(pool, demand, held[0]))]
    if demand.where is not None and not demand.pin:
        found += _elsewhere(state, demand, starts)
    if not demand.pin:
        found += _out_of_service(pool, demand, held[0])
    away, back = state.maintenance.away(demand.gpu_class, (starts, starts + demand.duration))
    if away:
        found.append(maintenance(away, "class", back, demand.gpu_class))
    return (*found, *_why_not_in_mode(state, demand, starts))


def _out_of_service(pool: Pool, demand: Demand, held: Masks) -> Iterator[Reason]:
    """GPUs that take no new work, if the demand would fit were all of them in service."""
    capacity = pool.capacity_on(demand.shape, held, pool.suits(demand.shape))
    if int(pool.sums(demand.level, capacity).max()) < demand.count:
        return
    out, unreachable = pool.missing(demand.shape)
    for code, count in (("hardware_out", out), ("node_unanswering", unreachable)):
        if count:
            yield reason(code, out=count, gpus=len(pool), gpu_class=demand.gpu_class)


def _why_not_in_mode(state: CycleState, demand: Demand, starts: int) -> tuple[Reason, ...]:
    """GPUs that are free, but have or soon need the other mode."""
    name, modes = demand.gpu_class, state.held.modes
    if not modes.may_switch(name):
        return ()
    pool, at = state.pools[name], np.array([starts], dtype=np.int64)
    busy = state.held.gpus[name].busy(at, demand.duration)[0]
    free = pool.capacity(demand.shape, busy) > 0
    count = int((free & modes.others(pool, demand.shape, (at, demand.duration))[0]).sum())
    return (mode_change(name, count, modes.lead(name), demand.shape),) if count else ()


def _elsewhere(state: CycleState, demand: Demand, starts: int) -> Iterator[Reason]:
    """The reason of a demand for some nodes only that would have room on others."""
    free, at = replace(demand, where=None), np.array([starts], dtype=np.int64)
    if fits(state.pools[demand.gpu_class], free, *state.all.busy(free, at))[0]:
        yield reason("free_elsewhere", gpu_class=demand.gpu_class, **where_facts(demand))


def _why_not_there(state: CycleState, demand: Demand, starts: int) -> Reason:
    """The blocker of a pinned demand; `elsewhere` is 1 when it would have room without its pin."""
    pool = state.pools[demand.gpu_class]
    named = pool.within(demand.pin) & pool.suits(demand.shape)
    if not (named & pool.usable).any():
        return reason("pin_out", out=int(named.sum()), pin=",".join(demand.pin))
    free, at = replace(demand, pin=()), np.array([starts], dtype=np.int64)
    is_free = bool(fits(pool, free, *state.all.busy(free, at))[0])
    return reason("pinned", elsewhere=int(is_free), pin=",".join(demand.pin))


def _busy(demand: Demand, most: int, *, planned: bool = False) -> Reason:
    """`planned`: planned starts count as taken."""
    flag = 1 if planned else None
    return reason(
        "gpus_busy",
        left=most,
        asked=demand.count,
        level=demand.level,
        planned=flag,
        **shape(demand),
    )


def why_not_free(state: CycleState, demand: Demand, starts: int) -> Reason:
    """Why a window is not free next to all held and planned work, and how much of it is."""
    for each in demand.parts if demand.groups else ():
        if not state.has_room(each, starts):
            return why_not_free(state, each, starts)
    busy, _ = state.all.busy(demand, np.array([starts], dtype=np.int64))
    most = most_together(state.pools[demand.gpu_class], demand, busy[0])
    if most >= demand.count:
        return reason("window_busy")
    return _busy(demand, most, planned=True)


def _queued(demand: Demand, ahead: QueueAhead) -> Reason:
    facts = {"ahead": ahead.bookings, "ahead_units": ahead.units, "position": ahead.bookings + 1}
    return reason("line", gpu_class=demand.gpu_class, **facts)


def out_of_service(state: CycleState, demands: Iterable[Demand], first: int) -> Reason | None:
    """The reason why no start from `first` on can be planned: too few GPUs of a class are in
    service, though the fleet has enough. None: something else blocks.

    Broken, drained and quarantined GPUs count, and maintenance that outlasts the horizon.
    """
    found = (_short(state, demand, first) for demand in demands)
    return next(filter(None, found), None)


def _short(state: CycleState, demand: Demand, first: int) -> Reason | None:
    if demand.groups:
        return next(filter(None, (_short(state, each, first) for each in demand.parts)), None)
    pool = state.pools[demand.gpu_class]
    away = state.maintenance.outlasting(
        demand.gpu_class, first + demand.duration, state.now + state.policy.horizon
    )
    if _most(pool, demand, away) >= demand.count:
        return None
    suits = pool.suits(demand.shape)
    out = sum(
        bool(suits[column]) and (not pool.usable[column] or gpu.id in away)
        for column, gpu in enumerate(pool.gpus)
    )
    is_known = _most(pool, demand, ()) >= demand.count
    return reason(
        "none_in_service",
        max(away.values()) if is_known else None,
        out=out,
        gpus=len(pool),
        gpu_class=demand.gpu_class,
    )


def _most(pool: Pool, demand: Demand, away: Iterable[str]) -> int:
    """The most of the demand in one group without the GPUs in `away`, nothing else taken."""
    able = pool.eligible(demand.shape) & pool.allowed((), demand.where)
    able[[pool.column[gpu] for gpu in away]] = False
    capacity = pool.capacity_on(demand.shape, np.zeros(len(pool), dtype=np.uint16), able)
    return int(pool.sums(demand.level, capacity).max())
