"""Pools and calendars with held work in them: layers, use of quota and pausable bookings."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from solver.fleet.demand_mix import mixes_of
from solver.fleet.fragmentation import Ints
from solver.fleet.mig_geometry import Masks
from solver.fleet.pool import Index, Pool, pools_of
from solver.model.demand import Fit
from solver.model.inputs import UNITS_PER_GPU, Held, Place, Request, Snapshot
from solver.model.policy import Policy
from solver.quota.headroom import Headroom
from solver.quota.quota import Quota
from solver.quota.use import Table, Use
from solver.state.held_work import HeldWork, Piece
from solver.state.occupancy import Occupancy
from solver.state.running import RunningBookings, running_bookings_of
from solver.timeline.gpu_calendar import GpuCalendar, Windows
from solver.timeline.grid import Grid
from solver.timeline.host_calendar import HostCalendar
from solver.timeline.maintenance import MaintenanceCalendar
from solver.timeline.mig_modes import ModeCalendar
from solver.timeline.share_calendar import ShareCalendar
from solver.timeline.step_function import rising

Window = tuple[int, int]
_FEW_OF = 16
"""A calendar is kept anew once one in so many columns has changed."""


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
        edges = self.kind.searchsorted(np.arange(len(table.kinds) + 1)).tolist()
        self.by_kind = [(kind, slice(*ends)) for kind, ends in zip(table.kinds, pairwise(edges), strict=True)]
        """Each kind with its rows, which are next to each other."""

    def rows(self) -> list[HeldUse]:
        """The rows by themselves, in the order of the ids of held rows."""
        at = self._position.argsort()
        numbers = [each[at] for each in (self.kind, self.units, self.starts, self.ends)]
        return [
            HeldUse(self._quota.use_of(self._kinds[kind], units), (starts, ends), account)
            for kind, units, starts, ends in zip(*(each.tolist() for each in numbers), strict=True)
            for account in (self._kinds[kind].owner,)
        ]


class HeldSpace:
    """Pools and calendars in which held work has its room and its quota.

    The layer `all` has everything, `firm` the same without pausable work (only in classes that have
    some), `held` what was held when the cycle began.
    """

    def __init__(
        self, snapshot: Snapshot, policy: Policy, work: HeldWork, asked: frozenset[str] | None = None
    ) -> None:
        """Load the work, with room and quota in the classes that are `asked` for alone (None: in all).
        KeyError: unknown model."""
        self.now, self.policy, self.work, self._held_rows = snapshot.now, policy, work, snapshot.held
        self._asked, self.energy = asked, snapshot.energy
        self._class_of = {gpu.id: gpu.gpu_class for gpu in snapshot.gpus}
        self._zone_of = {gpu.id: gpu.zone for gpu in snapshot.gpus if gpu.zone}
        # 1. The seconds at which something begins or ends.
        ends = self.free_from_all(work.table.ends)
        planned = [each.planned.starts for each in snapshot.requests if each.planned is not None]
        starts = np.concatenate([np.array(planned, dtype=np.int64), work.starts])
        self.grid = Grid.of(self.now, policy.grid, starts)
        opens = self.grid.ends(ends)
        self.maintenance = MaintenanceCalendar(snapshot.blackouts, self._class_of)
        instants = self._instants(opens, snapshot.requests)
        # 2. The fleet, with calendars that have rows for these seconds.
        mixes = mixes_of(work.kinds, snapshot.requests)
        scoring = {name: policy.of(name).scoring for name in instants}
        fleet = (snapshot.gpus, snapshot.models)
        self.pools: dict[str, Pool] = pools_of(*fleet, mixes, scoring, work.pools, asked)
        work.pools = self.pools
        self.capacity = {name: len(pool) * UNITS_PER_GPU for name, pool in self.pools.items()}
        every = rising(np.concatenate([np.zeros(0, dtype=np.int64), *instants.values()]))
        shares = ShareCalendar(self.pools.values(), alone=policy.share_owners == 1)
        modes = ModeCalendar(self.pools.values(), snapshot.held, self.now)
        hosts = HostCalendar(snapshot.hosts, self.pools.values(), self.grid, every)
        self.all = Occupancy({}, hosts, shares, modes)
        self.firm = Occupancy({}, hosts.copy(), shares, modes)
        # 3. Use of quota, and who may be paused.
        self.quota = self._quota_of(snapshot, instants, ends)
        self.held_uses = HeldUses(self.quota, work.table)
        pools = {name: pool for name, pool in self.pools.items() if self._is_asked_for(name)}
        self.running = RunningBookings(
            running_bookings_of(snapshot, policy, pools, self.quota, self.grid, work)
        )
        # 4. What is held, class by class.
        for name in pools:
            self._load(name, instants[name])
        self.held = self.all.copy()

    def _quota_of(self, snapshot: Snapshot, instants: dict[str, Ints], ends: Ints) -> Quota:
        """The quota with the use of held work, which ends then."""
        kept_free = Headroom.of(snapshot, self.policy, self.grid, instants)
        quota = Quota(snapshot, self.capacity, self.grid, instants, kept_free, self._asked)
        quota.add_table(quota.uses_of(self.work.table, ends))
        return quota

    def _is_asked_for(self, gpu_class: str) -> bool:
        return self._asked is None or gpu_class in self._asked

    def class_of(self, gpu: str) -> str | None:
        """Class of a GPU; None when the fleet does not have it."""
        return self._class_of.get(gpu)

    def zones_of(self, places: Iterable[Place]) -> set[str]:
        """Zones of these places; "" for those on nodes without one."""
        return {self._zone_of.get(place.gpu, "") for place in places}

    def parts(self, fit: Fit) -> tuple[Fit, ...]:
        """The fit on each class: one, unless the booking is mixed."""
        if not fit.demand.groups:
            return (fit,)
        by_class: dict[str | None, list[Place]] = {}
        for place in fit.places:
            by_class.setdefault(self.class_of(place.gpu), []).append(place)
        return tuple(
            replace(fit, demand=each, places=tuple(by_class.get(each.gpu_class, ())))
            for each in fit.demand.parts
        )

    def is_in_service(self, gpu: str) -> bool:
        """True when the GPU is in the fleet and may keep what it has."""
        name = self.class_of(gpu)
        return name is not None and bool(self.pools[name].in_service[self.pools[name].column[gpu]])

    def units(self, gpu_class: str, places: Iterable[Place]) -> int:
        pool = self.pools[gpu_class]
        return sum(pool.geometry(place.gpu).units_taken(place) for place in places)

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
            and all(
                pool.mix == other.pools[name].mix
                for name, pool in self.pools.items()
                if self._is_asked_for(name)
            )
            and list(self.running.every()) == list(other.running.every())
        )

    def _instants(self, opens: Ints, requests: Iterable[Request]) -> dict[str, Ints]:
        """By class, the seconds at which held or planned work, or maintenance, begins or ends.

        `opens` are the seconds at which the rows of held work give back their room.
        """
        names = filter(self._is_asked_for, self._class_of.values())
        planned: dict[str, set[int]] = {name: set() for name in names}
        for request in requests:
            if request.planned is not None:
                for name in {self.class_of(place.gpu) for place in request.planned.places}:
                    if name is not None:
                        starts = max(request.planned.starts, self.now)
                        until = self.grid.end(starts + request.length_on(name))
                        planned[name].update((starts, until))
        table, found = self.work.table, dict[str, Ints]()
        for name, more in planned.items():
            mine = np.array([kind.gpu_class == name for kind in table.kinds], dtype=np.bool_)
            at = np.flatnonzero(mine[table.kind]) if len(mine) else table.kind
            for blackout in self.maintenance.by_class.get(name, ()):
                more.update((blackout.starts, blackout.ends))
            every = (table.starts[at], opens[at], np.array([*more], dtype=np.int64))
            found[name] = rising(np.concatenate([*map(np.sort, every)]))
        return found

    def _load(self, name: str, instants: Ints) -> None:
        """Take what one class holds: whole GPUs and slices together, the rest by itself."""
        pool, work = self.pools[name], self.work
        spread = work.spread(pool)
        ends = self.grid.ends(self.free_from_all(spread.ends))
        rows = Windows(spread.serial, spread.column, spread.bits, spread.starts, ends)
        self.all.gpus[name] = self._loaded(("all", name), rows, instants)
        if name in self.running.classes:
            leaving = work.serials_of(each.booking for each in self.running.of_class(name))
            stays = np.isin(rows.serial, leaving, invert=True)
            self.firm.gpus[name] = self._loaded(("firm", name), rows.only(stays), instants)
        others: Iterable[Piece] = work.uncommon.get(name, {}).values()
        if self.all.modes.may_switch(name):
            others = [piece for piece in work.pieces if piece.gpu_class == name]
        for piece in others:
            self._load_rest(pool, piece)

    def _loaded(self, layer: tuple[str, str], rows: Windows, instants: Ints) -> GpuCalendar:
        """The calendar of a class in a layer, with these rows and with maintenance."""
        calendar = GpuCalendar(self.pools[layer[1]], self.grid, instants)
        changed = calendar.load(rows, self.work.painted.get(layer))
        if self.work.is_kept and changed.sum() * _FEW_OF > len(changed):
            self.work.painted[layer] = calendar.painted(rows)
        self.maintenance.add(layer[1], calendar)
        return calendar

    def _load_rest(self, pool: Pool, piece: Piece) -> None:
        """Take host resources, shares and modes."""
        window, host_resources = self._window(piece), (piece.cores, piece.memory)
        shares = [place for place in piece.places if place.share is not None]
        self.all.hosts.add(piece.places, host_resources, window)
        self.all.shares.add(piece.places, piece.owner, window)
        self.all.modes.add(pool, piece.places, window)
        layers = [self.all]
        if self.running.classes and piece.booking not in self.running:
            self.firm.hosts.add(piece.places, host_resources, window)
            layers.append(self.firm)
        for layer in layers if shares else ():
            if pool.gpu_class in layer.gpus:
                layer.gpus[pool.gpu_class].add(shares, *window)

    def _window(self, piece: Piece) -> Window:
        return (piece.starts, self.free_from(piece.ends))
