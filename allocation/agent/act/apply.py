"""Carries plans out: reads the truth, plans, does the steps, and says what became of them."""

import dataclasses
import logging
from collections.abc import Callable

from allocation.agent.act.endings import Endings
from allocation.agent.act.mode_changes import ModeChanges, RetryLater
from allocation.agent.plan import reconcile, steps
from allocation.agent.plan.pauses import ProgramsSeen
from allocation.agent.plan.reconcile import GpuTarget, Plan, Problem, State
from allocation.agent.ports.clock import Clock
from allocation.agent.ports.gpu import PERMANENT, GpuError, GpuPort, Truth
from allocation.agent.ports.handover import Handover
from allocation.agent.state.records import Records
from allocation.agent.state.store import StoreError

log = logging.getLogger(__name__)

# End, kill, destroy, switch, make, hand over, look: each may need a round of its own.
_ROUNDS = 12


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """One GPU after its turn. `truth` is None when the driver could not be asked. `stuck`: it has
    been kept from its mode for long."""

    gpu: str
    truth: Truth | None
    states: dict[str, State]
    error: str | None
    stuck: bool = False


class Applier:
    """Keeps what must be known between turns: who was asked to end, and what failed for good."""

    def __init__(
        self,
        *,
        port: GpuPort,
        handover: Handover,
        records: Records,
        endings: Endings,
        look: Callable[[GpuTarget], ProgramsSeen],
        clock: Clock,
    ) -> None:
        """`look` tells of the programs that a wish's allocations have now; may raise GpuError."""
        self._port = port
        self._handover = handover
        self._records = records
        self._endings = endings
        self._look = look
        self._clock = clock.wall
        self._changes = ModeChanges(clock.steady)
        self._lasting: dict[str, Problem] = {}

    def retry_all(self) -> None:
        """A new document gives everything that failed for good another chance."""
        self._lasting.clear()

    def turn(self, target: GpuTarget) -> Outcome:
        """Brings one GPU as near to its wish as it goes now."""
        problems = dict(self._lasting)
        try:
            for _ in range(_ROUNDS):
                # Before the truth: what is being woken is not on the device yet.
                seen = self._look(target)
                truth = self._port.truth(target.gpu)
                given = self._handover.devices()
                plan = reconcile.plan(target, truth, given, problems, seen)
                target = self._note_emptied(target, plan)
                self._endings.registry.look(target, truth, seen)
                if not self._carry_out(target, plan, problems):
                    break
        except GpuError as lost:
            return self._unreachable(target, lost)
        except StoreError as unsaved:
            problems[target.gpu] = Problem(f"on the node: {unsaved}")
            self._nvlinks_unreported(target, plan, problems[target.gpu])
        problem = problems.get(target.gpu)
        text = problem.text if problem else plan.error
        self._note_mode(target, truth, plan)
        return Outcome(target.gpu, truth, plan.states, text, self._changes.stuck(target.gpu))

    def _note_mode(self, target: GpuTarget, truth: Truth, plan: Plan) -> None:
        if target.mode is None or reconcile.hardware_mode(target.mode) == truth.mode:
            self._changes.done(target.gpu)
        elif plan.error is not None:
            self._changes.blocked(target.gpu, reconcile.hardware_mode(target.mode), plan.error)

    def _nvlinks_unreported(self, target: GpuTarget, plan: Plan, problem: Problem) -> None:
        """A proof that a restart would forget is not told."""
        for task in target.tasks:
            state = plan.states.get(task.allocation.id)
            if state is not None and state.state == "empty" and not task.emptied:
                plan.states[task.allocation.id] = State("ending", error=problem.text)

    def _note_emptied(self, target: GpuTarget, plan: Plan) -> GpuTarget:
        """From now on the place is free for the next one, in this turn and after a crash."""
        states = plan.states
        gone = {
            task.allocation.id
            for task in target.tasks
            if not task.emptied and states[task.allocation.id].state == "empty"
        }
        if not gone:
            return target
        self._records.emptied(gone)
        self._endings.forget(gone)
        tasks = (
            dataclasses.replace(t, emptied=True) if t.allocation.id in gone else t
            for t in target.tasks
        )
        return dataclasses.replace(target, tasks=tuple(tasks))

    def _carry_out(self, target: GpuTarget, plan: Plan, problems: dict[str, Problem]) -> bool:
        """Returns whether anything was done, so that it is worth looking again."""
        moved = False
        handed = [s.allocation.id for s in plan.steps if isinstance(s, steps.HandOver)]
        if handed:
            self._records.given(handed)
        for step in plan.steps:
            name = getattr(step, "allocation", None)
            name = getattr(name, "id", name) or target.gpu
            if name in problems:
                continue
            try:
                moved = self._step(target.gpu, step) or moved
            except RetryLater as later:
                problems[name] = Problem(str(later))
            except GpuError as refused:
                problem = Problem(str(refused), lasting=refused.fault in PERMANENT)
                problems[name] = problem
                if problem.lasting and name != target.gpu:
                    self._lasting[name] = problem
                log.warning("%s for %s failed: %s", type(step).__name__, name, refused)
                moved = True
            except OSError as failed:
                problems[name] = Problem(f"on the node: {failed}")
                log.warning("%s for %s failed: %s", type(step).__name__, name, failed)
                moved = True
        return moved

    def _step(self, gpu: str, step: steps.Step) -> bool:
        match step:
            case steps.TakeBack(allocation):
                self._handover.take(allocation)
            case steps.EndProcesses():
                return self._endings.end(gpu, step)
            case steps.Destroy(instance):
                self._port.destroy(gpu, instance)
            case steps.SetMode(mode):
                self._changes.make(gpu, mode, self._port)
            case steps.Create(_, place):
                self._port.create(gpu, place)
            case steps.HandOver(allocation, device):
                self._handover.give(allocation, device, gpu, self._clock())
        return True

    def _unreachable(self, target: GpuTarget, error: GpuError) -> Outcome:
        """Nothing is proven about a GPU that does not answer, above all not that it is empty.

        What was given stays given unless the GPU itself is gone: a driver may answer again. What
        is over is over all the same: its programs are ended without the driver's help.
        """
        states: dict[str, State] = {}
        devices = self._handover.devices()
        for task in target.tasks:
            name = task.allocation.id
            if task.emptied:
                states[name] = State("empty")
            elif task.ending:
                wrong = (
                    self._endings.end_without_driver(task, self._clock()) if task.given else None
                )
                states[name] = State("ending", error=wrong or str(error))
            elif error.fault == "lost":
                states[name] = State("failed", error=str(error))
            else:
                device = devices.get(name)
                states[name] = State("ready" if device else "preparing", device, str(error))
        return Outcome(target.gpu, None, states, str(error))
