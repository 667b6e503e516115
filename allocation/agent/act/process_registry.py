"""Which programs were on whose device when the driver last told, for when it tells no more."""

from collections.abc import Collection, Mapping

from allocation.agent.plan.pauses import ProgramsSeen
from allocation.agent.plan.reconcile import GpuTarget, Record, Task
from allocation.agent.ports.gpu import GpuPort, Truth
from allocation.agent.ports.handover import booking_full_name
from allocation.agent.ports.programs import Programs
from allocation.agent.ports.suspender import Program
from allocation.wire import DesiredAllocation


class ProcessRegistry:
    """Without `programs` nothing is known of any."""

    def __init__(self, port: GpuPort, programs: Programs | None) -> None:
        self._port = port
        self._programs = programs
        self._seen: dict[str, frozenset[Program]] = {}

    def look(self, target: GpuTarget, truth: Truth, seen: ProgramsSeen) -> None:
        """Notes who is on what was given. Raises GpuError."""
        for task in target.tasks:
            name = task.allocation.id
            if task.emptied or not task.given:
                self._seen.pop(name, None)
            elif self._programs is not None:
                self._seen[name] = self._born(self._on(task, truth, seen))

    def _on(self, task: Task, truth: Truth, seen: ProgramsSeen) -> tuple[int, ...]:
        if task.allocation.share is not None:
            return seen.shares.get(task.allocation.id) or ()
        if task.place is None:
            return self._port.pids(truth.uuid, None) if truth.processes else ()
        there = (i for i in truth.instances if i.place == task.place and i.processes)
        return next((self._port.pids(truth.uuid, i.id) for i in there), ())

    def there(self, allocation: str, held: Mapping[str, Record], now: float) -> frozenset[Program]:
        """Those that were seen on its device, and those that say that they are its, or its
        booking's where nothing else of the booking goes on here. `now` in Unix seconds."""
        if self._programs is None:
            return frozenset()
        mine = held[allocation].allocation
        names = {allocation}
        if not any(_is_other_run(each, mine, now) for each in held.values()):
            names.add(booking_full_name(mine))
        said = self._born(self._programs.named(names))
        return self._seen.get(allocation, frozenset()) | said

    def end(self, programs: Collection[Program], *, force: bool) -> None:
        """Asks them to end, or kills them. Raises PermissionError."""
        if self._programs is None:
            return
        for pid, birth in sorted(programs):
            if force:
                self._programs.kill(pid, birth)
            else:
                self._programs.ask(pid, birth)

    def _born(self, pids: Collection[int]) -> frozenset[Program]:
        if self._programs is None:
            return frozenset()
        births = ((pid, self._programs.birth(pid)) for pid in pids)
        return frozenset((pid, birth) for pid, birth in births if birth is not None)


def _is_other_run(each: Record, mine: DesiredAllocation, now: float) -> bool:
    """Whether it is another run of the same booking, which nobody has ended."""
    other = each.allocation
    if other.id == mine.id or booking_full_name(other) != booking_full_name(mine):
        return False
    return other.state == "run" and now < other.ends and not (each.emptied or each.fenced)
