"""A space with held work in it: calendars in layers, use of quota and pausable bookings."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from allocation.solver.fleet.fragmentation import Ints
from allocation.solver.fleet.mig_geometry import Masks
from allocation.solver.fleet.pool import Index, Pool
from allocation.solver.model.inputs import UNITS_PER_GPU, Held, Request, Snapshot
from allocation.solver.model.policy import Policy
from allocation.solver.quota.quota import Quota, Use, UseTable
from allocation.solver.state.held_rows import Kind, Table
from allocation.solver.state.held_work import HeldWork, Piece
from allocation.solver.state.running import RunningBookings, running_bookings_of
from allocation.solver.state.space import Space
from allocation.solver.timeline.gpu_calendar import GpuCalendar, Windows
from allocation.solver.timeline.maintenance import MaintenanceCalendar
from allocation.solver.timeline.step_function import rising

Window = tuple[int, int]


class HeldUse(NamedTuple):
    """Quota use of held work in a window, and the account that runs it."""

    use: Use
    window: Window
    account: str


class HeldUses:
    """Quota use of all held work, one row per kind and period."""

    def __init__(self, quota: Quota, table: Table) -> None:
        self._quota, self._kinds = quota, table.kinds
        order = np.lexsort((table.ends, table.starts, table.kind))
        kind, starts, ends = (each[order] for each in (table.kind, table.starts, table.ends))
        same = (np.diff(kind) == 0) & (np.diff(starts) == 0) & (np.diff(ends) == 0)
        first = np.flatnonzero(np.concatenate([[True], ~same])[: len(order)])
        units = np.add.reduceat(table.units[order], first) if len(first) else table.units
        self.kind, self.starts, self.ends = kind[first], starts[first], ends[first]
        self._position: Index = order[first]
        self.units: Ints = units

    def kinds(self) -> list[tuple[Kind, slice]]:
        """Each kind with its rows, which are next to each other."""
        edges = self.kind.searchsorted(np.arange(len(self._kinds) + 1)).tolist()
        return [
            (kind, slice(begin, end))
            for kind, begin, end in zip(self._kinds, edges[:-1], edges[1:], strict=True)
        ]

    def rows(self) -> list[HeldUse]:
        """The rows by themselves, in the order of the ids of held rows."""
        at = self._position.argsort()
        numbers = [each[at] for each in (self.kind, self.units, self.starts, self.ends)]
        return [
            HeldUse(use_of(self._quota, self._kinds[kind], units), (starts, ends), account)
            for kind, units, starts, ends in zip(*(each.tolist() for each in numbers), strict=True)
            for account in (self._kinds[kind].owner,)
        ]


def use_of(quota: Quota, kind: Kind, units: int) -> Use:
    """The quota use of so many units of a kind."""
    return Use(quota.owners(kind.quota_owners, kind.owner), kind.tier, kind.gpu_class, units)


def use_table(quota: Quota, table: Table, ends: Ints) -> UseTable:
    """The rows as uses of quota, with these ends instead of their own."""
    kinds = tuple(use_of(quota, kind, 0) for kind in table.kinds)
    return UseTable(kinds, table.kind, table.units, table.starts, ends)


class HeldSpace(Space):
    """A space in which held work has its room and its quota.

    The layer `all` has everything, `firm` the same without pausable work (only in classes that have
    some), `held` what was held when the cycle began.
    """

    def __init__(self, snapshot: Snapshot, policy: Policy, work: HeldWork) -> None:
        """Load the work. KeyError: unknown model."""
        super().__init__(
            snapshot,
            policy.scoring,
            alone=policy.share_owners == 1,
            step=policy.grid,
            work=work,
        )
        self.policy, self.work, self._held_rows = policy, work, snapshot.held
        self.capacity = {name: len(pool) * UNITS_PER_GPU for name, pool in self.pools.items()}
        self.quota = Quota(snapshot, self.capacity, self.grid)
        self.maintenance = MaintenanceCalendar(snapshot.blackouts, self._class_of)
        self.running = RunningBookings(
            running_bookings_of(snapshot, policy, self.pools, self.quota, self.grid, work)
        )
        ends = self.free_from_all(work.table.ends)
        instants = self._instants(ends, snapshot.requests)
        self._preallocate(instants)
        firm = {name: GpuCalendar(self.pools[name], self.grid) for name in self.running.classes}
        for name, calendar in firm.items():
            calendar.preallocate(instants[name])
        self.firm = replace(self.all, gpus=firm, hosts=self.all.hosts.copy())
        for name in self.pools:
            self._load(name)
        self.quota.add_table(use_table(self.quota, work.table, ends))
        self.held_uses = HeldUses(self.quota, work.table)
        self.held = self.all.copy()

    def free_from(self, ends: int) -> int:
        """When what ends then is gone: overdue work stays for one more grid step."""
        return ends if ends > self.now else self.now + self.policy.grid

    def free_from_all(self, ends: Ints) -> Ints:
        """The same for many."""
        return np.where(ends > self.now, ends, self.now + self.policy.grid)

    def taken_by_unmovable(self, gpu_class: str, window: Window, frozen: int) -> Masks:
        """Bits of each column that stay taken in a window if all is elsewhere that may move and
        begins after `frozen`. Only whole GPUs and slices are examined."""
        spread = self.work.spread(self.pools[gpu_class])
        ends = self.grid.ends(self.free_from_all(spread.ends))
        near = (spread.starts < window[1]) & (ends > window[0])
        stays = near & ~(spread.may_move & (spread.starts > frozen))
        taken = np.zeros(len(self.pools[gpu_class]), dtype=np.uint16)
        np.bitwise_or.at(taken, spread.column[stays], spread.bits[stays])
        return taken

    def work_of(self, held: tuple[Held, ...]) -> HeldWork:
        """The held work of these rows: what was loaded, unless other rows are asked for."""
        if held is self._held_rows:
            return self.work
        work = self.work.empty()
        work.update(held)
        return work

    def begins_as(self, other: "HeldSpace") -> bool:
        """True when both begin a cycle with the same."""
        layers = ((self.all, other.all), (self.firm, other.firm), (self.held, other.held))
        return (
            all(mine.is_same(its) for mine, its in layers)
            and self.quota.is_same(other.quota)
            and self.work.is_same(other.work)
            and {name: pool.mix for name, pool in self.pools.items()}
            == {name: pool.mix for name, pool in other.pools.items()}
            and list(self.running.every()) == list(other.running.every())
        )

    def _instants(self, ends: Ints, requests: Iterable[Request]) -> dict[str, Ints]:
        """By class, the seconds at which held or planned work, or maintenance, begins or ends."""
        planned: dict[str, set[int]] = {name: set() for name in self.pools}
        for request in requests:
            if request.planned is not None:
                for name in {self.class_of(place.gpu) for place in request.planned.places}:
                    if name is not None:
                        starts = max(request.planned.starts, self.now)
                        until = self.grid.end(starts + request.length_on(name))
                        planned[name].update((starts, until))
        table, opens = self.work.table, self.grid.ends(ends)
        found = dict[str, Ints]()
        for name, more in planned.items():
            mine = table.of_class(name)
            more.update(self.maintenance.instants(name))
            every = (table.starts[mine], opens[mine], np.array([*more], dtype=np.int64))
            found[name] = rising(np.concatenate([*map(np.sort, every)]))
        return found

    def _preallocate(self, instants: Mapping[str, Ints]) -> None:
        """Create all calendar rows for these instants at once."""
        for name, calendar in self.all.gpus.items():
            calendar.preallocate(instants[name])
        self.quota.preallocate(instants)
        none = np.zeros(0, dtype=np.int64)
        self.all.hosts.preallocate(rising(np.concatenate([none, *instants.values()])))

    def _load(self, name: str) -> None:
        """Take what one class holds: whole GPUs and slices together, the rest by itself."""
        pool, firm, work = self.pools[name], self.firm.gpus.get(name), self.work
        spread = work.spread(pool)
        ends = self.grid.ends(self.free_from_all(spread.ends))
        rows = Windows(spread.serial, spread.column, spread.bits, spread.starts, ends)
        work.calendars.load(("all", name), self.all.gpus[name], rows)
        self.maintenance.add(name, self.all.gpus[name])
        if firm is not None:
            leaving = work.serials_of(each.booking for each in self.running.there(name))
            stays = np.isin(rows.serial, leaving, invert=True)
            work.calendars.load(("firm", name), firm, rows.only(stays))
            self.maintenance.add(name, firm)
        others: Iterable[Piece] = work.uncommon(name)
        if self.all.modes.may_switch(name):
            others = [piece for piece in work.pieces if piece.gpu_class == name]
        for piece in others:
            self._load_rest(pool, piece)

    def _load_rest(self, pool: Pool, piece: Piece) -> None:
        """Take host resources, shares and modes."""
        window, host_resources = self._window(piece), (piece.cores, piece.memory)
        shares = [place for place in piece.places if place.share is not None]
        self.all.hosts.add(piece.places, host_resources, window)
        self.all.shares.add(piece.places, piece.owner, window)
        self.all.modes.add(pool, piece.places, window)
        layers = [self.all]
        if self.firm.gpus and piece.booking not in self.running:
            self.firm.hosts.add(piece.places, host_resources, window)
            layers.append(self.firm)
        for layer in layers if shares else ():
            if pool.gpu_class in layer.gpus:
                layer.gpus[pool.gpu_class].add(shares, *window)

    def _window(self, piece: Piece) -> Window:
        return (piece.starts, self.free_from(piece.ends))
