"""Which of several classes: the cheapest that ends in time, else the one that ends first.

Work takes as long as its class needs, so classes are compared by when they end, not by when they
begin. With a deadline, cost decides: the classes come in order of cost per unit of work, and the
first that meets the deadline is taken. Without one, the earliest end; ties to the first class.
"""

from allocation.reasons.reason import Reason, reason
from allocation.solver.model.inputs import Request
from allocation.solver.placement.gang import Demand
from allocation.solver.state.working import Fit, Working

Wants = tuple[Demand, ...]
Bounds = tuple[int, int, int | None]
"""First start, last start, and the last second at which it may end (None: no deadline)."""


def best_window(
    working: Working, demands: Wants, bounds: Bounds, *, cheapest: bool = False
) -> Fit | None:
    """The window that the rule above chooses."""
    if not cheapest:
        return working.earliest(demands, *bounds)
    each = (working.earliest((demand,), *bounds) for demand in demands)
    return next((found for found in each if found), None)


def in_time(working: Working, request: Request, demands: Wants) -> tuple[Wants, tuple[Reason, ...]]:
    """The classes on which it could end before its deadline, and why not on the others.

    Of classes that take equally long none is left out: what is too late then is the booking.
    """
    if request.latest is None or request.fixed or not request.durations:
        return demands, ()
    left = request.latest - working.first_start(request.earliest)
    slow = tuple(demand for demand in demands if demand.duration > left)
    if len(slow) == len(demands):
        return demands, ()
    able = tuple(demand for demand in demands if demand.duration <= left)
    return able, tuple(_too_slow(demand, request.latest) for demand in slow)


def not_dearer(request: Request, demands: Wants, kept: Fit) -> Wants:
    """The classes that a promise may move to: where cost decides, none that costs more."""
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
