"""Ends the programs of allocations whose time is over, each in its way."""

import dataclasses
import logging
from collections.abc import Callable, Collection

from allocation.agent.act.process_registry import ProcessRegistry
from allocation.agent.act.suspensions import Suspensions
from allocation.agent.plan.pauses import pause_method
from allocation.agent.plan.reconcile import Task
from allocation.agent.plan.steps import EndProcesses
from allocation.agent.ports.gpu import GpuPort
from allocation.agent.ports.programs import Programs
from allocation.agent.ports.suspender import LIMIT_S
from allocation.agent.state.records import Records
from allocation.agent.state.store import StoreError
from allocation.wire import PauseMethod

log = logging.getLogger(__name__)

KILL_AFTER_S = 10.0
# Who was told of a pause had the time until then to save: the device is wanted now.
KILL_AFTER_NOTICE_S = 3.0


@dataclasses.dataclass(slots=True)
class _Ending:
    """`since` is on the steady clock. `undo` is set when what is frozen is woken first, to be ended
    then: why it could not be suspended, empty if it never was to be."""

    since: float
    method: PauseMethod | None
    killed: bool = False
    undo: str | None = None

    @property
    def grace_s(self) -> float:
        """Seconds from asking to killing."""
        return {None: KILL_AFTER_S, "stop": KILL_AFTER_NOTICE_S}.get(self.method, 0.0)

    @property
    def watched_s(self) -> float:
        """Seconds for which it is looked at often."""
        return 2 * (LIMIT_S if self.method == "suspend" else KILL_AFTER_S)


class Endings:
    """Remembers between turns who was asked to end, and when."""

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
        """True while something that was asked to end may do so at any moment."""
        now = self._monotonic()
        recent = any(now - e.since < e.watched_s for e in self._endings.values())
        return recent or bool(self._suspensions.busy())

    def forget(self, allocations: Collection[str]) -> None:
        """Nothing of them is left on their devices."""
        for name in allocations:
            ending = self._endings.pop(name, None)
            if ending is not None and ending.undo is not None:
                self._suspensions.abandon(name)
        self._suspensions.emptied(allocations)

    def retain(self, ending: Collection[str]) -> None:
        """Forgets those that are not to end any more: only `ending` are."""
        self._endings = {n: each for n, each in self._endings.items() if n in ending}

    def end(self, gpu: str, step: EndProcesses) -> bool:
        """Asks once; when the time for it is over, kills whatever is there in each turn.

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
        """As `end`, where the driver does not tell who is on the device: for those who were there
        when it last told. What can't be told can't be frozen either. Returns what went wrong."""
        name = task.allocation.id
        there = self.registry.there(name, self._records.held, now)
        method, _ = pause_method(task.allocation.notice, task.mode, gang=task.gang)
        method = "stop" if method == "suspend" else method
        ending = self._endings.get(name)
        first = ending is None or ending.method == "suspend"
        if ending is None or first:
            ending = self._endings[name] = _Ending(self._monotonic(), method)
        force = self._monotonic() - ending.since >= ending.grace_s
        # What may be locked can't end in order, and can't be unlocked without the driver.
        ask = first and not self._suspensions.may_be_suspended(name)
        try:
            if ask or force:
                self.registry.end(there, force=force)
        except PermissionError as error:
            return f"the programs of {task.allocation.booking} can't be ended: {error}"
        return None

    def _begin(self, gpu: str, step: EndProcesses) -> bool:
        refusal = step.note
        if step.method == "suspend":
            refusal = self._suspensions.refusal(step.allocation)
        ending = self._endings[step.allocation] = _Ending(self._monotonic(), step.method)
        is_frozen = step.method == "suspend" and refusal is None
        if not is_frozen and self._suspensions.may_be_suspended(step.allocation):
            ending.undo = refusal or ""
            return self._undo(gpu, step, ending)
        if refusal is not None:
            return self._stop(gpu, step, refusal)
        if is_frozen:
            return self._suspend(gpu, step, ending)
        self._port.end_processes(gpu, step.instance, force=False, only=step.only)
        return True

    def _kill(self, gpu: str, step: EndProcesses, ending: _Ending) -> bool:
        first, ending.killed = not ending.killed, True
        self._port.end_processes(gpu, step.instance, force=True, only=step.only)
        return first

    def _suspend(self, gpu: str, step: EndProcesses, ending: _Ending) -> bool:
        """Here nothing is under way: what is on the device is new, or could not be frozen."""
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
        """Wakes what is frozen or half frozen, then ends it: a program whose CUDA calls are locked
        hears TERM and can't save."""
        stuck = self._suspensions.undo(step.allocation)
        if stuck is None:
            return False
        if ending.undo:
            return self._stop(gpu, step, f"{ending.undo}; {stuck}" if stuck else ending.undo)
        if stuck:
            log.warning("%s: %s", step.allocation, stuck)
            self._records.noted([step.allocation], stuck)
        self._endings[step.allocation] = _Ending(self._monotonic(), step.method)
        self._port.end_processes(gpu, step.instance, force=False, only=step.only)
        return True

    def _stop(self, gpu: str, step: EndProcesses, why: str) -> bool:
        """Ends what could not be suspended."""
        text = f"it was stopped, not suspended: {why}"
        log.warning("%s: %s", step.allocation, text)
        self._records.noted([step.allocation], text)
        self._endings[step.allocation] = _Ending(self._monotonic(), "stop")
        self._port.end_processes(gpu, step.instance, force=False, only=step.only)
        return True
