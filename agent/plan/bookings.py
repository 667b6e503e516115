"""What the bookings of a node want of another scheduler that gives its devices. Pure."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping

from agent.plan.targets import GpuTarget
from wire import DesiredAllocation


@dataclasses.dataclass(frozen=True, slots=True)
class WantedBooking:
    """What is to run of a booking: its allocations with the index of their GPUs. `given`: its owner has
    got them."""

    parts: tuple[tuple[DesiredAllocation, int], ...]
    given: bool = False

    @property
    def first(self) -> DesiredAllocation:
        return min((each for each, _ in self.parts), key=lambda each: each.id)

    @property
    def ends(self) -> int:
        return max(each.ends for each, _ in self.parts)

    @property
    def names(self) -> frozenset[str]:
        """Returns its allocations."""
        return frozenset(each.id for each, _ in self.parts)

    @property
    def slots(self) -> tuple[int, ...]:
        return tuple(sorted(slot for _, slot in self.parts))


@dataclasses.dataclass(frozen=True, slots=True)
class NodeWants:
    """The bookings of a node by full name; the places whose last booking has not left; the allocations
    that are ending; and all that a record or a document names."""

    bookings: Mapping[str, WantedBooking] = dataclasses.field(default_factory=dict)
    leaving: frozenset[int] = frozenset()
    ending: tuple[DesiredAllocation, ...] = ()
    named: frozenset[str] = frozenset()

    def together(self, allocations: Iterable[str]) -> set[str]:
        """Returns these allocations and the others of their bookings, which get their devices with
        them."""
        found = set(allocations)
        for each in self.bookings.values():
            found |= each.names if each.names & found else set()
        return found

    def partners(self, slot: int, begun: Callable[[WantedBooking], bool]) -> frozenset[int]:
        """Returns the other places of a booking that is to begin here and has not."""
        for each in self.bookings.values():
            if slot in each.slots and not begun(each):
                return frozenset(each.slots) - {slot}
        return frozenset()


def wants_of(
    targets: Iterable[GpuTarget],
    slot_of: Callable[[str], int],
    name_of: Callable[[DesiredAllocation], str],
) -> NodeWants:
    """Returns what a node's targets want."""
    parts: dict[str, list[tuple[DesiredAllocation, int]]] = {}
    given: set[str] = set()
    leaving: set[int] = set()
    ending: list[DesiredAllocation] = []
    named: set[str] = set()
    for target in targets:
        slot = slot_of(target.gpu)
        for task in target.tasks:
            named.add(task.allocation.id)
            full = name_of(task.allocation)
            if not task.ending:
                parts.setdefault(full, []).append((task.allocation, slot))
                given |= {full} if task.given else set()
            elif not task.emptied:
                leaving.add(slot)
                ending.append(task.allocation)
    found = {full: WantedBooking(tuple(each), full in given) for full, each in parts.items()}
    return NodeWants(found, frozenset(leaving), tuple(ending), frozenset(named))
