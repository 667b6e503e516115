"""Who held which slots when, as the simulated driver of a node saw it."""

from collections.abc import Iterable
from dataclasses import dataclass

from devtools.simulated.hardware import Hardware

Slots = tuple[str, int, int]
"""A GPU's UUID and memory slots [start, end)."""


FOREIGN = "foreign"


def is_foreign(name: str) -> bool:
    """A program of somebody without a booking."""
    return name.startswith(FOREIGN)


@dataclass(frozen=True, slots=True)
class Interval:
    """An allocation had its device, or programs on it, from `starts` to `stops`."""

    allocation: str
    slots: Slots
    starts: float
    stops: float

    def collides(self, other: "Interval") -> bool:
        """The same slots at the same time, by two allocations."""
        (gpu, first, last), (its_gpu, its_first, its_last) = self.slots, other.slots
        return (
            self.allocation != other.allocation
            and gpu == its_gpu
            and first < its_last
            and its_first < last
            and self.starts < other.stops
            and other.starts < self.stops
        )


class Occupancy:
    """The record of one node. `given` is kept by whoever hands devices over; programs are seen."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware
        self._ticks = 0
        self.given: dict[str, Slots] = {}
        # Shares: thousandths and owner. Resumed programs: the allocation that resumes them.
        self.shares: dict[str, tuple[int, str]] = {}
        self.resumed_as: dict[str, str] = {}
        self._open: dict[tuple[str, Slots], tuple[float, float]] = {}
        self.closed: list[Interval] = []

    def holders(self) -> set[tuple[str, Slots]]:
        """Allocations that hold something now."""
        found = set(self.given.items())
        for gpu in self._hardware.gpus:
            for process in gpu.processes.values():
                is_there = not process.frozen and process.starts <= self._hardware.clock()
                # Who only watches takes nothing from anybody.
                if process.service or not is_there:
                    continue
                instance = gpu.instances.get(process.instance or 0)
                slots = (gpu.uuid, 0, 8)
                if instance is not None:
                    slots = (gpu.uuid, instance.start, instance.start + instance.profile.size)
                found.add((self.now_of(process.label), slots))
        return found

    def now_of(self, label: str) -> str:
        """The allocation that a program is of: it may have been begun for an earlier one."""
        while label in self.resumed_as:
            label = self.resumed_as[label]
        return label

    def runs_of(self, label: str) -> list[str]:
        """The allocations that a program was of, the first one first."""
        runs = [label]
        while runs[-1] in self.resumed_as:
            runs.append(self.resumed_as[runs[-1]])
        return runs

    def look(self) -> list[str]:
        """Writes down what is there; returns every two that hold the same slots now."""
        # Several looks at one instant still have an order.
        self._ticks += 1
        at = self._hardware.clock() + self._ticks * 1e-6
        holders = self.holders()
        for holder in [each for each in self._open if each not in holders]:
            self.closed.append(Interval(*holder, self._open.pop(holder)[0], at))
        for holder in holders:
            begun = self._open.get(holder, (at, at))[0]
            self._open[holder] = (begun, at)
        now = [Interval(*holder, *times) for holder, times in sorted(self._open.items())]
        both = [
            f"{one.allocation} and {other.allocation} hold {one.slots} and {other.slots}"
            for i, one in enumerate(now)
            for other in now[i + 1 :]
            if one.slots[0] == other.slots[0]
            and one.allocation != other.allocation
            and one.slots[1] < other.slots[2]
            and other.slots[1] < one.slots[2]
            and not self._may_meet(one.allocation, other.allocation)
        ]
        return both + self._shared(holders)

    def _may_meet(self, one: str, other: str) -> bool:
        """Shares of one GPU may meet; unbooked programs can't be distinguished from theirs."""
        kinds = [name in self.shares or is_foreign(name) for name in (one, other)]
        return all(kinds) or (is_foreign(one) and is_foreign(other))

    def _shared(self, holders: Iterable[tuple[str, Slots]]) -> list[str]:
        """GPUs of which more than all is shared, or at once by people who may not be."""
        there: dict[str, dict[str, tuple[int, str]]] = {}
        for name, (gpu, _, _) in holders:
            if name in self.shares:
                there.setdefault(gpu, {})[name] = self.shares[name]
        sums = [(gpu, sum(part for part, _ in found.values())) for gpu, found in there.items()]
        found = [f"{gpu} is shared to {taken} thousandths" for gpu, taken in sums if taken > 1000]
        for gpu, shares in there.items():
            owners = {owner for _, owner in shares.values()}
            if len(owners) > 1:
                found.append(f"{gpu} is shared by {sorted(owners)} at once")
        return found

    def overlaps(self) -> list[str]:
        """The check over the whole record, once everything is closed."""
        ordered = sorted(self.closed, key=lambda each: each.starts)
        return [
            f"{one} and {other}"
            for i, one in enumerate(ordered)
            for other in ordered[i + 1 :]
            if one.collides(other) and not self._may_meet(one.allocation, other.allocation)
        ]
