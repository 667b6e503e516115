"""Which classes the next cycle searches for earlier starts, and which it leaves quiet."""

from dataclasses import replace

from allocation.models import PolicyVersion
from allocation.services.snapshot.kept import Taken
from allocation.solver.state.quiet import QuietClasses


class Searches:
    """What one process that leads knows of the searches of its cycles."""

    def __init__(self) -> None:
        """Begins with a search of all classes."""
        self._classes = QuietClasses()
        self._policy: int | None = None

    def forget(self) -> None:
        """Makes the next cycle search all classes: the last plan may not have been written."""
        self._classes.forget()

    def mark(self, taken: Taken, live: PolicyVersion) -> Taken:
        """Returns the snapshot with its quiet classes; after a change of the policy without any."""
        if live.pk != self._policy:
            self.forget()
        self._policy = live.pk
        quiet = self._classes.of(taken.rows)
        if not quiet:
            return taken
        rows = replace(
            taken.rows, tables={**taken.rows.tables, "quiet": {name: name for name in quiet}}
        )
        return replace(taken, snapshot=replace(taken.snapshot, quiet=quiet), rows=rows)
