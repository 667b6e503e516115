"""What is taken over time: slots and shares of GPUs, GPU modes, and the nodes' cores and memory."""

from dataclasses import dataclass

import numpy as np

from solver.fleet.fragmentation import Ints
from solver.fleet.mig_geometry import WHOLE_MASK, Masks
from solver.fleet.pool import Pool
from solver.model.demand import Demand, Fit
from solver.model.inputs import Place
from solver.timeline.gpu_calendar import GpuCalendar
from solver.timeline.host_calendar import Free, HostCalendar
from solver.timeline.mig_modes import ModeCalendar
from solver.timeline.share_calendar import ShareCalendar


@dataclass(frozen=True, slots=True)
class Occupancy:
    """One layer of the fleet's use: `gpus` by class, `hosts`, the owners of `shares`, `modes`."""

    gpus: dict[str, GpuCalendar]
    hosts: HostCalendar
    shares: ShareCalendar
    modes: ModeCalendar

    def copy(self) -> "Occupancy":
        return Occupancy(
            {name: calendar.copy() for name, calendar in self.gpus.items()},
            self.hosts.copy(),
            self.shares.copy(),
            self.modes.copy(),
        )

    def is_same(self, other: "Occupancy") -> bool:
        """True when GPUs and hosts are taken at the same times."""
        return (
            self.gpus.keys() == other.gpus.keys()
            and all(self.gpus[name].is_same(its) for name, its in other.gpus.items())
            and self.hosts.is_same(other.hosts)
        )

    def is_free(self, fit: Fit) -> bool:
        """True when its places, and what comes with them, are free for the whole window."""
        demand, window = fit.demand, fit.window
        calendar = self.gpus[demand.gpu_class]
        return (
            calendar.is_free(fit.places, *window)
            and self.shares.is_free(fit.places, demand.owner, window)
            and self.modes.is_free(calendar.pool, fit.places, window)
            and self.hosts.has(fit.places, demand.host_resources, window)
        )

    def free_until(self, gpu_class: str, place: Place, window: tuple[int, int]) -> int:
        """End of the free stretch of a place from the window's start on, within the window."""
        calendar = self.gpus[gpu_class]
        ends = calendar.free_until(place, *window)
        return self.modes.free_until(calendar.pool, place, window[0], ends)

    def busy(self, demand: Demand, starts: Ints) -> tuple[Masks, Free | None]:
        """What the demand can't have in windows of its length, and what nodes have free in them.

        None: the nodes' cores and memory do not matter to it.
        """
        calendar, windows = self.gpus[demand.gpu_class], (starts, demand.duration)
        pool = calendar.pool
        needs_hosts = self.needs_hosts(demand, pool)
        masks = calendar.busy(*windows)
        if demand.share is not None:
            masks[self.shares.others(pool, demand.owner, windows)] = WHOLE_MASK
        if demand.is_bound:
            masks[:, ~pool.allowed(demand.pin, demand.where)] = WHOLE_MASK
        if self.modes.may_switch(demand.gpu_class):
            masks[self.modes.others(pool, demand.shape, windows)] = WHOLE_MASK
            for row, begin in enumerate(starts.tolist() if demand.keeps_modes else ()):
                masks[row, self.modes.switching(pool, demand.shape, begin)] = WHOLE_MASK
        return masks, self.hosts.free(pool, *windows) if needs_hosts else None

    def needs_hosts(self, demand: Demand, pool: Pool) -> bool:
        """True when the nodes' cores and memory matter to the choice of places."""
        return any(demand.host_resources) or (self.hosts.are_known and pool.scores.needs_cores)

    def starts_between(self, demand: Demand, first: int, last: int) -> Ints:
        """Candidate starts: `first`, then each instant up to `last` at which room changes."""
        if demand.groups:
            each = [self.starts_between(part, first, last) for part in demand.parts]
            return np.unique(np.concatenate(each))
        tried = self.gpus[demand.gpu_class].starts_between(first, last)
        if self.modes.may_switch(demand.gpu_class):
            pool = self.gpus[demand.gpu_class].pool
            tried = np.union1d(tried, self.modes.instants(pool, demand.shape, first, last))
        return np.union1d(tried, self.hosts.between(first, last)) if any(demand.host_resources) else tried

    def stretches(self, gpu_class: str, since: int, until: int) -> tuple[Ints, Ints, Masks]:
        """Begins and ends of the stretches of [since, until) in which nothing changes for whole
        GPUs, and the taken bits of each; a GPU in the other mode is taken."""
        calendar = self.gpus[gpu_class]
        begins = calendar.starts_between(since, until - 1)
        if self.modes.may_switch(gpu_class):
            begins = np.union1d(begins, self.modes.edges(calendar.pool, None, since, until - 1))
        busy = calendar.busy(begins, 1)
        if self.modes.may_switch(gpu_class):
            busy[self.modes.others(calendar.pool, None, (begins, 1))] = WHOLE_MASK
        return begins, np.append(begins[1:], until), busy
