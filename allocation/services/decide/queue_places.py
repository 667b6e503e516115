"""The places in the queue as the newest decision has them, stored for the question which are ahead.

A process that keeps leading writes only what has changed since its last decision.
"""

from uuid import UUID

from django.db import transaction

from allocation.models import QueuePlace
from allocation.services.plans.pieces import leads
from allocation.solver import Plan

Key = tuple[int, ...]


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
