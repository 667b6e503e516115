"""Promised starts: kept while their certificate holds, made earlier when possible, never later."""

from collections.abc import Iterable
from dataclasses import replace

from allocation.reasons.reason import Reason, reason
from allocation.solver.cycle.resume_in_place import original_gpus_or_earlier
from allocation.solver.model.inputs import Place, PlannedStart, Request
from allocation.solver.placement.gang import Demand, demand_of, demands_of
from allocation.solver.preemption.search import Preemption
from allocation.solver.reasons.explain import (
    maintenance,
    mode_change,
    possible_demands,
    why_quota,
)
from allocation.solver.reasons.matching import not_dearer
from allocation.solver.reasons.resume import length_from
from allocation.solver.state.working import Fit, Working

_DAY = 86_400


def planned_starts_reserve(
    working: Working, preemption: Preemption, requests: Iterable[Request]
) -> tuple[dict[str, Fit], dict[str, Reason]]:
    """Reserve each promise whose certificate still holds; say of the others what broke it.

    A promise may stand on the room of running work that can still be paused for it. `requests` in
    promise order, all with a promise. Both answers are keyed by booking.
    """
    kept: dict[str, Fit] = {}
    broken: dict[str, Reason] = {}
    planned = [
        (request, *_planned(working, request, request.promise))
        for request in requests
        if request.promise is not None
    ]
    plenty = _with_quota_for_all(working, [found for _, found, _ in planned if found])
    for request, window, lost in planned:
        if window is None:
            broken[request.booking] = lost or reason("overrun")
            continue
        add = _reserve_room_only if window.demand.gpu_class in plenty else _reserve
        answer = add(working, preemption, request, window)
        if isinstance(answer, Reason):
            broken[request.booking] = answer
        else:
            kept[request.booking] = answer
    return kept, broken


def planned_start_improve(
    working: Working, preemption: Preemption, request: Request, kept: Fit
) -> Fit:
    """The same booking at the earliest start that is not later than the promised one, nor its end.

    `kept` is reserved when called; the answer is not.
    """
    working.free(kept)
    first = kept.starts if request.fixed else working.first_start(request.earliest)
    if kept.starts <= first and not kept.over:
        return kept
    demands, _ = possible_demands(working, demands_of(request))
    demands = not_dearer(request, demands, kept)
    if request.durations and not request.fixed:
        request = replace(request, latest=kept.ends)
    found = preemption.earlier(request, demands, first, kept)
    return original_gpus_or_earlier(working, request, demands, kept, found) or found or kept


def is_at_its_earliest(
    working: Working, request: Request, kept: Fit, demands: Iterable[Demand]
) -> bool:
    """True when the promise, which is reserved, can't begin sooner for certain: its classes are
    full until it begins, and nobody on them could be paused. False says nothing. `demands` are all
    of its classes'.
    """
    if request.fixed or request.pinned or request.paused or kept.over:
        return False
    if kept.starts <= working.first_start(request.earliest):
        return False
    return all(
        demand.gpu_class not in working.firm and working.no_room.is_full_until(demand, kept.starts)
        for demand in demands
        if demand.gpu_class in working.pools
    )


def _reserve(
    working: Working, preemption: Preemption, request: Request, found: Fit
) -> Fit | Reason:
    """What is reserved now, perhaps on the room of others, or what broke it."""
    why = _overrun(working, found) or _quota_cut(working, found)
    standing = found if why is None else preemption.on_the_same_places(request, found)
    if standing is not None:
        working.reserve(standing)
        return standing
    return why or reason("overrun")


def _reserve_room_only(working: Working, _: Preemption, __: Request, found: Fit) -> Fit | Reason:
    """The same where all have quota already, and nobody could be paused."""
    why = _overrun(working, found)
    if why is not None:
        working.quota.add(working.use(found.demand), found.window, -1)
        return why
    working.take(found)
    return found


