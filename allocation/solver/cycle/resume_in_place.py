"""Where a suspended booking goes on: on the GPUs beside which its memory lies, if that pays.

Anywhere else it begins again from its last save. So it waits for its own GPUs at most as long as
it would have to do again.
"""

from collections.abc import Iterable
from dataclasses import replace

from allocation.reasons.reason import Reason, reason
from allocation.solver.model.inputs import Request
from allocation.solver.placement.gang import Demand, demands_of
from allocation.solver.reasons.blockers import why_waiting
from allocation.solver.reasons.explain import QueueAhead, possible_demands
from allocation.solver.reasons.resume import earliest_free, last_start, length_from
from allocation.solver.state.working import Fit, Working

# Instants at which its GPUs may have come free that are looked at.
_LOOKS = 256


def original_gpus_or_found(
    working: Working,
    request: Request,
    demands: Iterable[Demand],
    found: Fit | None,
    between: tuple[int, int],
) -> Fit | None:
    """The start that was found elsewhere, or one at home in [first, last] that is worth it."""
    if not request.home:
        return found
    first, last = between
    if found is not None:
        last = min(last, found.starts + request.home_wait)
    return _earliest_on_original_gpus(working, request, demands, (first, last)) or found


def original_gpus_or_earlier(
    working: Working, request: Request, demands: Iterable[Demand], kept: Fit, found: Fit | None
) -> Fit | None:
    """Of one with a promise, which is not reserved now, and perhaps a start before it elsewhere:
    the start at home if that is not later than promised, and worth waiting for."""
    if not request.home:
        return None
    at_home = is_on_original_gpus(request, kept)
    bounds = (working.first_start(request.earliest), kept.starts - at_home)
    home = _earliest_on_original_gpus(working, request, demands, bounds) or (
        kept if at_home else None
    )
    if home is None or (found is not None and found.starts + request.home_wait < home.starts):
        return None
    return home


def planned_resume(
    working: Working, request: Request, out: int
) -> tuple[Fit | None, tuple[Reason, ...]]:
    """When a running booking that leaves at `out` goes on, not reserved, and why not at once.

    `request` is what it would have left now; it runs until then.
    """
    left = request.duration - (out - working.now)
    if left <= 0:
        return None, ()
    again = replace(request, earliest=out, duration=left, paused=True, promise=None)
    demands, _ = possible_demands(working, demands_of(again))
    first, last = working.first_start(out), last_start(working, again)
    found = earliest_free(working, again, demands, first, last)
    found = original_gpus_or_found(working, again, demands, found, (first, last))
    if found is None:
        return None, ()
    return found, why_waiting(working, again, found, QueueAhead())


def why_original_gpus(request: Request, found: Fit | None) -> tuple[Reason, ...]:
    """Why it waits for these GPUs, if it is at home there."""
    if found is None or not is_on_original_gpus(request, found):
        return ()
    return (reason("suspended_there"),)


def is_on_original_gpus(request: Request, found: Fit) -> bool:
    """Whether the start is where what was suspended lies."""
    return bool(request.home) and set(found.places) == set(request.home)


def _earliest_on_original_gpus(
    working: Working, request: Request, demands: Iterable[Demand], between: tuple[int, int]
) -> Fit | None:
    gpu_class = working.class_of(request.home[0].gpu)
    demand = next((demand for demand in demands if demand.gpu_class == gpu_class), None)
    if demand is None or not _takes_work(working, request, demand):
        return None
    first, last = between
    if first > last:
        return None
    for starts in working.starts_between(demand, first, last)[:_LOOKS].tolist():
        length = length_from(request, demand.gpu_class, starts)
        if length <= 0:
            return None
        shorter = replace(demand, duration=length)
        found = Fit(shorter, request.home, starts)
        if working.is_free(found) and working.over(shorter, starts) is None:
            return found
    return None


def _takes_work(working: Working, request: Request, demand: Demand) -> bool:
    pool = working.pools[demand.gpu_class]
    able = pool.eligible(demand.shape)
    if demand.pin:
        able = able & pool.within(demand.pin)
    fits = len(request.home) == demand.count and all(p.gpu in pool.column for p in request.home)
    return fits and all(able[pool.column[place.gpu]] for place in request.home)
