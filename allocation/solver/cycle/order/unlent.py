"""What projects and labs of a tenant keep of its guarantee for themselves.

A project that does not lend what it is guaranteed keeps it from the other projects of its tenant:
their work is inside the tenant's guarantee only in what is left without it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from allocation.solver.cycle.order.strengths import GuaranteedUse
from allocation.solver.model.inputs import Snapshot
from allocation.solver.state.cycle_state import CycleState
from allocation.solver.state.held_guarantees import Level, Whose


@dataclass(frozen=True, slots=True)
class _Wall:
    """Units that some projects keep for themselves; `inner`: the part that single ones of them keep
    from each other."""

    projects: frozenset[str]
    units: int
    inner: tuple["_Wall", ...] = ()

    def kept(self, project: str, used: dict[str, int]) -> int:
        """What of it is neither in use nor open to a project."""
        inner = sum(each.kept(project, used) for each in self.inner)
        if project in self.projects:
            return inner
        return max(inner, self.units - sum(used.get(each, 0) for each in self.projects))


class Unlent:
    """The units that each tenant keeps for some of its projects, next to what these hold."""

    def __init__(self, state: CycleState, snapshot: Snapshot, use: GuaranteedUse) -> None:
        self._walls = _walls_of(snapshot)
        self._held: dict[Whose, list[tuple[str, Level, int, int, int]]] = {}
        for row in snapshot.held if self._walls else ():
            name = state.class_of(row.place.gpu) or ""
            if (row.tenant, name) in self._walls and use.counts(row.quota_tier):
                units = state.units(name, (row.place,))
                times = (row.starts, state.free_from(row.ends))
                held = (row.project, use.level(row.quota_tier), units, *times)
                self._held.setdefault((row.tenant, name), []).append(held)

    def is_kept(self, tenant: str, gpu_class: str) -> bool:
        """True when some of the tenant's guarantee is not lent to all of its projects."""
        return (tenant, gpu_class) in self._walls

    def kept_from(
        self, whose: Whose, project: str, level: Level, at: int, passed: dict[str, int]
    ) -> int:
        """Units of a tenant's guarantee that are kept from a project at an instant. `passed` is
        what its projects get before; held work of lower levels does not count."""
        used = dict(passed)
        for owner, each, units, since, until in self._held.get(whose, ()):
            if each >= level and since <= at < until:
                used[owner] = used.get(owner, 0) + units
        return sum(wall.kept(project, used) for wall in self._walls[whose])


def _walls_of(snapshot: Snapshot) -> dict[Whose, list[_Wall]]:
    found: dict[Whose, list[_Wall]] = {}
    for row in snapshot.limits:
        if row.parent is not None and row.lend is not None and row.lend < row.guaranteed:
            wall = _Wall(frozenset((row.owner,)), row.guaranteed - row.lend)
            found.setdefault((row.parent, row.gpu_class), []).append(wall)
    for key, wall in _labs(snapshot):
        inner = [each for each in found.get(key, ()) if each.projects <= wall.projects]
        outer = [each for each in found.get(key, ()) if each not in inner]
        found[key] = [*outer, replace(wall, inner=tuple(inner))]
    return found


def _labs(snapshot: Snapshot) -> Iterator[tuple[Whose, _Wall]]:
    for lab in snapshot.labs:
        if lab.lend is not None and lab.lend < lab.guaranteed:
            units = lab.guaranteed - lab.lend
            yield (lab.tenant, lab.gpu_class), _Wall(frozenset(lab.projects), units)