def _with_quota_for_all(working: Working, planned: Iterable[Fit]) -> set[str]:
    """Take quota for all of a class at once where no limit is reached; says for which classes.

    Then each would have been allowed in its turn. Not where somebody could be paused: whom a
    promise may then stand on depends on the quota that those before it have left.
    """
    by_class: dict[str, list[Fit]] = {}
    for found in planned:
        by_class.setdefault(found.demand.gpu_class, []).append(found)
    taken: set[str] = set()
    for name in by_class.keys() - working.firm.keys():
        uses = [(working.use(found.demand), found.window) for found in by_class[name]]
        working.quota.add_all(uses)
        if working.quota.is_never_over(use[:3] for use, _ in uses):
            taken.add(name)
        else:
            working.quota.add_all((use._replace(units=-use.units), when) for use, when in uses)
    return taken


def _planned(
    working: Working, request: Request, promise: PlannedStart
) -> tuple[Fit | None, Reason | None]:
    """The promise as a window from now on, or why it is none at all."""
    hardware = _hardware_broken(working, promise)
    if hardware is not None:
        return None, hardware
    gpu_class = working.class_of(promise.places[0].gpu) or ""
    owners = (request.tenant, request.project)
    starts = max(promise.starts, working.now, request.earliest)
    length = length_from(request, gpu_class, starts)
    demand = demand_of(request.ask, gpu_class, length, owners, request.tier, request.owner)
    found = Fit(demand, promise.places, starts)
    if length <= 0 or not _matches(working, request, found):
        return None, reason("ask_changed")
    gpus = [place.gpu for place in promise.places]
    away, back = working.maintenance.away(gpu_class, found.window, gpus)
    if away:
        return None, maintenance(away, "planned", back)
    return found, None


def _overrun(working: Working, found: Fit) -> Reason | None:
    if working.is_free(found):
        return None
    name, places = found.demand.gpu_class, found.places
    pool = working.pools[name]
    uncut = [p for p in places if not working.modes.is_free(pool, (p,), found.window)]
    if uncut and working.calendars[name].is_free(places, *found.window):
        return mode_change(name, len(uncut), working.modes.lead(name), found.demand.shape)
    return reason("overrun", ends_late=1)


def _quota_cut(working: Working, found: Fit) -> Reason | None:
    if working.over(found.demand, found.starts) is None:
        return None
    quota = why_quota(working, found.demand, found.starts)
    if quota is None:
        return reason("quota_cut")
    return reason("quota_cut", quota.frees_at, because=quota.code, **quota.facts)


def _hardware_broken(working: Working, promise: PlannedStart) -> Reason | None:
    lost = sorted({p.gpu for p in promise.places if not is_usable(working, p)})
    if not promise.places or lost:
        return reason("hardware_lost", lost=len(lost))
    return None


def is_usable(working: Working, place: Place) -> bool:
    """Whether new work may be laid there: the GPU is in service, and the place legal on it."""
    gpu_class = working.class_of(place.gpu)
    if gpu_class is None:
        return False
    pool = working.pools[gpu_class]
    column = pool.column[place.gpu]
    suits = pool.in_service[column] and pool.suits(place.shape)[column]
    return bool(suits) and pool.geometry(place.gpu).is_legal(place)


def _matches(working: Working, request: Request, found: Fit) -> bool:
    """The certificate still answers the ask: class, shape, count, nearness, deadline."""
    ask, demand = request.ask, found.demand
    pool = working.pools[demand.gpu_class]
    return (
        demand.gpu_class in ask.classes
        and len(found.places) == ask.count
        and all(place.gpu in pool.column and place.shape == ask.shape for place in found.places)
        and pool.together(demand.level, found.places)
        and (
            not demand.pin or all(pool.within(demand.pin)[pool.column[p.gpu]] for p in found.places)
        )
        and (request.latest is None or found.ends <= request.latest)
    )


def unproven_start(working: Working, request: Request, demand: Demand) -> Fit:
    """A start that nothing proves, far ahead, and moved seldom so that nobody is told each cycle.

    The places stay the broken ones: when their GPUs come back, the next cycle begins from them.
    """
    promise, horizon = request.promise, working.policy.horizon
    places = promise.places if promise else ()
    if promise and promise.starts >= working.now + horizon // 2:
        return Fit(demand, places, promise.starts)
    days = -(-(working.now + horizon) // _DAY)
    starts = days * _DAY
    if request.latest is not None:
        least = 1 if request.paused else request.duration
        starts = min(starts, request.latest - least)
    return Fit(
        replace(demand, duration=length_from(request, demand.gpu_class, starts)), places, starts
    )
