"""Quota over time: within guarantee, borrowing, or over, at every instant of a window.

Use is a profile over time of held and planned bookings. The tier decides how far a booking may go.
Non-preemptible work stays within guarantees, or borrows for a bounded window, so that lenders get
their quota back in time; pausable work borrows what others leave idle; work that does not count
(spot) always borrows and never blocks work that counts. A guarantee holds whatever others borrow,
and goes first to non-preemptible work: the owner's other work then borrows. Owners without a limit
are not restricted. Units; seconds.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from solver.fleet.fragmentation import Ints
from solver.fleet.pool import Bools
from solver.model.inner_limits import FOREVER, PersonLimits
from solver.model.inputs import BEGUN, BEHIND, MIXED, WITHIN, Snapshot, Tier
from solver.model.limits import DatedGuarantee, Limit, Override
from solver.quota.gpu_hour_caps import GpuHourCaps, Window
from solver.quota.headroom import Headroom, Written
from solver.quota.limits import Trees, trees_of, with_labs
from solver.quota.tier_parts import TierParts
from solver.quota.tree import PLATFORM, OwnerPath, Tree, both_allow, profile_of, profile_of_arrays
from solver.quota.use import Block, Guarantees, Kind, Table, Use, UseTable
from solver.timeline.grid import Grid
from solver.timeline.step_function import rising

_UseKind = tuple[tuple[str, ...], str, str]
"""Owners, tier and class of a use."""


class _Route(NamedTuple):
    """The trees that restrict one kind of use: `guaranteed` holds the guarantees for which its tier
    competes, `measured` the use that limits its tier (work that counts ignores work that does not).
    `own_path` is `path` without the platform. A use with `stays_within` guarantees borrows nothing,
    although its tier may."""

    tier: Tier
    guaranteed: Tree
    guarantee_path: OwnerPath
    measured: Tree
    path: OwnerPath
    own_path: OwnerPath
    written: tuple[tuple[Tree, OwnerPath], ...]
    stays_within: bool

    def borrows(self, seconds: int) -> bool:
        """True when a window of this length may borrow what others leave idle."""
        tier = self.tier
        return not self.stays_within and (tier.pausable or seconds <= tier.borrow)


def _limits_by_class(snapshot: Snapshot) -> dict[str, list[Limit]]:
    """The limits of each class, with those of labs between tenants and projects."""
    persons = sorted({row.gpu_class for row in snapshot.persons})
    found: dict[str, list[Limit]] = {name: [] for name in persons}
    for row in snapshot.limits:
        found.setdefault(row.gpu_class, []).append(row)
    for name in {lab.gpu_class: None for lab in snapshot.labs}:
        labs = [lab for lab in snapshot.labs if lab.gpu_class == name]
        found[name] = with_labs(found.get(name, []), labs)
    return found


class Quota:
    """Use of each class by each owner, and what more is allowed."""

    def __init__(
        self,
        snapshot: Snapshot,
        capacity: Mapping[str, int],
        grid: Grid | None = None,
        instants: Mapping[str, list[int]] | Mapping[str, Ints] = MappingProxyType({}),
        headroom: Headroom | None = None,
        asked: Container[str] | None = None,
    ) -> None:
        """Nothing is used. `capacity`: units of each class in the fleet. Units come free on the
        `grid`, as room does; GPU-hours are counted to the second. `instants`: by class, starts and
        ends of what will be added, which have their rows from the beginning. `headroom`: what is
        kept free; None: nothing. `asked`: the only classes in which anything is counted; None: all."""
        self._headroom = headroom
        self._tiers = {tier.slug: tier for tier in snapshot.tiers}
        self._hours = (
            GpuHourCaps(snapshot.caps, snapshot.used, snapshot.overrides, snapshot.labs)
            if snapshot.caps
            else None
        )
        """None: nobody has a cap."""
        self._grid = grid or Grid(snapshot.now)
        self._routes: dict[_UseKind, _Route | None] = {}
        self._is_dated = bool(snapshot.guarantees)
        self.parts = TierParts(snapshot) if snapshot.tier_parts else None
        self._persons = PersonLimits(snapshot.persons) if snapshot.persons else None
        """None: no person has a limit."""
        exceptions: dict[str, list[Override]] = {}
        for each in snapshot.overrides:
            exceptions.setdefault(each.gpu_class, []).append(each)
        dated: dict[str, list[DatedGuarantee]] = {}
        for guarantee in snapshot.guarantees:
            dated.setdefault(guarantee.gpu_class, []).append(guarantee)
        self._classes = {
            name: trees_of(
                rows,
                exceptions.get(name, []),
                capacity.get(name, 0),
                snapshot.tiers,
                self._tree_maker(name, instants.get(name, ())),
                dated=dated.get(name, ()),
                parts=() if self.parts is None else self.parts.raised(name),
            )
            for name, rows in _limits_by_class(snapshot).items()
            if asked is None or name in asked
        }

    def _tree_maker(self, name: str, instants: list[int] | Ints | tuple[()]) -> Callable[..., Tree]:
        """What makes the trees of a class."""
        make = partial(Tree, grid=self._grid, instants=instants)
        if self.parts is not None:
            return partial(make, person_limit=partial(self.parts.limit_of, self._persons, name))
        persons = self._persons
        return make if persons is None else partial(make, person_limit=partial(persons.most, name))

    @property
    def origin(self) -> int:
        """The second from which on use is counted."""
        return self._grid.origin

    def is_same(self, other: "Quota") -> bool:
        """True when the same is in use over time."""
        hours, kept, its_kept = self._hours, self._headroom, other._headroom
        same_hours = hours is other._hours or (hours is not None and hours.is_same(other._hours))
        same_kept = kept is None or (its_kept is not None and kept.is_same(its_kept))
        return (same_hours and same_kept) and all(
            mine.is_same(its)
            for name, trees in self._classes.items()
            for mine, its in zip(trees, other._classes[name], strict=True)
        )

    def tier(self, slug: str) -> Tier:
        """The tier's rules; an unknown tier counts and is not pausable. What is mixed and can be paused
        does not count, like spot: so only bookings of one class have others paused."""
        if slug not in self._tiers:
            name = slug.removesuffix(WITHIN).removesuffix(BEHIND).removesuffix(BEGUN)
            base = name.removesuffix(MIXED)
            known = self._tiers.get(base) or Tier(base, pausable=False, counts=True)
            counts = known.counts and not (known.pausable and base != name)
            borrow = FOREVER if BEGUN in slug else known.borrow
            self._tiers[slug] = replace(known, slug=slug, counts=counts, borrow=borrow)
        return self._tiers[slug]

    def owners(self, owners: tuple[str, ...], account: str) -> tuple[str, ...]:
        """The owners of a use with the names of its person's limits; `account` is the person."""
        return owners if self._persons is None else self._persons.owners(owners, account)

    def use_of(self, kind: Kind, units: int) -> Use:
        """The use of so many units of a kind."""
        return Use(self.owners(kind.quota_owners, kind.owner), kind.tier, kind.gpu_class, units)

    def uses_of(self, table: Table, ends: Ints) -> UseTable:
        """The rows of a table as uses, with these ends instead of their own."""
        kinds = tuple(self.use_of(kind, 0) for kind in table.kinds)
        return UseTable(kinds, table.kind, table.units, table.starts, ends)

    def stays_inside(self, tier: str, seconds: int) -> bool:
        """True when work of a tier that counts never borrows for so long a window."""
        rules = self.tier(tier)
        is_lasting = not rules.pausable and (tier.endswith(WITHIN) or seconds > rules.borrow)
        return rules.counts and is_lasting

    def has_limit(self, use: Use) -> bool:
        """True when the tenant or the project has a limit for the class."""
        route = self._route(use)
        owners = use.owners[:2]
        return route is not None and any(owner in route.guaranteed.nodes for owner in owners)

    @property
    def has_hours(self) -> bool:
        """True when somebody has a GPU-hour cap."""
        return self._hours is not None

    def add(self, use: Use, window: Window, sign: int = 1, until: int = FOREVER) -> None:
        """Add the use in [starts, ends); `sign` -1 removes it. `until` is the end of GPU-hours
        where the room opens later than they end."""
        units = sign * use.units
        if self._hours is not None:
            hours = (window[0], min(window[1], until))
            self._hours.add(use.owners, use.gpu_class, units, hours)
        for tree, path in self._written(use):
            tree.add(path, units, window)

    def _written(self, use: Use) -> Written:
        """The trees that count a use, with its path in each."""
        route = self._route(use)
        written = route.written if route else ()
        return written if self._headroom is None else (*written, *self._headroom.written(use.gpu_class))

    def add_all(self, rows: Iterable[tuple[Use, Window]]) -> None:
        """`add` for many at once."""
        kinds: dict[_UseKind, list[tuple[int, Window]]] = {}
        for use, window in rows:
            if self._hours is not None:
                self._hours.add(use.owners, use.gpu_class, use.units, window)
            kinds.setdefault(use[:3], []).append((use.units, window))
        written: dict[tuple[tuple[Tree, OwnerPath], ...], list[tuple[int, Window]]] = {}
        for key, amounts in kinds.items():
            ways = self._written(Use(*key, 0))
            if ways:
                written.setdefault(ways, []).extend(amounts)
        for ways, amounts in written.items():
            profile = profile_of(amounts, self._grid)
            for tree, path in ways:
                tree.add_all(path, *profile)

    def add_table(self, rows: UseTable) -> None:
        """`add` for the rows of a table."""
        if self._hours is not None:
            numbers = (rows.kind, rows.units, rows.starts, rows.ends)
            for kind, units, starts, ends in zip(*(n.tolist() for n in numbers), strict=True):
                use = rows.kinds[kind]
                self._hours.add(use.owners, use.gpu_class, units, (starts, ends))
        numbered: dict[tuple[tuple[Tree, OwnerPath], ...], int] = {}
        found = [
            numbered.setdefault(ways, len(numbered)) if ways else -1
            for ways in map(self._written, rows.kinds)
        ]
        way = np.array(found, dtype=np.intp)[rows.kind] if found else rows.kind
        order = np.argsort(way, kind="stable")
        edges = way[order].searchsorted(np.arange(len(numbered) + 1)).tolist()
        for written, begin, end in zip(numbered, edges[:-1], edges[1:], strict=True):
            at = order[begin:end]
            if len(at):
                profile = profile_of_arrays(rows.units[at], rows.starts[at], rows.ends[at], self._grid)
                for tree, path in written:
                    tree.add_all(path, *profile)

    def is_never_over(self, kinds: Iterable[tuple[tuple[str, ...], str, str]]) -> bool:
        """True when certainly nothing forbids any of these (owners, tier, class) what they have.

        Then nothing forbade it when they were added one by one either, because less was in use. A
        node that is never above its cap blocks nobody.
        """
        return all(self.has_plenty(Use(*kind, 0)) for kind in set(kinds))

    def has_plenty(self, use: Use) -> bool:
        """True when the use is certainly allowed at any time. False proves nothing."""
        if self._hours is not None and self._hours.has_cap(use.owners, use.gpu_class):
            return False
        if self._headroom is not None and self._headroom.is_for(use):
            return False
        route = self._route(use)
        if route is None:
            return True
        if not route.tier.counts or not route.measured.is_within(route.path, use.units):
            return False
        if route.tier.pausable and not route.stays_within:
            return True
        return route.guaranteed.is_within(route.guarantee_path, use.units)

    def over(self, use: Use, window: Window, *, hours: bool = True) -> Block | None:
        """What forbids the use in [starts, ends), None: nothing; without `hours` no cap of them."""
        if hours and self._hours is not None:
            cap = self._hours.over(use.owners, use.gpu_class, use.units, window)
            if cap is not None:
                most = self._hours.most(cap, window)
                return Block("hours", cap.owner, self._hours.used(cap, window[0]), most, cap)
        route = self._route(use)
        block = None if route is None else self._over_trees(route, use, window)
        if block is not None or self._headroom is None:
            return block
        block = self._headroom.over(use, window)
        is_own = block is not None and route is not None and self._has_own(route, use)
        return None if route is not None and is_own and _is_within(route, use.units, window) else block

    def _has_own(self, route: _Route, use: Use) -> bool:
        """True when the use may be inside a guarantee: what is, takes headroom like any other."""
        return route.tier.counts and self.has_limit(use)

    def lasting_allows(self, use: Use, starts: Ints, duration: int) -> Bools | None:
        """In which windows the guarantees allow a use that is never paused, next to other such
        work; None: in all, or it may borrow."""
        route = self._route(use)
        if route is None or not route.tier.counts or route.tier.pausable or route.borrows(duration):
            return None
        return route.guaranteed.allows(route.guarantee_path, use.units, starts, duration)

    def takes_back(self, use: Use, window: Window) -> bool:
        """True when an allowed use may leave others less in [starts, ends) than they borrow, or
        less than the owner's work has that does not count."""
        route, trees = self._route(use), self._classes.get(use.gpu_class)
        if route is None or trees is None:
            return False
        lending = {id(tree): tree for tree in (trees.lending, trees.total)}.values()
        return any(tree.over(route.path, use.units, window) is not None for tree in lending)

    def is_within_guarantee(self, use: Use, window: Window) -> bool:
        """True when all use of its owners is then within guarantees in [starts, ends)."""
        if not self.tier(use.tier).counts:
            return not self.has_limit(use)
        tree = self.guarantee(use.gpu_class)
        return tree is None or tree.over(tree.path_up(self._inside_owners(use)), use.units, window) is None

    def never(self, use: Use, seconds: int) -> Block | None:
        """What forbids the use even if nothing else is used."""
        if self._hours is not None:
            cap = self._hours.never(use.owners, use.gpu_class, use.units, seconds)
            if cap is not None:
                return Block("hours", cap.owner, 0, cap.most, cap)
        trees = self._classes.get(use.gpu_class)
        if trees is None:
            return None
        guarantee, lending = trees.guarantee, trees.lending
        node = lending.never(lending.path_up(use.owners), use.units)
        if node is not None and node.owner != PLATFORM:
            return Block("limit", node.owner, 0, lending.highest(node))
        tier = self.tier(use.tier)
        if tier.counts and guarantee.never(guarantee.path_up(self._inside_owners(use)), use.units) is None:
            return None
        if not tier.pausable and (use.tier.endswith(WITHIN) or seconds > tier.borrow):
            return Block("guarantee", use.owners[0], 0, self.most_guaranteed(use))
        return Block("lent", PLATFORM, 0, lending.highest(node)) if node else None

    def allows(self, use: Use, starts: Ints, duration: int) -> Bools | None:
        """Which windows [start, start + duration) nothing forbids; None: all of them."""
        route, hours = self._route(use), None
        if self._hours is not None:
            hours = self._hours.allows(use.owners, use.gpu_class, use.units, starts, duration)
        if route is not None:
            hours = both_allow(hours, _trees_allow(route, use.units, starts, duration))
        if self._headroom is None or not self._headroom.is_for(use):
            return hours
        left = self._headroom.allows(use, starts, duration)
        if left is not None and route is not None and self._has_own(route, use):
            safe = route.guaranteed.allows(route.guarantee_path, use.units, starts, duration)
            left = None if safe is None else left | safe
        return both_allow(hours, left)

    def borrowed(self, use: Use, window: Window) -> int:
        """How much of it would be borrowed at some instant of [starts, ends), before `add`."""
        if not self.has_limit(use):
            return 0
        route = self._route(use)
        if route is None or not route.tier.counts:
            return use.units
        return max(0, use.units - route.guaranteed.room(route.guarantee_path, window))

    def may_borrow(self, use: Use, starts: Ints, ends: Ints) -> Bools:
        """False for the windows [start, end) in which a use that is counted certainly borrows
        nothing: all use of its owners is within guarantees, so it was when less was in use."""
        route = self._route(use)
        if route is None or not route.tier.counts:
            return np.full(len(starts), self.has_limit(use))
        is_seen = (self._grid.origin < ends) & (starts < ends)
        found: Bools = ~is_seen
        return found | ~route.guaranteed.are_within_in(route.guarantee_path, starts, ends)

    def guarantees(self, use: Use) -> Guarantees | None:
        """The guarantees that a use takes up; None: it has none and takes up none."""
        route, trees = self._route(use), self._classes.get(use.gpu_class)
        if route is None or trees is None or not route.tier.counts or not self.has_limit(use):
            return None
        held = (trees.guarantee, trees.non_preemptible)
        written = tuple(tree for tree, _ in route.written if any(tree is each for each in held))
        return Guarantees(route.guaranteed, route.guarantee_path, written)

    def guarantee(self, gpu_class: str) -> Tree | None:
        """The tree of guarantees; None when no owner has a limit for the class."""
        trees = self._classes.get(gpu_class)
        return trees and trees.guarantee

    def most_guaranteed(self, use: Use, window: Window | None = None) -> int:
        """Units that the owners are guaranteed in total: in all of [starts, ends), else at any time."""
        guarantee = self._classes[use.gpu_class].guarantee
        path = guarantee.path_up(self._inside_owners(use))
        caps = [guarantee.highest(node) if window is None else guarantee.cap(node, window) for node in path]
        most = caps[-1]
        for node, cap in zip(reversed(path[:-1]), reversed(caps[:-1]), strict=True):
            most = min(cap, most + node.local)
        return most

    def guarantee_changes(self, use: Use) -> list[int]:
        """Seconds at which a guarantee of the use's owners rises or falls."""
        route = self._route(use) if self._is_dated else None
        return [] if route is None else route.guaranteed.cap_changes(route.guarantee_path)

    def frees_at(self, use: Use, window: Window) -> int | None:
        """Earliest start from the window's on at which nothing forbids the use."""
        starts, ends = window
        route = self._route(use)
        trees = () if route is None else (route.measured, route.guaranteed)
        later = [times[times.searchsorted(starts, "right") :] for times in (t.changes() for t in trees)]
        days = self.instants(use)
        if self._headroom is not None:
            days = np.union1d(days, self._headroom.changes(use))
        times = [np.array([starts], dtype=np.int64), *later, days[days > starts]]
        tried = rising(np.concatenate(times))
        allowed = self.allows(use, tried, ends - starts)
        if allowed is None:
            return starts
        return int(tried[int(allowed.argmax())]) if allowed.any() else None

    def next_change(self, gpu_class: str, after: int) -> int | None:
        """The first second after this one at which the use of a class may change."""
        trees = self._classes.get(gpu_class, ())
        later = (times[times > after] for times in (tree.changes() for tree in trees))
        return min((int(times[0]) for times in later if len(times)), default=None)

    def instants(self, use: Use) -> Ints:
        """Starts at which a cap or a limit changes although the calendar does not."""
        route = self._route(use)
        found: Ints = np.zeros(0, dtype=np.int64)
        if route is not None and route.measured.exceptions.raised:
            found = np.array(route.measured.cap_changes(route.path), dtype=np.int64)
        if self._is_dated:
            found = np.union1d(found, np.array(self.guarantee_changes(use), dtype=np.int64))
        if self._headroom is not None:
            found = np.union1d(found, self._headroom.instants(use))
        if self._hours is None:
            return found
        return np.union1d(found, self._hours.instants(use.owners, use.gpu_class, use.units))

    def _over_trees(self, route: _Route, use: Use, window: Window) -> Block | None:
        tree, tier = route.measured, route.tier
        node = tree.over(route.path, use.units, window)
        if node is not None and node.owner != PLATFORM:
            most = tree.cap(node, window)
            used = tree.peak(node.owner, window)
            return Block("limit", node.owner, used, most, is_dated=most < node.cap)
        if (tier.counts or not self.has_limit(use)) and _is_within(route, use.units, window):
            return None
        lasts = not tier.pausable and not route.borrows(window[1] - window[0])
        if lasts or (route.stays_within and self.has_limit(use)):
            return self._past_guarantee(use, window)
        if node is None:
            return None
        return Block("lent", PLATFORM, tree.peak(PLATFORM, window), tree.cap(node, window))

    def _route(self, use: Use) -> _Route | None:
        """The route of a kind of use; None: no owner has a limit for the class."""
        key = use[:3]
        if key not in self._routes:
            trees = self._classes.get(use.gpu_class)
            inside = self._inside_owners(use)
            self._routes[key] = trees and _route_of(trees, self.tier(use.tier), use, inside)
        return self._routes[key]

    def _inside_owners(self, use: Use) -> tuple[str, ...]:
        return use.owners if self.parts is None else self.parts.owners(use)

    def _past_guarantee(self, use: Use, window: Window) -> Block:
        most = self.most_guaranteed(use, window)
        left = use.units - self.borrowed(use, window)
        return Block("guarantee", use.owners[0], max(0, most - left), most)


