"""Those who stand in line before a newcomer: what the next cycle gives them, for a look only.

What they get is reserved while one looks, and free again after it.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from allocation.reasons.reason import Reason
from allocation.solver.cycle.outcome import Outcome
from allocation.solver.cycle.queue import BookingQueue
from allocation.solver.cycle.series import series_of
from allocation.solver.cycle.solve import newcomer, place_in_turn
from allocation.solver.model.inputs import Request, Snapshot
from allocation.solver.model.ordering import has_planned_start
from allocation.solver.preemption.search import Preemption
from allocation.solver.rebinding.rebinding import Rebinding
from allocation.solver.state.working import Fit, Working

_MOST_AHEAD = 50
"""Of a longer line only the first so many are looked at: a quote has to be quick."""


@dataclass(frozen=True, slots=True)
class QueuePreview:
    """The site as laid, with its promises; `broken` are those that have lost their place."""

    snapshot: Snapshot
    working: Working
    preemption: Preemption
    promised: Rebinding
    kept: Mapping[str, Fit]
    broken: Mapping[str, Reason]

    @property
    def is_stale(self) -> bool:
        """Somebody was told to leave for one in line: that can't be undone. Lay the site anew."""
        return bool(self.preemption.pauses)

    @contextmanager
    def with_queue_ahead(self, mine: Request) -> Iterator[None]:
        """All that come before `mine` have what they get."""
        if not self.broken and all(map(has_planned_start, self.snapshot.requests)):
            yield
            return
        with self.promised.rehearsed():
            given = list(self._given(mine))
            yield
            for booking, found in reversed(given):
                moved = self.promised.movable.take(booking, found.demand.gpu_class)
                self.working.free(moved or found)

    def _given(self, mine: Request) -> Iterator[tuple[str, Fit]]:
        """In the order of the cycle: see there."""
        outcome = Outcome(self.working, self.preemption, self.promised)
        lost = [each for each in self.snapshot.requests if each.booking in self.broken]
        for request in lost[:_MOST_AHEAD]:
            found = newcomer(outcome, request, self.broken[request.booking])
            if found is not None:
                yield request.booking, found
        queues = BookingQueue(self.working, self.snapshot, self.kept.values())
        waiting = [each for each in self.snapshot.requests if not has_planned_start(each)]
        series = series_of(waiting)
        for request in _before(queues.order((*waiting, mine)), mine):
            for each, found in place_in_turn(outcome, request, series):
                queues.placed(found)
                yield each.booking, found


def _before(line: Iterable[Request], mine: Request) -> Iterator[Request]:
    for number, request in enumerate(line):
        if request is mine or number == _MOST_AHEAD:
            return
        yield request
