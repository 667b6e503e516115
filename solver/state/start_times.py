"""How long a booking runs from a given start, its first and last start, and the best window.

Most bookings keep their length. Of a window that has begun only the rest is left, and of a paused
booking with a deadline only the time before it.

Work takes as long as its class needs, so classes are compared by their ends. With a deadline cost
decides: the classes come in order of cost per unit of work, and the first that meets the deadline
is taken. Without one, the earliest end; ties go to the first class.
"""

from collections.abc import Iterable
from dataclasses import replace

from solver.model.demand import Demand, Fit
from solver.model.inputs import Request
from solver.reasons.reason import Reason, reason
from solver.state.cycle_state import CycleState


def length_from(request: Request, gpu_class: str, starts: int) -> int:
    """Seconds that it would run on a class from that start."""
    length = request.length_on(gpu_class)
    until = _until(request, length)
    return length if until is None else min(length, until - starts)


def last_start(state: CycleState, request: Request) -> int:
    """The last second at which it may start, by its deadline or the horizon."""
    horizon = state.now + state.policy.horizon
    until = _until(request, request.duration)
    if until is not None:
        return min(horizon, until - 1)
    return horizon if request.latest is None else min(horizon, request.latest - request.duration)


def earliest_free(
    state: CycleState, request: Request, demands: Iterable[Demand], first: int, last: int
) -> Fit | None:
    """The best fit in [first, last] over the classes, without victims."""
    demands = tuple(demands)
    until = _until(request, request.duration)
    if until is None:
        bounds = (first, last, request.latest)
        return best_window(state, demands, bounds, cheapest=request.cheapest)
    found = state.earliest(demands, first, min(last, until - request.duration))
    if found is not None:
        return found
    rest = (_earliest_rest(state, _end(request, demand), demand, (first, last)) for demand in demands)
    return min(filter(None, rest), key=lambda each: each.starts, default=None)


def _until(request: Request, length: int) -> int | None:
    """The second at which it ends whenever it starts; None: it always has its length."""
    if request.fixed:
        return request.earliest + length
    return request.latest if request.paused else None


def _end(request: Request, demand: Demand) -> int:
    until = _until(request, request.length_on(demand.gpu_class))
    return 0 if until is None else until


def _earliest_rest(state: CycleState, until: int, demand: Demand, between: tuple[int, int]) -> Fit | None:
    """The earliest start that can run until then; where a long rest fits, a short one does."""
    first, last = between
    if first > last:
        return None
    tried = state.all.starts_between(demand, first, last).tolist()
    low, high, best = 0, len(tried), None
    while low < high:
        middle = (low + high) // 2
        rest = replace(demand, duration=min(demand.duration, until - tried[middle]))
        found = state.at(rest, tried[middle])
        if found is None:
            low = middle + 1
        else:
            high, best = middle, found
    return best


Demands = tuple[Demand, ...]
Bounds = tuple[int, int, int | None]
"""First start, last start, and the last second at which it may end (None: no deadline)."""


def best_window(state: CycleState, demands: Demands, bounds: Bounds, *, cheapest: bool = False) -> Fit | None:
    """The earliest end, or with `cheapest` the first class that has a window."""
    if not cheapest:
        return state.earliest(demands, *bounds)
    each = (state.earliest((demand,), *bounds) for demand in demands)
    return next((found for found in each if found), None)


def in_time(state: CycleState, request: Request, demands: Demands) -> tuple[Demands, tuple[Reason, ...]]:
    """The demands that can end before the deadline, and why the others can't.

    If all classes are too slow, none is left out: then the booking is too late.
    """
    if request.latest is None or request.fixed or not request.durations:
        return demands, ()
    left = request.latest - state.first_start(request.earliest)
    slow = tuple(demand for demand in demands if demand.duration > left)
    if len(slow) == len(demands):
        return demands, ()
    able = tuple(demand for demand in demands if demand.duration <= left)
    return able, tuple(_too_slow(demand, request.latest) for demand in slow)


def not_dearer(request: Request, demands: Demands, kept: Fit) -> Demands:
    """The classes a planned start may change to: where cost decides, none that costs more."""
    if not request.cheapest:
        return demands
    names = [demand.gpu_class for demand in demands]
    if kept.demand.gpu_class not in names:
        return ()
    return demands[: names.index(kept.demand.gpu_class) + 1]


def _too_slow(demand: Demand, latest: int) -> Reason:
    # Nothing here may change with time alone: a new reason is a new decision.
    facts = {"deadline": latest, "duration": demand.duration}
    return reason("class_too_slow", gpu_class=demand.gpu_class, **facts)
