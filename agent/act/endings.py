"""Ends the programs of allocations that are over."""

import dataclasses
import logging
from collections.abc import Callable, Collection, Mapping

from agent.act.suspensions import Suspensions
from agent.plan.pauses import ProgramsSeen, pause_method
from agent.plan.steps import EndProcesses
from agent.plan.targets import GpuTarget, Record, Task
from agent.ports.gpu import GpuPort, Truth
from agent.ports.handover import booking_full_name
from agent.ports.programs import Programs
from agent.ports.suspender import LIMIT_S, Program, living
from agent.state.records import Records
from agent.state.store import StoreError
from wire import DesiredAllocation, PauseMethod

log = logging.getLogger(__name__)


class ProcessRegistry:
    """The programs that were on each device when the driver last answered. Without `programs` there
    are none."""

    def __init__(self, port: GpuPort, programs: Programs | None) -> None:
        self._port = port
        self._programs = programs
        self._seen: dict[str, frozenset[Program]] = {}

    def look(self, target: GpuTarget, truth: Truth, seen: ProgramsSeen) -> None:
        """Records the programs on handed devices. Raises GpuError."""
        for task in target.tasks:
            name = task.allocation.id
            if task.emptied or not task.given:
                self._seen.pop(name, None)
            elif self._programs is not None:
                self._seen[name] = living(self._programs, self._on(task, truth, seen))

    def _on(self, task: Task, truth: Truth, seen: ProgramsSeen) -> tuple[int, ...]:
        if task.allocation.share is not None:
            return seen.shares.get(task.allocation.id) or ()
        if task.place is None:
            return self._port.pids(truth.uuid, None) if truth.processes else ()
        there = (i for i in truth.instances if i.place == task.place and i.processes)
        return next((self._port.pids(truth.uuid, i.id) for i in there), ())

    def programs_of(self, allocation: str, held: Mapping[str, Record], now: float) -> frozenset[Program]:
        """Returns the programs last seen on the allocation's device, and those that name it, or its
        booking if no other run of the booking is here. `now` in Unix seconds."""
        if self._programs is None:
            return frozenset()
        mine = held[allocation].allocation
        names = {allocation}
        if not any(_is_other_run(each, mine, now) for each in held.values()):
            names.add(booking_full_name(mine))
        said = living(self._programs, self._programs.named(names))
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


def _is_other_run(each: Record, mine: DesiredAllocation, now: float) -> bool:
    """Whether it is another, running run of the same booking."""
    other = each.allocation
    if other.id == mine.id or booking_full_name(other) != booking_full_name(mine):
        return False
    return other.state == "run" and now < other.ends and not (each.emptied or each.fenced)


KILL_AFTER_S = 10.0
# After a notice the owner had its grace period to save.
KILL_AFTER_NOTICE_S = 3.0


@dataclasses.dataclass(slots=True)
class _Ending:
    """The ending of one allocation's programs, which began at `since` on the steady clock.

    `undo` is set while suspended programs are resumed in order to end them: why they could not be
    suspended, or empty.
    """

    since: float
    method: PauseMethod | None
    killed: bool = False
    undo: str | None = None

    @property
    def grace_s(self) -> float:
        """Seconds from TERM to KILL."""
        return {None: KILL_AFTER_S, "stop": KILL_AFTER_NOTICE_S}.get(self.method, 0.0)

    @property
    def watched_s(self) -> float:
        """Seconds during which it is checked often."""
        return 2 * (LIMIT_S if self.method == "suspend" else KILL_AFTER_S)


