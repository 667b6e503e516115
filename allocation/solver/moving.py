"""Late binding: what has not started gives way to a newcomer, at its own start in another place.

A promised booking owns a start, not a device: its places are a certificate that it fits, and any
other places at the same start are as good a one. Rows that are written already are not moved.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from allocation.solver.ordering import place_order
from allocation.solver.placement import Want, fits
from allocation.solver.types import Place
from allocation.solver.working import Found, Working

_MOST_MOVED = 16
"""No more promises are laid anew for one newcomer,"""
_MOST_NODES = 3
"""on no more nodes, one after the other: small neighbourhoods."""

Reserved = Mapping[str, Found]


class Promised:
    """What has been promised, in this cycle or before, and is reserved where it says."""

    def __init__(self, working: Working) -> None:
        """Nothing yet."""
        self._working = working
        self._reserved: dict[str, Found] = {}
        self._hopeless: dict[tuple[object, ...], int] = {}

    def add(self, booking: str, found: Found) -> None:
        """It is promised, and reserved."""
        self._reserved[booking] = found

    def places(self, booking: str) -> tuple[Place, ...] | None:
        """Where a promise lies now; None when nothing proves it."""
        found = self._reserved.get(booking)
        return None if found is None else found.places

    @contextmanager
    def kept(self) -> Iterator[None]:
        """For looking only: afterwards everything lies again where it lay."""
        before = self._reserved.copy()
        yield
        moved = [name for name, found in self._reserved.items() if found is not before[name]]
        for name in moved:
            self._working.free(self._reserved[name])
        for name in moved:
            self._working.reserve(before[name])
        self._reserved = before

    def make_way(self, wants: Iterable[Want], starts: int) -> Found | None:
        """Places for exactly this start, after promises have moved to others at their starts.

        The room found is free, not reserved. None: no such plan, and nothing is changed.
        """
        for want in wants:
            # Room only gets less: what was in vain for less time is not tried for more.
            key = (
                want.gpu_class, want.shape, want.count, want.level, want.of_host, want.pin, starts,
            )  # fmt: skip
            if self._hopeless.get(key, want.duration + 1) <= want.duration:
                continue
            for near in _neighbourhoods(self._working, want, starts, self._reserved):
                if not _would_fit(self._working, want, starts, near):
                    continue
                answer = _laid_anew(self._working, want, starts, near)
                if answer is not None:
                    found, moved = answer
                    self._reserved |= moved
                    return found
            self._hopeless[key] = want.duration
        return None


def _neighbourhoods(
    working: Working, want: Want, starts: int, reserved: Reserved
) -> Iterator[Reserved]:
    """Promises on nodes that the want would fit on but for them, the fewest on a node first.

    None when running work or quota keeps it out, and for a gang that no single node holds.
    """
    if working.over(want, starts) is not None:
        return
    pool = working.pools[want.gpu_class]
    at = np.array([starts], dtype=np.int64)
    held, _ = working.busy(want, at, held_only=True)
    room = pool.sums("node", pool.capacity(want.shape, held[0]))
    ends = starts + want.duration
    here: dict[int, dict[str, Found]] = {}
    for booking, found in reserved.items():
        if found.want.gpu_class == want.gpu_class and found.starts < ends and starts < found.ends:
            for place in found.places:
                node = int(pool.groups("node")[pool.column[place.gpu]])
                here.setdefault(node, {})[booking] = found
    able = [(len(rows), node) for node, rows in here.items() if room[node] >= want.count]
    for count, node in sorted(able)[:_MOST_NODES]:
        if count <= _MOST_MOVED:
            yield here[node]


def _would_fit(working: Working, want: Want, starts: int, near: Reserved) -> bool:
    """False when the want lacks GPUs even without those near; what else it needs is not asked."""
    calendar = working.calendars[want.gpu_class]
    if want.share is not None or calendar.has_shares:
        return True
    others = ((found.places, *found.window) for found in near.values())
    busy = calendar.busy_without(others, starts, starts + want.duration)
    return bool(fits(calendar.pool, want, busy))


def _laid_anew(
    working: Working, want: Want, starts: int, near: Reserved
) -> tuple[Found, dict[str, Found]] | None:
    with working.outlook.on_trial(want.gpu_class) as keep:
        for found in near.values():
            working.free(found)
        newcomer = working.at(want, starts)
        if newcomer is not None:
            working.reserve(newcomer)
            moved = _settled(working, near)
            working.free(newcomer)
            if moved is not None:
                keep()
                return newcomer, moved
        for found in near.values():
            working.reserve(found)
    return None


def _settled(working: Working, near: Reserved) -> dict[str, Found] | None:
    """All of them reserved again at their own starts, and those that lie elsewhere now.

    Who can stay stays, and is laid first. None, with none of them reserved: one finds no room.
    """
    laid: list[Found] = []
    moved: dict[str, Found] = {}
    for booking, found in sorted(near.items()):
        if working.is_free(found):
            working.reserve(found)
            laid.append(found)
        else:
            moved[booking] = found
    for booking, found in sorted(moved.items(), key=_largest_first):
        other = working.at(found.want, found.starts)
        if other is None:
            for each in laid:
                working.free(each)
            return None
        moved[booking] = replace(other, taste=found.taste)
        working.reserve(other)
        laid.append(other)
    return moved


def _largest_first(row: tuple[str, Found]) -> tuple[int, int, tuple[object, ...], str]:
    booking, found = row
    first = place_order(found.places[0])
    size = sum(place.size for place in found.places)
    return (-size, found.starts, first, booking)
