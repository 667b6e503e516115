"""Where a suspended booking resumes: on its original GPUs, where its memory is kept, if that pays.

Anywhere else it restarts from its last save. So it waits for its original GPUs at most as long as
it would need to repeat the lost work.
"""

from collections.abc import Iterable
from dataclasses import replace

from solver.explanation.blockers import why_waiting
from solver.explanation.explain import QueueAhead, possible_demands
from solver.model.demand import Demand, Fit, demands_of
from solver.model.inputs import Request
from solver.reasons.reason import Reason, reason
from solver.state.cycle_state import CycleState
from solver.state.start_times import earliest_free, last_start, length_from

# Instants at which its GPUs may have become free that are examined.
_LOOKS = 256


def original_gpus_or_found(
    state: CycleState,
    request: Request,
    demands: Iterable[Demand],
    found: Fit | None,
    between: tuple[int, int],
) -> Fit | None:
    """The fit found elsewhere, or one on the original GPUs in [first, last] that is worth waiting
    for."""
    if not request.home:
        return found
    first, last = between
    if found is not None:
        last = min(last, found.starts + request.home_wait)
    return _earliest_on_original_gpus(state, request, demands, (first, last)) or found


def original_gpus_or_earlier(
    state: CycleState, request: Request, demands: Iterable[Demand], kept: Fit, found: Fit | None
) -> Fit | None:
    """A start on the original GPUs, no later than planned and worth waiting for; else None.

    `kept` is its planned start, which is not reserved now; `found` an earlier one elsewhere, if
    any.
    """
    if not request.home:
        return None
    at_home = is_on_original_gpus(request, kept)
    bounds = (state.first_start(request.earliest), kept.starts - at_home)
    home = _earliest_on_original_gpus(state, request, demands, bounds) or (kept if at_home else None)
    if home is None or (found is not None and found.starts + request.home_wait < home.starts):
        return None
    return home


def planned_resume(state: CycleState, request: Request, out: int) -> tuple[Fit | None, tuple[Reason, ...]]:
    """The fit with which a booking that leaves at `out` resumes, not reserved, and why not at once.

    `request` is what it has left now; it runs until `out`.
    """
    left = request.duration - (out - state.now)
    if left <= 0:
        return None, ()
    again = replace(request, earliest=out, duration=left, paused=True, planned=None)
    demands, _ = possible_demands(state, demands_of(again))
    first, last = state.first_start(out), last_start(state, again)
    found = earliest_free(state, again, demands, first, last)
    found = original_gpus_or_found(state, again, demands, found, (first, last))
    if found is None:
        return None, ()
    return found, why_waiting(state, again, found, QueueAhead())


def why_original_gpus(request: Request, found: Fit | None) -> tuple[Reason, ...]:
    """The reason for waiting, if the fit is on the original GPUs."""
    if found is None or not is_on_original_gpus(request, found):
        return ()
    return (reason("suspended_there"),)


def is_on_original_gpus(request: Request, found: Fit) -> bool:
    """True when the fit is on the GPUs that keep the suspended memory."""
    return bool(request.home) and set(found.places) == set(request.home)


def _earliest_on_original_gpus(
    state: CycleState, request: Request, demands: Iterable[Demand], between: tuple[int, int]
) -> Fit | None:
    names = {state.class_of(place.gpu) for place in request.home}
    demand = next((demand for demand in demands if demand.gpu_class in names), None)
    if demand is None or not _takes_work(state, request, demand):
        return None
    first, last = between
    if first > last:
        return None
    for starts in state.all.starts_between(demand, first, last)[:_LOOKS].tolist():
        length = length_from(request, demand.gpu_class, starts)
        if length <= 0:
            return None
        shorter = replace(demand, duration=length)
        found = Fit(shorter, request.home, starts)
        if state.is_free(found) and state.over(shorter, starts) is None:
            return found
    return None


def _takes_work(state: CycleState, request: Request, demand: Demand) -> bool:
    parts = state.parts(Fit(demand, request.home, 0))
    is_all = sum(len(part.places) for part in parts) == len(request.home)
    return is_all and all(_part_takes_work(state, part) for part in parts)


def _part_takes_work(state: CycleState, part: Fit) -> bool:
    demand, pool = part.demand, state.pools[part.demand.gpu_class]
    able = pool.eligible(demand.shape)
    if demand.is_bound:
        able = able & pool.allowed(demand.pin, demand.where)
    fits = len(part.places) == demand.count and all(p.gpu in pool.column for p in part.places)
    return fits and all(able[pool.column[place.gpu]] for place in part.places)
