"""Headroom: GPUs of a class that are kept free at peaks for starts that can't wait. Units; seconds.

At a peak, work that can wait may start next to all other work only up to the class without its
headroom. Outside of peaks nothing is kept free.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from solver.fleet.fragmentation import Ints
from solver.fleet.pool import Bools
from solver.model.inner_limits import Peak
from solver.model.inputs import BEHIND, UNITS_PER_GPU, Request, Snapshot
from solver.model.policy import Policy
from solver.quota.tree import PLATFORM, UNBOUNDED, Exceptions, Node, OwnerPath, Tree
from solver.quota.use import Block, Use
from solver.timeline.grid import Grid

Window = tuple[int, int]
Written = tuple[tuple[Tree, OwnerPath], ...]
_ALL = Node(PLATFORM, None, UNBOUNDED, 0, UNBOUNDED)
_PATH: OwnerPath = (_ALL,)
_SURE = ("firm", "guaranteed")


def may_wait(request: Request, policy: Policy) -> bool:
    """Whether a request that borrows leaves headroom free: it has no fixed and no sure start, and is
    not short work, of a tier that headroom is for, that is to start at once."""
    planned = request.planned
    if request.fixed or (planned is not None and planned.strength in _SURE):
        return False
    longest = dict(policy.headroom_for).get(request.tier, 0)
    is_at_once = request.earliest <= request.submitted and not request.paused
    return not is_at_once or request.duration > longest


class _Kept(NamedTuple):
    """What is kept free of a class, in GPUs, and the use of all work next to it over time."""

    gpus: int
    peaks: list[Window]
    tree: Tree

    @property
    def written(self) -> Written:
        return ((self.tree, _PATH),)


class Headroom:
    """Use of the classes of which some is kept free, and how much more is allowed at peaks."""

    def __init__(self, snapshot: Snapshot, policy: Policy, grid: Grid, instants: Mapping[str, Ints]) -> None:
        """Nothing is in use."""
        self._kept: dict[str, _Kept] = {}
        for name, gpus in policy.headroom:
            peaks = _joined(peak for peak in snapshot.peaks if peak.gpu_class == name)
            if gpus and peaks:
                raised = tuple(_raised(snapshot, name, gpus, peaks))
                tree = Tree({PLATFORM: _ALL}, grid, Exceptions(raised), instants=instants.get(name, ()))
                self._kept[name] = _Kept(gpus, peaks, tree)

    @classmethod
    def of(
        cls, snapshot: Snapshot, policy: Policy, grid: Grid, instants: Mapping[str, Ints]
    ) -> "Headroom | None":
        """The headroom of a cycle; None: nothing is kept free."""
        return cls(snapshot, policy, grid, instants) if policy.headroom and snapshot.peaks else None

    def is_same(self, other: "Headroom") -> bool:
        """True when the same is in use over time."""
        return all(kept.tree.is_same(other._kept[name].tree) for name, kept in self._kept.items())

    def written(self, gpu_class: str) -> Written:
        """Where use of a class counts."""
        kept = self._kept.get(gpu_class)
        return () if kept is None else kept.written

    def is_for(self, use: Use) -> bool:
        """True when the use leaves some of its class free."""
        return use.gpu_class in self._kept and BEHIND in use.tier

    def over(self, use: Use, window: Window) -> Block | None:
        """The peak in [starts, ends) at which the use would take of what is kept free."""
        if not self.is_for(use):
            return None
        gpus, peaks, tree = self._kept[use.gpu_class]
        if tree.over(_PATH, use.units, window) is None:
            return None
        for starts, ends in peaks:
            part = (max(starts, window[0]), min(ends, window[1]))
            if part[0] < part[1] and tree.over(_PATH, use.units, part) is not None:
                return Block("headroom", PLATFORM, 0, gpus, until=ends)
        return None

    def allows(self, use: Use, starts: Ints, duration: int) -> Bools | None:
        """In which windows [start, start + duration) it takes nothing of it; None: in all."""
        return self._kept[use.gpu_class].tree.allows(_PATH, use.units, starts, duration)

    def instants(self, use: Use) -> Ints:
        """Ends of peaks, and of maintenance in them."""
        found: list[int] = self._kept[use.gpu_class].tree.cap_changes(_PATH) if self.is_for(use) else []
        return np.array(found, dtype=np.int64)

    def changes(self, use: Use) -> Ints:
        """Seconds at which the use of its class changes."""
        if not self.is_for(use):
            return np.zeros(0, dtype=np.int64)
        return self._kept[use.gpu_class].tree.changes()


def _joined(peaks: Iterable[Peak]) -> list[Window]:
    found: list[Window] = []
    for starts, ends in sorted((peak.starts, peak.ends) for peak in peaks):
        if found and starts <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], ends))
        else:
            found.append((starts, ends))
    return found


def _raised(
    snapshot: Snapshot, name: str, gpus: int, peaks: Iterable[Window]
) -> Iterator[tuple[str, int, int, int]]:
    """The bound at peaks as an exception of a class without one. GPUs that take no work and have
    none are not free, and GPUs in maintenance neither."""
    held = {row.place.gpu for row in snapshot.held}
    mine = [gpu for gpu in snapshot.gpus if gpu.gpu_class == name]
    there = {gpu.id for gpu in mine if (gpu.usable and not gpu.silent) or gpu.id in held}
    most = max(0, len(there) - gpus) * UNITS_PER_GPU
    for starts, ends in peaks:
        yield PLATFORM, most - UNBOUNDED, starts, ends
    for away in snapshot.blackouts:
        if away.gpu in there:
            yield PLATFORM, -UNITS_PER_GPU, away.starts, away.ends
