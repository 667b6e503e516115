"""Planned starts of earlier cycles: reserved on their places while these are free, and improved."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from solver.cycle.order.strengths import Strengths
from solver.cycle.resume_in_place import original_gpus_or_earlier
from solver.explanation.explain import maintenance, mode_change, possible_demands, why_quota
from solver.model.demand import Demand, Fit, demand_of, demands_of
from solver.model.inputs import WITHIN, Place, PlannedStart, Request, Strength
from solver.preemption.search import Instants, Preemption
from solver.reasons.reason import Reason, reason
from solver.state.cycle_state import CycleState
from solver.state.own_room import is_limited_until, room_before
from solver.state.start_times import length_from, not_dearer

STRENGTHS: tuple[Strength, ...] = ("firm", "guaranteed", "expected")
_DAY = 86_400


def planned_starts_reserve(
    state: CycleState,
    preemption: Preemption,
    strengths: Strengths,
    requests: Iterable[Request],
    which: Iterable[Strength] = STRENGTHS,
) -> tuple[list[Request], dict[str, Fit], dict[str, Reason]]:
    """Reserve each planned start of these strengths that still fits; say why the others do not.

    `requests` are in queue order. Returns those with a planned start in the order in which these
    are reserved, and two answers by booking. A planned start may have victims: running bookings
    that can still be paused for it. Firm and guaranteed ones are counted in this order.
    """
    kept: dict[str, Fit] = {}
    broken: dict[str, Reason] = {}
    ordered = reserve_order(strengths, requests, which)
    windows = [(request, *planned_window(state, request)) for request in ordered]
    plenty = _with_quota_for_all(state, [found for _, found, _ in windows if found])
    for request, window, lost in windows:
        if window is None:
            broken[request.booking] = lost or reason("overrun")
            continue
        add = _reserve_room_only if window.demand.gpu_class in plenty else planned_start_reserve
        answer = add(state, preemption, request, window)
        if isinstance(answer, Reason):
            own = answer.code == "quota_cut" and own_took_quota(state, window, kept)
            why = reason("overtaken", rule="guarantee", own_tenant=1) if own else answer
            broken[request.booking] = why
        else:
            kept[request.booking] = answer
    strengths.use.count_all(
        (request.booking, kept[request.booking])
        for request in ordered
        if request.booking in kept and strengths.of_before(request) != "expected"
    )
    return ordered, kept, broken


def own_took_quota(state: CycleState, window: Fit, kept: Mapping[str, Fit]) -> bool:
    """Whether its quota is used by planned starts of its own tenant that go first now and may
    borrow: with the same limits all of them fit in another order."""
    demand, quota = window.demand, state.quota
    own = [
        (use, found.window)
        for found in kept.values()
        if found.demand.owners[0] == demand.owners[0] and found.starts < window.ends
        for use in state.uses(found.demand)
        if quota.tier(use.tier).pausable and not use.tier.endswith(WITHIN)
    ]
    for use, when in own:
        quota.add(use, when, -1)
    is_free = bool(own) and state.over(demand, window.starts) is None
    for use, when in own:
        quota.add(use, when)
    return is_free


def planned_start_improve(
    state: CycleState,
    preemption: Preemption,
    request: Request,
    kept: Fit,
    instants: Instants | None,
    *,
    is_reserved: bool,
) -> Fit:
    """The earliest start that is neither later nor ends later than the planned one. `instants`: those at
    which pauses may make room where there is certainly none without; None: there may be.

    The answer is not reserved, and `kept` is freed if it is.
    """
    first = kept.starts if request.fixed else state.first_start(request.earliest)
    is_full = instants is not None
    is_as_early = kept.starts <= first and not kept.victims
    if not is_as_early:
        demands, _ = possible_demands(state, demands_of(request))
        demands = not_dearer(request, demands, kept)
        if instants is None:
            instants = preemption.instants_before(request, demands, first, kept, is_reserved=is_reserved)
    if is_reserved:
        state.free(kept)
    if is_as_early or instants is None:
        return kept
    if request.durations and not request.fixed:
        request = replace(request, latest=kept.ends)
    found = preemption.earlier(request, demands, first, kept, instants, is_full=is_full)
    return original_gpus_or_earlier(state, request, demands, kept, found) or found or kept


def is_as_asked(state: CycleState, request: Request, kept: Fit) -> bool:
    """True when a planned start is at the requested second, which is not near, and nobody
    has to leave for it: there is nothing to search."""
    if request.fixed or request.pinned or request.paused or request.home or request.ask.groups:
        return False
    if kept.victims or kept.demand.share is not None:
        return False
    is_far = kept.starts > state.frozen_for(kept.demand)
    return is_far and kept.starts == state.first_start(request.earliest)


def is_quiet(state: CycleState, request: Request, kept: Fit) -> bool:
    """True when a planned start needs no search: it is as it was, it is not near, and
    nothing of its classes was given back since it was searched.

    Near is a step of the grid: what ends, and what may begin, between two steps was planned for the
    next one.
    """
    planned = request.planned
    if planned is None or planned.strength is None or kept.starts != planned.starts:
        return False
    if request.fixed or request.pinned or request.home or kept.victims:
        return False
    near = max(state.frozen_for(kept.demand), state.now + state.policy.grid)
    return kept.starts > near and state.is_quiet(request.ask.all_classes)


def instants_if_full(
    state: CycleState,
    preemption: Preemption,
    request: Request,
    kept: Fit,
    demands: Iterable[Demand],
    *,
    is_reserved: bool,
) -> tuple[Instants | None, int | None]:
    """The instants before a planned start at which pauses may make room, if all its classes are certainly
    full until then; None proves nothing. Without instants it certainly can't be earlier. `demands` are
    those of all its classes. Of one class also the first start with room before it, if that is known.
    """
    if request.fixed or request.pinned or request.paused or kept.victims or request.ask.groups:
        return None, None
    first = state.first_start(request.earliest)
    if kept.starts <= first:
        return None, None
    known = [demand for demand in demands if demand.gpu_class in state.pools]
    is_near = kept.starts <= state.frozen_for(kept.demand)
    if is_near and any(each.gpu_class in state.firm.gpus for each in known):
        # It is placed again, and says again what its GPUs have to change.
        return None, None
    own = kept if is_reserved else None
    room_at = None
    for demand in known:
        may_have_room, room_at = room_before(state, demand, first, kept.starts, own)
        if may_have_room and (room_at is None or known != [kept.demand]):
            return None, None
        if may_have_room and (own is None or not is_limited_until(state, own, first)):
            return None, room_at
    return preemption.instants_before(request, known, first, kept, is_reserved=is_reserved), room_at


def planned_start_reserve(
    state: CycleState, preemption: Preemption, request: Request, found: Fit
) -> Fit | Reason:
    """Reserve the fit, perhaps with victims, or return the reason why it no longer fits."""
    why = planned_start_broken(state, found)
    if why is None:
        state.put_back(found)
        return found
    return planned_start_with_victims(state, preemption, request, found, why)


def planned_start_broken(state: CycleState, found: Fit) -> Reason | None:
    """Why a planned start has no room or no quota any more."""
    return _overrun(state, found) or _quota_cut(state, found)


def planned_start_with_victims(
    state: CycleState, preemption: Preemption, request: Request, found: Fit, why: Reason
) -> Fit | Reason:
    """Reserve the fit with victims, or return why it no longer fits; `why` it does not without."""
    standing = preemption.places.on_the_same_places(request, found)
    if standing is not None:
        state.reserve(standing)
        return standing
    if why.code == "overrun" and preemption.places.can_be_out(found):
        return _why_not_paused(preemption, request, found)
    return why


def _why_not_paused(preemption: Preemption, request: Request, found: Fit) -> Reason:
    """Why work that can be out by then is not paused for the planned start any more."""
    if preemption.places.fits_elsewhere(found.demand, found.starts):
        # There is room elsewhere by now, so nobody is paused for the pin.
        return reason("pinned", elsewhere=1, pin=",".join(found.demand.pin))
    if rests := preemption.why_no_claim(found, planned=True):
        return rests
    strength = request.planned.strength if request.planned is not None else None
    if strength == "guaranteed" and not preemption.places.is_inside(found.demand, found.starts):
        # The rest of a paused booking of its own organisation has taken the guarantee.
        is_own = preemption.victim_rules.has_guarantee(found.demand, found.starts)
        return reason("overtaken", rule="guarantee", own_tenant=1) if is_own else reason("quota_cut")
    # The booking that was to be paused for it has a claim as good by now.
    return reason("overtaken", rule="share", own_tenant=0)


def _reserve_room_only(state: CycleState, _: Preemption, __: Request, found: Fit) -> Fit | Reason:
    """Reserve a fit whose quota is already counted, in a class without pausable bookings."""
    why = _overrun(state, found)
    if why is not None:
        state.quota.add(state.use(found.demand), found.window, -1)
        return why
    state.take(found)
    return found


def _with_quota_for_all(state: CycleState, planned: Iterable[Fit]) -> set[str]:
    """Count quota for all planned starts of a class at once where no limit is reached; those
    classes.

    Then each would have been allowed in its turn. Classes with pausable bookings are left out:
    which victims a planned start may have depends on the quota used by those before it.
    """
    by_class: dict[str, list[Fit]] = {}
    mixed: set[str] = set()
    for found in planned:
        by_class.setdefault(found.demand.gpu_class, []).append(found)
        if found.demand.groups:
            mixed.update(each.gpu_class for each in found.demand.parts)
    taken: set[str] = set()
    for name in by_class.keys() - state.firm.gpus.keys() - mixed:
        uses = [(state.use(found.demand), found.window) for found in by_class[name]]
        state.quota.add_all(uses)
        if state.quota.is_never_over(use[:3] for use, _ in uses):
            taken.add(name)
        else:
            state.quota.add_all((use._replace(units=-use.units), when) for use, when in uses)
    return taken


def planned_window(state: CycleState, request: Request) -> tuple[Fit | None, Reason | None]:
    """The planned start as a window from now on, or the reason why it is void; two None where a
    request has none."""
    planned = request.planned
    if planned is None:
        return None, None
    hardware = _hardware_broken(state, planned)
    if hardware is not None:
        return None, hardware
    gpu_class = state.class_of(planned.places[0].gpu) or ""
    if request.ask.groups:
        gpu_class = request.ask.classes[0]
    owners = request.quota_owners
    starts = max(planned.starts, state.now, request.earliest)
    length = length_from(request, gpu_class, starts)
    demand = demand_of(request.ask, gpu_class, length, owners, request.quota_tier, request.owner)
    found = Fit(demand, planned.places, starts)
    if length <= 0 or not _matches(state, request, found):
        return None, reason("ask_changed")
    gpus = [place.gpu for place in planned.places]
    window = (found.starts, state.grid.end(found.ends))
    for part in demand.parts:
        away, back = state.maintenance.away(part.gpu_class, window, gpus)
        if away:
            return None, maintenance(away, "planned", back)
    return found, None


def _overrun(state: CycleState, found: Fit) -> Reason | None:
    if state.is_free(found):
        return None
    found = next((part for part in state.parts(found) if not state.is_free(part)), found)
    name, places = found.demand.gpu_class, found.places
    pool = state.pools[name]
    in_other_mode = [p for p in places if not state.all.modes.is_free(pool, (p,), found.window)]
    if in_other_mode and state.all.gpus[name].is_free(places, *found.window):
        return mode_change(name, len(in_other_mode), state.all.modes.lead(name), found.demand.shape)
    return reason("overrun", ends_late=1)


def _quota_cut(state: CycleState, found: Fit) -> Reason | None:
    if state.over(found.demand, found.starts) is None:
        return None
    quota = why_quota(state, found.demand, found.starts)
    if quota is None:
        return reason("quota_cut")
    if quota.code == "lent_out":
        # Who lends uses its guarantee itself; nothing says that a limit was cut.
        return reason("overtaken", rule="guarantee", own_tenant=0)
    if quota.code == "headroom":
        return quota
    return reason("quota_cut", quota.frees_at, because=quota.code, **quota.facts)


def _hardware_broken(state: CycleState, planned: PlannedStart) -> Reason | None:
    lost = sorted({p.gpu for p in planned.places if not is_usable(state, p)})
    if not planned.places or lost:
        return reason("hardware_lost", lost=len(lost))
    return None


def is_usable(state: CycleState, place: Place) -> bool:
    """True when planned work may stay there: the GPU is in service, also if its node does not answer,
    and the place is legal on it."""
    gpu_class = state.class_of(place.gpu)
    if gpu_class is None:
        return False
    pool = state.pools[gpu_class]
    column = pool.column[place.gpu]
    suits = pool.in_service[column] and pool.suits(place.shape)[column]
    return bool(suits) and pool.geometry(place.gpu).is_legal(place)


def _matches(state: CycleState, request: Request, found: Fit) -> bool:
    """True when the planned places still meet the request: class, shape, count, level, zone, pin,
    deadline."""
    demand, parts = found.demand, state.parts(found)
    return (
        demand.gpu_class in request.ask.classes
        and sum(len(part.places) for part in parts) == len(found.places)
        and all(_is_as_asked(state, part) for part in parts)
        and len(state.zones_of(found.places)) < 2
        and (request.latest is None or found.ends <= request.latest)
    )


def _is_as_asked(state: CycleState, part: Fit) -> bool:
    """True when the places of one class meet its demand."""
    demand, pool = part.demand, state.pools.get(part.demand.gpu_class)
    return (
        pool is not None
        and len(part.places) == demand.count
        and all(p.gpu in pool.column and p.shape == demand.shape for p in part.places)
        and pool.together(demand.level, part.places)
        and all(pool.allowed(demand.pin, demand.where)[pool.column[p.gpu]] for p in part.places)
    )


def unproven_start(state: CycleState, request: Request, demand: Demand) -> Fit:
    """A distant start that nothing proves, rounded to days so that it rarely changes.

    It keeps the lost places: when their GPUs return, the next cycle tries these first.
    """
    planned, horizon = request.planned, state.policy.horizon
    places = planned.places if planned else ()
    if planned and planned.starts >= state.now + horizon // 2:
        return Fit(demand, places, planned.starts)
    days = -(-(state.now + horizon) // _DAY)
    starts = days * _DAY
    if request.latest is not None:
        least = 1 if request.paused else request.duration
        starts = min(starts, request.latest - least)
    return Fit(replace(demand, duration=length_from(request, demand.gpu_class, starts)), places, starts)


def has_planned_start(request: Request) -> bool:
    """True for a request with a planned start; a fixed window has one while its victims have
    notice."""
    return request.planned is not None


def reserve_order(
    strengths: Strengths, requests: Iterable[Request], which: Iterable[Strength] = STRENGTHS
) -> list[Request]:
    """Requests with a planned start of these strengths, in the order in which these are reserved:
    firm ones and guaranteed ones by start, then expected ones as they stand in the queue, those
    that nothing proves last."""
    planned = list(filter(has_planned_start, requests))
    order: dict[Strength, list[Request]] = {strength: [] for strength in STRENGTHS}
    for request in planned:
        order[strengths.of_before(request)].append(request)
    for strength in ("firm", "guaranteed"):
        order[strength].sort(key=planned_start_order)
    order["expected"].sort(key=_is_unproven)
    return [request for strength in which for request in order[strength]]


def _is_unproven(request: Request) -> bool:
    return request.planned is not None and request.planned.strength is None


def planned_start_order(request: Request) -> tuple[int, int, int, str]:
    """Order of planned starts: start, higher priority, submitted earlier, id."""
    starts = request.planned.starts if request.planned else 0
    return (starts, -request.priority, request.submitted, request.booking)
