"""Which of several classes: the cheapest that ends in time, else the one that ends first.

Work takes as long as its class needs, so classes are compared by when they end, not by when they
begin. With a deadline, cost decides: the classes come in order of cost per unit of work, and the
first that meets the deadline is taken. Without one, the earliest end; ties to the first class.
"""

from allocation.reasons.reason import Reason, reason
from allocation.solver.model.inputs import Request
from allocation.solver.placement.gang import Want
from allocation.solver.state.working import Found, Working

Wants = tuple[Want, ...]
Bounds = tuple[int, int, int | None]
"""First start, last start, and the last second at which it may end (None: no deadline)."""


def best_window(
    working: Working, wants: Wants, bounds: Bounds, *, cheapest: bool = False
) -> Found | None:
    """The window that the rule above chooses."""
    if not cheapest:
        return working.earliest(wants, *bounds)
    each = (working.earliest((want,), *bounds) for want in wants)
    return next((found for found in each if found), None)


def in_time(working: Working, request: Request, wants: Wants) -> tuple[Wants, tuple[Reason, ...]]:
    """The classes on which it could end before its deadline, and why not on the others.

    Of classes that take equally long none is left out: what is too late then is the booking.
    """
    if request.latest is None or request.fixed or not request.durations:
        return wants, ()
    left = request.latest - working.first_start(request.earliest)
    slow = tuple(want for want in wants if want.duration > left)
    if len(slow) == len(wants):
        return wants, ()
    able = tuple(want for want in wants if want.duration <= left)
    return able, tuple(_too_slow(want, request.latest) for want in slow)


def not_dearer(request: Request, wants: Wants, kept: Found) -> Wants:
    """The classes that a promise may move to: where cost decides, none that costs more."""
    if not request.cheapest:
        return wants
    names = [want.gpu_class for want in wants]
    if kept.want.gpu_class not in names:
        return ()
    return wants[: names.index(kept.want.gpu_class) + 1]


def _too_slow(want: Want, latest: int) -> Reason:
    # Nothing here may change with time alone: a new reason is a new decision.
    facts = {"deadline": latest, "duration": want.duration}
    return reason("class_too_slow", gpu_class=want.gpu_class, **facts)
