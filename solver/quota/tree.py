"""The quota tree of one GPU class: persons, projects, labs, tenants, platform; use over time.

The algebra is Kueue's. With guaranteed N, borrow limit B and lend limit L of a node: subtree = N +
what the children lend upwards; local = the part of it that is never lent; of a child's use the
parent sees what exceeds the child's local. More use fits while no node on the path is above its cap
(subtree + B, the platform: subtree) by what arrives there. Units; seconds.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace

import numpy as np

from solver.fleet.fragmentation import Ints
from solver.fleet.pool import Bools
from solver.model.inner_limits import FOREVER
from solver.timeline.grid import Grid
from solver.timeline.step_function import StepFunction

PLATFORM = "*"
"""The root above all tenants; no owner has this id."""

UNBOUNDED = 1 << 56
"""The cap of a node without one, in units."""
_ALL_ROWS = slice(None)
_NEVER: Ints = np.array([np.iinfo(np.int64).max], dtype=np.int64)
_any = np.logical_or.reduce
_highest = np.maximum.reduce
_LEAST = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Node:
    """One owner in a tree: at most `cap` in use, of which `parent` does not see `local`.

    `exempt` units of the use whose path this node is on don't count against the cap.
    """

    owner: str
    parent: str | None
    subtree: int
    local: int
    cap: int
    exempt: int = 0


@dataclass(frozen=True, slots=True)
class Exceptions:
    """Exceptions from the caps of a tree.

    `raised`: (owner, units, starts, ends), more units in a window, negative for fewer. `exempt`:
    units that don't count, by owner, for the use that has this name among its owners. `kept`: owners
    whose cap forbids such a use nothing, although it counts. `local`: (owner, units, since), more of
    what the parent does not see from then on, negative for less.
    """

    raised: tuple[tuple[str, int, int, int], ...] = ()
    exempt: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    kept: Mapping[str, Set[str]] = field(default_factory=dict)
    local: tuple[tuple[str, int, int], ...] = ()

    @property
    def owners(self) -> list[str]:
        """Whose caps these are about."""
        exempt = (owner for each in self.exempt.values() for owner in each)
        return list(dict.fromkeys([*(row[0] for row in self.raised), *exempt]))


_NONE = Exceptions()


def _NO_PERSONS(_name: str) -> int | None:
    return None


OwnerPath = tuple[Node, ...]
"""From an owner up to the root, as far as there are limits."""


class Tree:
    """Use of each node over time: a table of instants × nodes, and of what their caps rise."""

    def __init__(
        self,
        nodes: Mapping[str, Node],
        grid: Grid,
        exceptions: Exceptions = _NONE,
        person_limit: Callable[[str], int | None] = _NO_PERSONS,
        instants: Iterable[int] | Ints = (),
    ) -> None:
        """It has rows for the starts and ends in `instants`. `person_limit` gives the most units
        of a person by the name of their node. These nodes come into the tree with the first path
        that names them."""
        self.nodes = dict(nodes)
        self._person_limit = person_limit
        self.exceptions = exceptions
        self._grid = grid
        self._column = {owner: number for number, owner in enumerate(nodes)}
        owners = [owner for owner in exceptions.owners if owner in nodes]
        self._raised = {owner: len(nodes) + number for number, owner in enumerate(owners)}
        width = len(nodes) + len(owners)
        changing = dict.fromkeys(owner for owner, _, _ in exceptions.local)
        self._local = {owner: width + number for number, owner in enumerate(changing)}
        self._usage = StepFunction(grid, width + len(changing), np.int64, instants)
        self._ways: dict[tuple[str, ...], OwnerPath] = {}
        self._most: dict[str, int] = {}
        self._raise_caps(exceptions.raised)
        for owner, units, since in exceptions.local:
            rows = slice(self._usage.cut(since, since).start, None)
            self._usage.values[rows, self._local[owner]] += units

    def is_same(self, other: "Tree") -> bool:
        """True when both have the same nodes, and the same use of each over time."""
        return self.nodes == other.nodes and all(
            np.array_equal(self._profile(owner), other._profile(owner)) for owner in self.nodes
        )

    def _profile(self, owner: str) -> Ints:
        used = self._counted(self.nodes[owner], self._usage.values)
        return np.stack([self._usage.times, used])

    def _raise_caps(self, raised: Iterable[tuple[str, int, int, int]]) -> None:
        for owner, units, starts, ends in raised:
            if owner in self._raised:
                rows = self._usage.cut(starts, starts if ends >= FOREVER else ends)
                rows = slice(rows.start, None if ends >= FOREVER else rows.stop)
                self._usage.values[rows, self._raised[owner]] += units

    def path_up(self, owners: tuple[str, ...]) -> OwnerPath:
        """From the person to the platform; without owners (tenant, project, persons) that have no
        limit."""
        path = self._ways.get(owners)
        if path is None:
            nodes = [self._person(name) for name in owners[2:]]
            owner = next((each for each in reversed(owners[:2]) if each in self.nodes), None)
            while owner is not None and owner in self.nodes:
                nodes.append(self.nodes[owner])
                owner = self.nodes[owner].parent
            path = tuple(filter(None, nodes))
            exempt = self.exceptions.exempt.get(owners[-1]) if owners else None
            if exempt:
                path = tuple(replace(node, exempt=exempt.get(node.owner, 0)) for node in path)
            kept = self.exceptions.kept.get(owners[-1]) if owners else None
            if kept:
                path = tuple(replace(node, cap=UNBOUNDED) if node.owner in kept else node for node in path)
            self._ways[owners] = path
        return path

    def _person(self, name: str) -> Node | None:
        """The node of a person, who lends and is guaranteed nothing; None without a limit."""
        if name not in self.nodes:
            most = self._person_limit(name)
            if most is None:
                return None
            self.nodes[name] = Node(name, None, 0, 0, most)
            self._column[name] = self._usage.widen()
            if name in self.exceptions.owners:
                self._raised[name] = self._usage.widen()
                self._raise_caps(row for row in self.exceptions.raised if row[0] == name)
        return self.nodes[name]

    def add(self, path: OwnerPath, units: int, window: tuple[int, int]) -> None:
        """Add `units` (negative: remove) in [starts, ends), as far up as they are visible."""
        self._add_up(path, units, self._usage.cut(*window))

    def add_all(self, path: OwnerPath, times: Ints, units: Ints) -> None:
        """Add units from each of `times` on, the first of which is the origin.

        What a parent sees depends on the child's use alone, not on its order, so this equals adding
        window by window.
        """
        self._usage.cut_at(times)
        at = times.searchsorted(self._usage.times, side="right") - 1
        self._add_up(path, units[at], _ALL_ROWS)

    def _add_up(self, path: OwnerPath, more: int | Ints, rows: slice) -> None:
        table = self._usage.values[rows]
        for node in path:
            used = table[:, self._column[node.owner]]
            is_local = node.local or self._local
            seen = _seen(used, more, self._local_of(node, table)) if is_local else more
            used += more
            if node.exempt:
                table[:, self._raised[node.owner]] += _exempted(more, node.exempt)
            more = seen
            self._most.pop(node.owner, None)

    def slices(self, starts: Ints, ends: Ints) -> list[slice]:
        """The rows that are exactly these windows [start, end), created if missing."""
        origin = self._usage.times[0]
        starts, ends = np.maximum(starts, origin), np.maximum(self._grid.ends(ends), origin)
        self._usage.cut_at(np.concatenate([starts, ends]))
        first = self._usage.times.searchsorted(starts)
        last = np.maximum(first, self._usage.times.searchsorted(ends))
        return [slice(*rows) for rows in zip(first.tolist(), last.tolist(), strict=True)]

    def add_in(self, path: OwnerPath, units: int, rows: slice) -> None:
        """`add` in the rows of a window."""
        self._add_up(path, units, rows)

    def over(self, path: OwnerPath, units: int, window: tuple[int, int]) -> Node | None:
        """The first node that `units` more would push above its cap in [starts, ends)."""
        table = self._usage.values[self._usage.rows(*window)]
        more: int | Ints = units
        for node in path:
            if _is_too_much(node, self._counted(node, table), more):
                return node
            if node.local or self._local:
                used = table[:, self._column[node.owner]]
                more = _seen(used, more, self._local_of(node, table))
        return None

    def allows(self, path: OwnerPath, units: int, starts: Ints, duration: int) -> Bools | None:
        """Which windows [start, start + duration) no node forbids; None: all of them."""
        full: Bools | None = None
        more: int | Ints = units
        for node in path:
            used = self._usage.values[:, self._column[node.owner]]
            mine = _too_much(node, self._counted(node, self._usage.values), more)
            full = mine if full is None else full | mine
            if node.local or self._local:
                more = _seen(used, more, self._local_of(node, self._usage.values))
        if full is None or not _any(full):
            return None
        ends = self._grid.ends(starts + duration)
        return clear_of(full, self._usage.times, (starts, ends))

    def cap_changes(self, path: OwnerPath) -> list[int]:
        """Seconds at which the cap of a node on the path, or what its parent does not see, rises or falls;
        ends are on the grid."""
        raised, owners = self.exceptions.raised, {node.owner for node in path}
        changes = {row[2] for row in raised if row[0] in owners}
        changes |= {self._grid.end(row[3]) for row in raised if row[0] in owners}
        changes |= {since for owner, _, since in self.exceptions.local if owner in owners}
        return sorted(at for at in changes if at < FOREVER)

    def is_within(self, path: OwnerPath, units: int = 0) -> bool:
        """True when no node is above its cap at any time, with `units` more."""
        return all(self._peak_ever(node.owner) + units <= node.cap for node in path)

    def are_within_in(self, path: OwnerPath, starts: Ints, ends: Ints) -> Bools:
        """True for the windows [start, end) in which no node is above its cap at any instant."""
        if self.is_within(path):
            return np.ones(len(starts), dtype=np.bool_)
        usage = self._usage
        above = [usage.values[:, self._column[node.owner]] > node.cap for node in path]
        passed = np.concatenate([[0], np.logical_or.reduce(above).cumsum()])
        first = np.maximum(usage.times.searchsorted(starts, side="right") - 1, 0)
        last = np.maximum(first, usage.times.searchsorted(self._grid.ends(ends)))
        found: Bools = passed[first] == passed[last]
        return found

    def never(self, path: OwnerPath, units: int) -> Node | None:
        """The first node that `units` would push above its cap if nothing else were used."""
        for node in path:
            if units - node.exempt > max(node.cap + self._most_raised(node.owner), 0):
                return node
            units = max(0, units - self._most_local(node))
        return None

    def cap(self, node: Node, window: tuple[int, int]) -> int:
        """The least that the node may have in use in [starts, ends)."""
        if node.owner not in self._raised:
            return node.cap
        table = self._usage.values[self._usage.rows(*window)]
        return node.cap + int(table[:, self._raised[node.owner]].min())

    def highest(self, node: Node) -> int:
        """The most that the node may have in use at any time."""
        return node.cap + self._most_raised(node.owner)

    def at(self, owner: str, instant: int) -> int:
        """Units used at an instant, which is not before the origin."""
        return int(self._usage.values[self._usage.row(instant), self._column[owner]])

    def peak(self, owner: str, window: tuple[int, int]) -> int:
        """Most units used at any instant of [starts, ends)."""
        rows = self._usage.rows(*window)
        return int(self._usage.values[rows, self._column[owner]].max(initial=0))

    def room(self, path: OwnerPath, window: tuple[int, int]) -> int:
        """The most units that fit in all of [starts, ends); never negative."""
        return self.room_in(path, self._usage.rows(*window))

    def room_in(self, path: OwnerPath, rows: slice) -> int:
        """`room` in the rows of a window."""
        if not path:
            return UNBOUNDED
        raised = path[0].exempt + self._most_raised(path[0].owner)
        top = path[-1].cap + self._most_raised(path[-1].owner) + sum(map(self._most_local, path))
        most = max(0, min(path[0].cap + raised, top))
        table = self._usage.values[rows]
        left: Ints | None = None
        for node in reversed(path):
            own = np.maximum(0, node.cap + node.exempt - self._counted(node, table))
            if left is not None and (node.local or self._local):
                unseen = self._local_of(node, table) - table[:, self._column[node.owner]]
                left = left + np.maximum(0, unseen)
            left = own if left is None else np.minimum(own, left)
        return most if left is None else int(left.min(initial=most))

    def _peak_ever(self, owner: str) -> int:
        if owner not in self._most:
            counted = self._counted(self.nodes[owner], self._usage.values)
            self._most[owner] = int(counted.max())
        return self._most[owner]

    def _counted(self, node: Node, table: Ints) -> Ints:
        """What counts against the node's cap: use, without what the cap is raised by."""
        used: Ints = table[:, self._column[node.owner]]
        raised = self._raised.get(node.owner)
        return used if raised is None else used - table[:, raised]

    def _most_raised(self, owner: str) -> int:
        raised = self._raised.get(owner)
        return 0 if raised is None else int(self._usage.values[:, raised].max())

    def _local_of(self, node: Node, table: Ints) -> int | Ints:
        """What the parent does not see of the node's use, in some rows."""
        column = self._local.get(node.owner)
        return node.local if column is None else node.local + table[:, column]

    def _most_local(self, node: Node) -> int:
        column = self._local.get(node.owner)
        return node.local if column is None else node.local + int(self._usage.values[:, column].max())

    def changes(self) -> Ints:
        """Seconds at which use may change."""
        return self._usage.times


