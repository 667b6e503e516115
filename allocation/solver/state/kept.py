"""What a process that leads keeps between its cycles, and how it is proven."""

from collections.abc import Iterable

from allocation.solver.model.inputs import Gpu, Held, Model
from allocation.solver.state.held_work import HeldWork

COMPARE_EVERY = 60
"""Seconds after which what is kept is compared with a fresh one."""
COMPARED_A_MINUTE = 2_500
"""What is kept of more bookings is compared less often, so that this takes the same part of the
time."""


class Kept:
    """What is kept of held work, one for each shard. The plan is the same without it.

    It depends on nothing that a leader has to tell: it compares all rows with those that it has
    read. Once a minute, by the clock of the snapshots, or less often where many are held, a cycle
    compares what it begins with. What has drifted is thrown away, never mended.
    """

    def __init__(self) -> None:
        """Nothing is kept."""
        self._work: HeldWork | None = None
        self._compared: int | None = None
        self._shards: dict[tuple[str, ...], Kept] = {}
        self._drifts = 0

    def forget(self) -> None:
        """Throw away what is kept."""
        self._work = self._compared = None
        self._shards.clear()

    def shard(self, gpu_classes: Iterable[str]) -> "Kept":
        """What is kept of the shard with these classes."""
        return self._shards.setdefault(tuple(sorted(set(gpu_classes))), Kept())

    def held_work(
        self, gpus: tuple[Gpu, ...], models: tuple[Model, ...], held: Iterable[Held]
    ) -> HeldWork:
        """The held work of a snapshot in canonical order. KeyError: unknown model."""
        # An error on the way leaves nothing behind.
        work, self._work = self._work, None
        if work is None or not work.is_of(gpus, models):
            work, self._compared = HeldWork(gpus, models), None
        else:
            work.calendars.are_kept = True
        work.update(held)
        self._work = work
        return work

    def is_to_compare(self, now: int) -> bool:
        """True when the next comparison is due; what is fresh needs none."""
        if self._compared is None or now < self._compared:
            self._compared = now
        held = 0 if self._work is None else len(self._work.uses)
        if now - self._compared < COMPARE_EVERY * max(1, held // COMPARED_A_MINUTE):
            return False
        self._compared = now
        return True

    def drifted(self) -> None:
        """Note that a cycle would have begun with something else, and throw it away."""
        self.forget()
        self._drifts += 1

    def drifts_take(self) -> int:
        """How often it has drifted since this was last asked."""
        found, self._drifts = self._drifts, 0
        return found + sum(shard.drifts_take() for shard in self._shards.values())
