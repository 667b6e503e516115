"""Where a suspended booking goes on: on the GPUs beside which its memory lies, if that pays.

Anywhere else it begins again from its last save. So it waits for its own GPUs at most as long as
it would have to do again.
"""

from collections.abc import Iterable
from dataclasses import replace

from allocation.reasons.reason import Reason, reason
from allocation.solver.model.inputs import Request
from allocation.solver.placement.gang import Want, wants_of
from allocation.solver.reasons.blockers import why_waiting
from allocation.solver.reasons.explain import Line, possible_wants
from allocation.solver.reasons.resume import earliest_free, last_start, length_from
from allocation.solver.state.working import Found, Working

# Instants at which its GPUs may have come free that are looked at.
_LOOKS = 256


def or_home(
    working: Working,
    request: Request,
    wants: Iterable[Want],
    found: Found | None,
    between: tuple[int, int],
) -> Found | None:
    """The start that was found elsewhere, or one at home in [first, last] that is worth it."""
    if not request.home:
        return found
    first, last = between
    if found is not None:
        last = min(last, found.starts + request.home_wait)
    return _earliest_home(working, request, wants, (first, last)) or found


def home_or_earlier(
    working: Working, request: Request, wants: Iterable[Want], kept: Found, found: Found | None
) -> Found | None:
    """Of one with a promise, which is not reserved now, and perhaps a start before it elsewhere:
    the start at home if that is not later than promised, and worth waiting for."""
    if not request.home:
        return None
    at_home = is_home(request, kept)
    bounds = (working.first_start(request.earliest), kept.starts - at_home)
    home = _earliest_home(working, request, wants, bounds) or (kept if at_home else None)
    if home is None or (found is not None and found.starts + request.home_wait < home.starts):
        return None
    return home


def planned_resume(
    working: Working, request: Request, out: int
) -> tuple[Found | None, tuple[Reason, ...]]:
    """When a running booking that leaves at `out` goes on, not reserved, and why not at once.

    `request` is what it would have left now; it runs until then.
    """
    left = request.duration - (out - working.now)
    if left <= 0:
        return None, ()
    again = replace(request, earliest=out, duration=left, paused=True, promise=None)
    wants, _ = possible_wants(working, wants_of(again))
    first, last = working.first_start(out), last_start(working, again)
    found = earliest_free(working, again, wants, first, last)
    found = or_home(working, again, wants, found, (first, last))
    if found is None:
        return None, ()
    return found, why_waiting(working, again, found, Line())


def why_home(request: Request, found: Found | None) -> tuple[Reason, ...]:
    """Why it waits for these GPUs, if it is at home there."""
    if found is None or not is_home(request, found):
        return ()
    return (reason("suspended_there"),)


def is_home(request: Request, found: Found) -> bool:
    """Whether the start is where what was suspended lies."""
    return bool(request.home) and set(found.places) == set(request.home)


def _earliest_home(
    working: Working, request: Request, wants: Iterable[Want], between: tuple[int, int]
) -> Found | None:
    gpu_class = working.class_of(request.home[0].gpu)
    want = next((want for want in wants if want.gpu_class == gpu_class), None)
    if want is None or not _takes_work(working, request, want):
        return None
    first, last = between
    if first > last:
        return None
    for starts in working.starts_between(want, first, last)[:_LOOKS].tolist():
        length = length_from(request, want.gpu_class, starts)
        if length <= 0:
            return None
        shorter = replace(want, duration=length)
        found = Found(shorter, request.home, starts)
        if working.is_free(found) and working.over(shorter, starts) is None:
            return found
    return None


def _takes_work(working: Working, request: Request, want: Want) -> bool:
    pool = working.pools[want.gpu_class]
    able = pool.eligible(want.shape)
    if want.pin:
        able = able & pool.within(want.pin)
    fits = len(request.home) == want.count and all(p.gpu in pool.column for p in request.home)
    return fits and all(able[pool.column[place.gpu]] for place in request.home)
