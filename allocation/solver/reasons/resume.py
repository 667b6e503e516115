"""How long a booking would run from some start on, and when a paused one could go on.

Most keep their length. Of a window that has begun only the rest is left, and of a paused booking
with a deadline only what lies before it: to start later is to have less.
"""

from collections.abc import Iterable
from dataclasses import replace

from allocation.solver.model.inputs import Request
from allocation.solver.placement.gang import Demand
from allocation.solver.reasons.matching import best_window
from allocation.solver.state.working import Fit, Working


def length_from(request: Request, gpu_class: str, starts: int) -> int:
    """Seconds it would run on a class when it starts then."""
    length = request.length_on(gpu_class)
    until = _until(request, length)
    return length if until is None else min(length, until - starts)


def last_start(working: Working, request: Request) -> int:
    """The last second at which it may start at all."""
    until = _until(request, request.duration)
    if until is None:
        return working.last_start(request)
    return min(working.now + working.policy.horizon, until - 1)


def earliest_free(
    working: Working, request: Request, demands: Iterable[Demand], first: int, last: int
) -> Fit | None:
    """The best start in [first, last] over the classes, pausing nobody."""
    demands = tuple(demands)
    until = _until(request, request.duration)
    if until is None:
        bounds = (first, last, request.latest)
        return best_window(working, demands, bounds, cheapest=request.cheapest)
    found = working.earliest(demands, first, min(last, until - request.duration))
    if found is not None:
        return found
    rest = (
        _earliest_rest(working, _end(request, demand), demand, (first, last)) for demand in demands
    )
    return min(filter(None, rest), key=lambda each: each.starts, default=None)


def _until(request: Request, length: int) -> int | None:
    """When it ends however late it starts; None: it has its length wherever it lies."""
    if request.fixed:
        return request.earliest + length
    return request.latest if request.paused else None


def _end(request: Request, demand: Demand) -> int:
    until = _until(request, request.length_on(demand.gpu_class))
    return 0 if until is None else until


def _earliest_rest(
    working: Working, until: int, demand: Demand, between: tuple[int, int]
) -> Fit | None:
    """The earliest start at which it can run until then. What is free stays so for less."""
    first, last = between
    if first > last:
        return None
    tried = working.starts_between(demand, first, last).tolist()
    low, high, best = 0, len(tried), None
    while low < high:
        middle = (low + high) // 2
        rest = replace(demand, duration=min(demand.duration, until - tried[middle]))
        found = working.at(rest, tried[middle])
        if found is None:
            low = middle + 1
        else:
            high, best = middle, found
    return best