def profile_of(rows: Iterable[tuple[int, tuple[int, int]]], grid: Grid) -> tuple[Ints, Ints]:
    """The sum over time of units in their windows: instants from the grid's origin on, and units
    from each."""
    table = np.array([(units, *window) for units, window in rows], dtype=np.int64)
    return profile_of_arrays(table[:, 0], table[:, 1], table[:, 2], grid)


def profile_of_arrays(units: Ints, begins: Ints, ends: Ints, grid: Grid) -> tuple[Ints, Ints]:
    """The same for windows that are given as arrays."""
    starts = np.maximum(begins, grid.origin)
    ends = np.maximum(grid.ends(ends), starts)
    times = np.concatenate([np.array([grid.origin], dtype=np.int64), starts, ends])
    changes = np.concatenate([np.zeros(1, dtype=np.int64), units, -units])
    order = times.argsort(kind="stable")
    times, sums = times[order], changes[order].cumsum()
    is_last = np.append(times[1:] != times[:-1], True)
    return times[is_last], sums[is_last]


def both_allow(one: Bools | None, other: Bools | None) -> Bools | None:
    """The windows that two answers of `Tree.allows` allow; None: all of them."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


def clear_of(full: Bools, times: Ints, windows: tuple[Ints, Ints]) -> Bools:
    """True for windows (starts, ends) that overlap no row in which `full` holds."""
    starts, until = windows
    begins = np.concatenate([times[full], _NEVER])
    ends = np.concatenate([times[1:], _NEVER])[full]
    following = begins[ends.searchsorted(starts, side="right")]
    clear: Bools = following >= until
    return clear


def _too_much(node: Node, used: Ints, arriving: int | Ints) -> Bools:
    """Rows in which use arrives and pushes the node above its cap."""
    cap = node.cap + node.exempt
    if isinstance(arriving, int):
        full: Bools = used > (cap - arriving if arriving > node.exempt else UNBOUNDED)
        return full
    pushed: Bools = (used > cap - arriving) & (arriving > node.exempt)
    return pushed


def _is_too_much(node: Node, used: Ints, arriving: int | Ints) -> bool:
    """Whether use arrives and pushes the node above its cap in any row."""
    if isinstance(arriving, int):
        most = node.cap + node.exempt - arriving
        return arriving > node.exempt and int(_highest(used, initial=_LEAST)) > most
    return bool(_any(_too_much(node, used, arriving)))


def _exempted(units: int | Ints, most: int) -> int | Ints:
    """How much of added (negative: removed) units does not count."""
    found: int | Ints = np.sign(units) * np.minimum(np.abs(units), most)
    return found


def _seen(used: Ints, arriving: int | Ints, local: int | Ints) -> Ints:
    """What the parent sees of `arriving` more use on top of `used`."""
    seen: Ints = np.maximum(0, used + arriving - local) - np.maximum(0, used - local)
    return seen
