"""Ways to lay a few bookings anew at their own starts, so that one more fits.

Each is called with all of them off the calendar. It answers with the newcomer's places, which are
free, and where each of the others lies now, reserved; or with None, and none of them is reserved.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from allocation.solver.fleet.mig_geometry import WHOLE_MASK
from allocation.solver.fleet.pool import Pool
from allocation.solver.model.inputs import Place
from allocation.solver.model.ordering import place_order
from allocation.solver.placement.cp_sat import Movable, Neighbourhood, Window, rearrange
from allocation.solver.placement.gang import Want, fits
from allocation.solver.placement.repack import pack
from allocation.solver.state.working import Found, Working
from allocation.solver.timeline.host_calendar import Free

Reserved = Mapping[str, Found]
Laid = tuple[Found, dict[str, Found]]
Way = Callable[[Working, Want, int, Reserved], Laid | None]

_MOST_PIECES = 24
_ROOMY = 8
_EFFORT = 0.05
"""Of CP-SAT: some 70 ms at worst, 14 ms on average."""


def laid_anew(working: Working, want: Want, starts: int, near: Reserved, way: Way) -> Laid | None:
    """By one of the ways; None: it found nothing, and nothing is changed."""
    if not _would_fit(working, want, starts, near):
        return None
    with working.outlook.on_trial(want.gpu_class) as keep:
        for found in near.values():
            working.free(found)
        answer = way(working, want, starts, near)
        if answer is not None:
            keep()
            return answer
        for found in near.values():
            working.reserve(found)
    return None


def _would_fit(working: Working, want: Want, starts: int, near: Reserved) -> bool:
    """False when the want lacks GPUs even without those near; what else it needs is not asked."""
    calendar = working.calendars[want.gpu_class]
    if want.share is not None or calendar.has_shares:
        return True
    others = ((found.places, *found.window) for found in near.values())
    busy = calendar.busy_without(others, starts, starts + want.duration)
    return bool(fits(calendar.pool, want, busy))


def newcomer_first(working: Working, want: Want, starts: int, near: Reserved) -> Laid | None:
    """The newcomer where it fits best, and the others around it."""
    newcomer = working.at(want, starts)
    return None if newcomer is None else _around(working, newcomer, near)


def at_place(place: Place) -> Way:
    """The newcomer exactly there."""

    def way(working: Working, want: Want, starts: int, near: Reserved) -> Laid | None:
        newcomer = Found(want, (place,), starts)
        if working.over(want, starts) is not None or not working.is_free(newcomer):
            return None
        return _around(working, newcomer, near)

    return way


def packed(working: Working, want: Want, starts: int, near: Reserved) -> Laid | None:
    """Slices on as few as possible of the GPUs that they had to themselves, then the newcomer."""
    pool = working.pools[want.gpu_class]
    columns = {pool.column[place.gpu] for found in near.values() for place in found.places}
    since = min(found.starts for found in near.values())
    until = max(found.ends for found in near.values())
    at = np.array([since], dtype=np.int64)
    busy = working.calendars[want.gpu_class].busy(at, until - since)[0]
    idle = [pool.gpus[column] for column in sorted(columns) if not busy[column]]
    pieces = [found.want.profile or "" for found in near.values() for _ in found.places]
    places = pack(Pool(pool.gpu_class, idle, pool.models), pieces) if idle else None
    if places is None:
        return None
    left: dict[str | None, list[Place]] = {}
    for place in sorted(places, key=place_order, reverse=True):
        left.setdefault(place.profile, []).append(place)
    ends = {
        booking: replace(found, places=_taken(left[found.want.profile], found.want.count))
        for booking, found in sorted(near.items())
    }
    if not _reserved(working, [*ends.values()]):
        return None
    newcomer = working.at(want, starts)
    if newcomer is None:
        for found in ends.values():
            working.free(found)
        return None
    return newcomer, ends


def proven(working: Working, want: Want, starts: int, near: Reserved) -> Laid | None:
    """With the fewest moves there are on these GPUs and a few roomy ones, by CP-SAT."""
    pieces = [(booking, place) for booking, found in near.items() for place in found.places]
    is_small = len(pieces) + want.count <= _MOST_PIECES
    # It knows nothing of shares and pins.
    is_able = want.share is None and not want.pin and not any(p.share for _, p in pieces)
    if not (is_small and is_able):
        return None
    movable = [
        Movable(
            place,
            place.size,
            near[name].window,
            name,
            near[name].want.level,
            near[name].want.of_host,
        )
        for name, place in pieces
    ]
    found = rearrange(_neighbourhood(working, want, starts, pieces), want, starts, movable, _EFFORT)
    if found is None:
        return None
    ends: dict[str, list[Place]] = {}
    for item, place in found.ends:
        ends.setdefault(item.gang, []).append(place)
    laid = {
        booking: replace(near[booking], places=tuple(sorted(places, key=place_order)))
        for booking, places in sorted(ends.items())
    }
    newcomer = Found(want, found.places, starts)
    # The search knows less than the calendar: whose shares are where, and what is laid since.
    if working.over(want, starts) is not None or not _reserved(working, [*laid.values(), newcomer]):
        return None
    working.free(newcomer)
    return newcomer, laid


def _neighbourhood(
    working: Working, want: Want, starts: int, pieces: list[tuple[str, Place]]
) -> Neighbourhood:
    pool, calendar = working.pools[want.gpu_class], working.calendars[want.gpu_class]
    busy = calendar.busy(np.array([starts], dtype=np.int64), want.duration)[0]
    taken = np.bitwise_count(busy & np.uint16(WHOLE_MASK))
    roomy = sorted(range(len(pool)), key=lambda column: (int(taken[column]), column))
    columns = {pool.column[place.gpu] for _, place in pieces} | {*roomy[: _ROOMY + want.count]}

    def is_free(place: Place, window: Window) -> bool:
        return calendar.is_free((place,), *window)

    def free(window: Window) -> Free:
        at = np.array([window[0]], dtype=np.int64)
        return working.hosts.free(pool, at, window[1] - window[0]).row(0)

    return Neighbourhood(pool, tuple(sorted(columns)), is_free, free)


def _around(working: Working, newcomer: Found, near: Reserved) -> Laid | None:
    """Who can stay stays, and is laid first; the others at their own starts, the largest first."""
    working.reserve(newcomer)
    ends: dict[str, Found] = {}
    away: dict[str, Found] = {}
    for booking, found in sorted(near.items()):
        if working.is_free(found):
            working.reserve(found)
            ends[booking] = found
        else:
            away[booking] = found
    for booking, found in sorted(away.items(), key=_largest_first):
        other = working.at(found.want, found.starts)
        if other is None:
            for each in (newcomer, *ends.values()):
                working.free(each)
            return None
        ends[booking] = replace(other, taste=found.taste)
        working.reserve(other)
    working.free(newcomer)
    return newcomer, ends


def _reserved(working: Working, wanted: list[Found]) -> bool:
    """All of them reserved; False: one is not free, and none of them is."""
    for number, found in enumerate(wanted):
        if not working.is_free(found):
            for each in wanted[:number]:
                working.free(each)
            return False
        working.reserve(found)
    return True


def _taken(left: list[Place], count: int) -> tuple[Place, ...]:
    return tuple(sorted((left.pop() for _ in range(count)), key=place_order))


def _largest_first(row: tuple[str, Found]) -> tuple[int, int, tuple[object, ...], str]:
    booking, found = row
    first = place_order(found.places[0])
    size = sum(place.size for place in found.places)
    return (-size, found.starts, first, booking)