class Endings:
    """Ends or suspends the programs of allocations that are over: TERM, a grace period, KILL.

    An ending takes several turns, so what has been done is kept until the device is empty.
    """

    def __init__(
        self,
        *,
        port: GpuPort,
        records: Records,
        suspensions: Suspensions,
        programs: Programs | None,
        monotonic: Callable[[], float],
    ) -> None:
        self.registry = ProcessRegistry(port, programs)
        self._port = port
        self._records = records
        self._suspensions = suspensions
        self._monotonic = monotonic
        self._endings: dict[str, _Ending] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether a program may end at any moment."""
        now = self._monotonic()
        recent = any(now - e.since < e.watched_s for e in self._endings.values())
        return recent or bool(self._suspensions.busy())

    def forget(self, allocations: Collection[str]) -> None:
        """Forgets allocations whose devices are empty."""
        for name in allocations:
            ending = self._endings.pop(name, None)
            if ending is not None and ending.undo is not None:
                self._suspensions.abandon(name)
        self._suspensions.emptied(allocations)

    def retain(self, ending: Collection[str]) -> None:
        """Forgets all endings but those of the allocations in `ending`."""
        self._endings = {n: each for n, each in self._endings.items() if n in ending}

    def end(self, gpu: str, step: EndProcesses) -> bool:
        """Sends TERM once; after the grace period sends KILL in each turn.

        Returns whether anything was done. Raises GpuError, StoreError.
        """
        ending = self._endings.get(step.allocation)
        if ending is not None and ending.undo is not None:
            return self._undo(gpu, step, ending)
        if ending is not None and ending.method == "suspend":
            return self._suspend(gpu, step, ending)
        if ending is None:
            return self._begin(gpu, step)
        if self._monotonic() - ending.since < ending.grace_s:
            return False
        return self._kill(gpu, step, ending)

    def end_without_driver(self, task: Task, now: float) -> str | None:
        """As `end`, for the programs that were on the device when the driver last answered. They
        can't be suspended. Returns the problem."""
        name = task.allocation.id
        there = self.registry.programs_of(name, self._records.held, now)
        method, _ = pause_method(task.allocation.notice, task.mode, gang=task.gang)
        method = "stop" if method == "suspend" else method
        ending = self._endings.get(name)
        first = ending is None or ending.method == "suspend"
        if ending is None or first:
            ending = self._endings[name] = _Ending(self._monotonic(), method)
        force = self._monotonic() - ending.since >= ending.grace_s
        # A program with locked CUDA calls can't end in order, nor be unlocked without the driver.
        ask = first and not self._suspensions.may_be_suspended(name)
        try:
            if ask or force:
                self.registry.end(there, force=force)
        except PermissionError as error:
            return f"the programs of {task.allocation.booking} can't be ended: {error}"
        return None

    def _begin(self, gpu: str, step: EndProcesses) -> bool:
        """Takes the first step: resumes what is half suspended, else suspends, else sends TERM."""
        refusal = step.note
        if step.method == "suspend":
            refusal = self._suspensions.limits.refusal(step.allocation)
        ending = self._endings[step.allocation] = _Ending(self._monotonic(), step.method)
        suspends = step.method == "suspend" and refusal is None
        if not suspends and self._suspensions.may_be_suspended(step.allocation):
            ending.undo = refusal or ""
            return self._undo(gpu, step, ending)
        if refusal is not None:
            return self._stop(gpu, step, refusal)
        if suspends:
            return self._suspend(gpu, step, ending)
        self._port.end_processes(gpu, step.instance, force=False, only=step.only)
        return True

    def _kill(self, gpu: str, step: EndProcesses, ending: _Ending) -> bool:
        first, ending.killed = not ending.killed, True
        self._port.end_processes(gpu, step.instance, force=True, only=step.only)
        return first

    def _suspend(self, gpu: str, step: EndProcesses, ending: _Ending) -> bool:
        """Suspends what is on the device; ends it if that failed or takes too long."""
        why = self._suspensions.failure(step.allocation)
        if why is None and self._monotonic() - ending.since >= LIMIT_S:
            why = f"it took longer than {LIMIT_S:g} s"
        if why is None:
            try:
                return self._suspensions.suspend(step.allocation)
            except StoreError as unsaved:
                why = str(unsaved)
        ending.undo = why
        return self._undo(gpu, step, ending)

    def _undo(self, gpu: str, step: EndProcesses, ending: _Ending) -> bool:
        """Resumes suspended programs, then ends them: with locked CUDA calls a program gets TERM
        and can't save."""
        stuck = self._suspensions.undo(step.allocation)
        if stuck is None:
            return False
        if ending.undo:
            return self._stop(gpu, step, f"{ending.undo}; {stuck}" if stuck else ending.undo)
        if stuck:
            log.warning("%s: %s", step.allocation, stuck)
            self._records.set_note([step.allocation], stuck)
        self._endings[step.allocation] = _Ending(self._monotonic(), step.method)
        self._port.end_processes(gpu, step.instance, force=False, only=step.only)
        return True

    def _stop(self, gpu: str, step: EndProcesses, why: str) -> bool:
        """Ends programs that could not be suspended."""
        text = f"it was stopped, not suspended: {why}"
        log.warning("%s: %s", step.allocation, text)
        self._records.set_note([step.allocation], text)
        self._endings[step.allocation] = _Ending(self._monotonic(), "stop")
        self._port.end_processes(gpu, step.instance, force=False, only=step.only)
        return True
