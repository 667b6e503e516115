"""Who can leave, and when: tenant by tenant, while a cycle changes what is in place."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Generic, TypeVar

from solver.model.inputs import Snapshot
from solver.preemption.in_place import InPlace
from solver.state.cycle_state import CycleState
from solver.state.running import RunningBooking, RunningBookings

Row = TypeVar("Row")


class Leaving(Generic[Row]):
    """Rows of the bookings of a class that may leave.

    Rows of a tenant depend on what is in place of this tenant alone, so they are read again only
    when that has changed. `serial` changes with the rows.
    """

    __slots__ = ("_changes", "_numbers", "_read", "_rows", "_versions", "serial")

    def __init__(
        self,
        read: Callable[[str], Sequence[Row]],
        numbers: Iterator[int],
        before: "Leaving[Row] | None" = None,
    ) -> None:
        """`read` returns the rows of a tenant. `numbers` are the next serials, each used once. With
        the same rows as `before` it has the same serial."""
        self._read, self._numbers = read, numbers
        self._changes = -1
        self._versions: dict[str, int] = {}
        self._rows: dict[str, Sequence[Row]] = {} if before is None else before._rows
        self.serial: int = next(numbers) if before is None else before.serial

    def refresh(self, running: RunningBookings, gpu_class: str) -> None:
        """Read again the rows of the tenants of which something has changed."""
        changes = running.changes(gpu_class)
        if changes == self._changes:
            return
        self._changes = changes
        for tenant in running.tenants(gpu_class):
            version = running.version(tenant, gpu_class)
            if self._versions.get(tenant) != version:
                self._versions[tenant] = version
                rows = self._read(tenant)
                if rows != self._rows.get(tenant, ()):
                    self.serial = next(self._numbers)
                self._rows[tenant] = rows

    def rows(self) -> Iterable[Row]:
        """The rows of all tenants."""
        return chain.from_iterable(self._rows.values())


class Departures:
    """When bookings that run can be out, and which of a tenant can be by a second."""

    def __init__(self, state: CycleState, snapshot: Snapshot, in_place: InPlace) -> None:
        self._state, self._in_place = state, in_place
        self._outs: dict[str, list[int]] = {}
        self._borrowing: dict[tuple[str, str, int, bool], tuple[int, list[RunningBooking]]] = {}
        graces = (tier.grace for tier in snapshot.tiers if tier.pausable)
        self._longest_grace = max(graces, default=0)

    def out(self, runner: RunningBooking) -> int:
        """The first second at which its room can be free: no notice goes out while it is protected,
        whatever the grace of the others that leave, also of those that begin later."""
        state = self._state
        if runner.protected <= state.now:
            return state.now + runner.tier.grace
        return runner.protected + state.policy.notice_margin + self._longest_grace

    def first_outs(self, gpu_class: str) -> list[int]:
        """The first seconds at which running bookings of the class can be out."""
        if gpu_class not in self._outs:
            running = self._state.running.of_class(gpu_class)
            self._outs[gpu_class] = sorted({self.out(runner) for runner in running})
        return self._outs[gpu_class]

    def is_due(self, gpu_class: str, starts: int) -> bool:
        """True when some victim would get its notice now."""
        grace = max(self._state.running.graces(gpu_class), default=0)
        return starts - grace - self._state.policy.notice_margin <= self._state.now

    def able(self, gpu_class: str, tenant: str, starts: int) -> Iterator[RunningBooking]:
        """Bookings of a tenant that can be out by then and would otherwise still run."""
        for runner in self._state.running.of(gpu_class, tenant):
            if self.out(runner) <= starts < runner.ends:
                yield runner

    def borrowers(self, gpu_class: str, tenant: str, starts: int, *, planned: bool) -> list[RunningBooking]:
        """Bookings of a tenant that can be out by then and of which nothing is inside its
        guarantee."""
        version = self._state.running.version(tenant, gpu_class)
        key = (tenant, gpu_class, starts, planned)
        known, found = self._borrowing.get(key, (-1, []))
        if known != version:
            standing = self._in_place.at(tenant, gpu_class, starts, planned=planned)
            inside = standing.parts
            able = self.able(gpu_class, tenant, starts)
            found = [runner for runner in able if runner.booking not in inside]
            self._borrowing[key] = (version, found)
        return found
