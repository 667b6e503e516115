"""What a process that leads keeps between its cycles.

The places in the queue as they are stored, the classes that were searched, and until when the last
decision stays the decision.
"""

from dataclasses import replace
from uuid import UUID

from django.db import transaction

from allocation.models import PolicyVersion, QueuePlace
from allocation.services.plans.pieces import leads
from allocation.services.policy.policies import policy_of
from allocation.services.snapshot.kept import Taken
from allocation.solver import Plan
from allocation.solver.model.instants import next_instant
from allocation.solver.state.kept import QuietClasses

Key = tuple[int, ...]
MOST_SECONDS = 60
"""What moves with each second changes a plan by so much later at most."""


class QueuePlaces:
    """Writes the places for one process that leads."""

    def __init__(self) -> None:
        """Begins without knowing what is stored."""
        self._stored: dict[UUID, Key] | None = None
        self._term = 0

    def forget(self) -> None:
        """Makes the next write read what is stored."""
        self._stored = None

    def lead(self, term: int) -> None:
        """Begins a turn. Forgets what is stored if another process has led since the last one."""
        if term != self._term + 1:
            self._stored = None
        self._term = term

    def write(self, plan: Plan, term: int) -> None:
        """Stores the places of all who wait in this plan, unless another process leads now."""
        new = {UUID(wait.booking): wait.key for wait in plan.waits if wait.key}
        # An error on the way leaves nothing known.
        stored, self._stored = self._stored, None
        with transaction.atomic():
            if not leads(term):
                return
            if stored is None:
                rows = QueuePlace.objects.values_list("booking_id", "key")
                stored = {booking: tuple(key) for booking, key in rows}
            gone = stored.keys() - new.keys()
            if gone:
                QueuePlace.objects.filter(booking_id__in=gone).delete()
            changed = [
                QueuePlace(booking_id=booking, key=list(key))
                for booking, key in new.items()
                if stored.get(booking) != key
            ]
            QueuePlace.objects.bulk_create(
                changed,
                update_conflicts=True,
                unique_fields=["booking"],
                update_fields=["key"],
                batch_size=1_000,
            )
        self._stored = new


queue_places = QueuePlaces()


class Rest:
    """Begins when a plan changed nothing. Turns solve nothing until the next instant at which time
    alone may change the plan, unless the snapshot or the policy changes.
    """

    def __init__(self) -> None:
        """Begins awake."""
        self._until: int | None = None
        self._policy: int | None = None

    def lasts(self, taken: Taken, live: PolicyVersion) -> bool:
        """Returns whether the plan for this snapshot would still change nothing; else ends."""
        is_same = not taken.is_changed and live.pk == self._policy
        if self._until is None or not is_same or taken.snapshot.now >= self._until:
            self.end()
        return self._until is not None

    def begin(self, taken: Taken, live: PolicyVersion) -> None:
        """Notes that the plan for this snapshot changes nothing."""
        latest = taken.snapshot.now + MOST_SECONDS
        self._until = next_instant(taken.snapshot, policy_of(live), latest)
        self._policy = live.pk

    def end(self) -> None:
        """Makes the next turn solve."""
        self._until = None


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
