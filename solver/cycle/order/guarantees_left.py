"""What is left of each tenant's guarantee for requests that wait.

A project that does not lend what it is guaranteed keeps it from the other projects of its tenant:
their work is inside the tenant's guarantee only in what is left without it.
"""

from bisect import bisect_right
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace

from solver.cycle.order.guaranteed_use import GuaranteedUse
from solver.cycle.order.held_guarantees import Level, Whose
from solver.model.inputs import Request, Snapshot
from solver.quota.limits import dates_of, guarantees_at
from solver.state.cycle_state import CycleState


class GuaranteesLeft:
    """Guarantees of tenants without what is held, and what the queue has given of them so far.
    `use`: what is held of them."""

    def __init__(self, state: CycleState, snapshot: Snapshot, use: GuaranteedUse) -> None:
        self._now, self.use = state.now, use
        self._unlent = Unlent(state, snapshot, use)
        self._left: dict[tuple[Whose, str, int], int] = {}
        self._passed: dict[Whose, list[tuple[int, int, int, str]]] = {}
        self._taken_now: dict[Whose, int] = {}

    def untouched(self) -> "GuaranteesLeft":
        """The same before the queue has given anything."""
        twin = copy(self)
        twin._passed, twin._taken_now = {}, {}
        return twin

    def covers(self, request: Request, uses: tuple[tuple[str, int], ...]) -> bool:
        """True when a request that uses so many units of each class fits its tenant's guarantee at
        its requested start."""
        return bool(uses) and all(self._covers(request, *each) for each in uses)

    def _covers(self, request: Request, name: str, units: int) -> bool:
        """The same for one of its classes."""
        if not self.use.guaranteed(request.tenant, name):
            return False
        now = self._now
        starts, tier = max(request.earliest, now), request.quota_tier
        for whose in self.use.keys(request.tenant, name, tier):
            key = (whose, tier, starts)
            if key not in self._left:
                self._left[key] = self.use.left_of(whose, tier, (starts, starts + 1))
            if units > self._left[key]:
                return False
            taken = self._taken_now.get(whose, 0)
            if starts > now:
                ahead = self._passed.get(whose, ())
                taken = sum(needed for since, until, needed, _ in ahead if since <= starts < until)
            if units > self._left[key] - taken - self.kept_from(request, whose, starts):
                return False
        return True

    def kept_from(self, request: Request, whose: Whose, starts: int) -> int:
        """What other projects of its tenant do not lend it, next to what these have ahead."""
        passed = dict[str, int]()
        if not self._unlent.is_kept(*whose):
            return 0
        for since, until, needed, project in self._passed.get(whose, ()):
            if since <= starts < until:
                passed[project] = passed.get(project, 0) + needed
        level = self.use.level(request.quota_tier)
        return self._unlent.kept_from(whose, request.project, level, starts, passed)

    def take(self, request: Request, uses: tuple[tuple[str, int], ...], seconds: int) -> None:
        """Give a request what it uses from its requested start on."""
        starts = max(request.earliest, self._now)
        for name, units in uses:
            for whose in self.use.keys(request.tenant, name, request.quota_tier):
                ahead = self._passed.setdefault(whose, [])
                ahead.append((starts, starts + max(1, seconds), units, request.project))
                if starts == self._now:
                    self._taken_now[whose] = self._taken_now.get(whose, 0) + units


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
        self._dates = dates_of(snapshot) if snapshot.guarantees else []
        self._walls = [_walls_of(snapshot), *(_walls_of(guarantees_at(snapshot, at)) for at in self._dates)]
        """Of the usual guarantees, then from each date on."""
        self._whose = {whose for walls in self._walls for whose in walls}
        self._held: dict[Whose, list[tuple[str, Level, int, int, int]]] = {}
        for row in snapshot.held if self._whose else ():
            name = state.class_of(row.place.gpu) or ""
            if (row.tenant, name) in self._whose and use.counts(row.quota_tier):
                units = state.units(name, (row.place,))
                times = (row.starts, state.free_from(row.ends))
                held = (row.project, use.level(row.quota_tier), units, *times)
                self._held.setdefault((row.tenant, name), []).append(held)

    def is_kept(self, tenant: str, gpu_class: str) -> bool:
        """True when some of the tenant's guarantee is not lent to all of its projects."""
        return (tenant, gpu_class) in self._whose

    def kept_from(self, whose: Whose, project: str, level: Level, at: int, passed: dict[str, int]) -> int:
        """Units of a tenant's guarantee that are kept from a project at an instant. `passed` is
        what its projects get before; held work of lower levels does not count."""
        used = dict(passed)
        for owner, each, units, since, until in self._held.get(whose, ()):
            if each >= level and since <= at < until:
                used[owner] = used.get(owner, 0) + units
        walls = self._walls[bisect_right(self._dates, at)]
        return sum(wall.kept(project, used) for wall in walls.get(whose, ()))


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
