"""Who may leave for a claim, tenant by tenant, while a cycle changes what is in place."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Generic, TypeVar

from solver.state.running import RunningBookings

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