def _route_of(trees: Trees, tier: Tier, use: Use, inside: tuple[str, ...]) -> _Route:
    """`inside` are the owners for guarantees, which know the tier."""
    owners = use.owners
    guarantee_path, path = trees.guarantee.path_up(inside), trees.lending.path_up(owners)
    # The paths are the same, and all trees must know the persons on them.
    trees.non_preemptible.path_up(inside)
    trees.total.path_up(owners)
    written: list[tuple[Tree, OwnerPath]] = []
    if tier.counts:
        written += [(trees.guarantee, guarantee_path), (trees.lending, path)]
    if trees.non_preemptible is not trees.guarantee and tier.counts and not tier.pausable:
        written.append((trees.non_preemptible, guarantee_path))
    if trees.total is not trees.lending:
        written.append((trees.total, path))
    guaranteed = trees.guarantee if tier.pausable else trees.non_preemptible
    measured = trees.lending if tier.counts else trees.total
    own_path = tuple(node for node in path if node.owner != PLATFORM)
    stays_within = use.tier.endswith(WITHIN)
    return _Route(tier, guaranteed, guarantee_path, measured, path, own_path, tuple(written), stays_within)


def _trees_allow(route: _Route, units: int, starts: Ints, duration: int) -> Bools | None:
    tier, tree = route.tier, route.measured
    if route.stays_within and not tier.counts and route.guarantee_path:
        return np.zeros(len(starts), dtype=np.bool_)
    lent = None
    if route.borrows(duration) or not tier.counts:
        lent = tree.allows(route.path, units, starts, duration)
        if lent is None or not tier.counts:
            return lent
    own = tree.allows(route.own_path, units, starts, duration)
    safe = route.guaranteed.allows(route.guarantee_path, units, starts, duration)
    within = both_allow(own, safe)
    if within is None or lent is None:
        return within
    allowed: Bools = lent | within
    return allowed


def _is_within(route: _Route, units: int, window: Window) -> bool:
    return route.guaranteed.over(route.guarantee_path, units, window) is None
