"""Applies plans: reads a GPU, plans, executes the steps and returns the outcome."""

import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping

from agent.act.endings import Endings
from agent.act.step_times import StepTimes
from agent.plan import reconcile, steps
from agent.plan.pauses import ProgramsSeen
from agent.plan.reconcile import Plan, Problem, State
from agent.plan.targets import GpuTarget
from agent.ports.gpu import PERMANENT, GpuError, GpuPort, RetryLater, Truth
from agent.ports.handover import Handover
from agent.state.records import Records
from agent.state.store import StoreError
from wire import Mode

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 2.0
LONGEST_PAUSE_S = 60.0
STUCK_S = 30.0


@dataclasses.dataclass(frozen=True, slots=True)
class Failed:
    """A mode change that fails since `since`; the next try is at `next_try`."""

    mode: Mode
    text: str
    since: float
    next_try: float
    pause: float


class ModeChanges:
    """Failed mode changes by GPU. Retries back off, because each failed reset disturbs the node,
    and after `STUCK_S` the GPU is reported as stuck. `steady` never jumps."""

    def __init__(self, steady: Callable[[], float]) -> None:
        self._steady = steady
        self._failed: dict[str, Failed] = {}

    def make(self, gpu: str, mode: Mode, port: GpuPort) -> None:
        """Changes the mode. Raises GpuError, or RetryLater before the next try is due."""
        failed = self._failed.get(gpu)
        if failed is not None and failed.mode == mode and self._steady() < failed.next_try:
            raise RetryLater(failed.text)
        try:
            port.set_mode(gpu, mode)
        except GpuError as error:
            # A late call has not failed; a later turn sees its effect.
            if error.fault != "hangs":
                self._note(gpu, mode, error)
            raise

    def _note(self, gpu: str, mode: Mode, error: GpuError) -> None:
        now, before = self._steady(), self._failed.get(gpu)
        if before is None or before.mode != mode:
            self._failed[gpu] = Failed(mode, str(error), now, now + FIRST_PAUSE_S, FIRST_PAUSE_S)
            return
        pause = min(2 * before.pause, LONGEST_PAUSE_S)
        self._failed[gpu] = Failed(mode, str(error), before.since, now + pause, pause)

    def blocked(self, gpu: str, mode: Mode, text: str) -> None:
        """Records that something on the GPU prevents the change."""
        now, before = self._steady(), self._failed.get(gpu)
        since = now if before is None or before.mode != mode else before.since
        self._failed[gpu] = Failed(mode, text, since, now, FIRST_PAUSE_S)

    def done(self, gpu: str) -> None:
        """Forgets failures: the GPU has its mode."""
        self._failed.pop(gpu, None)

    def stuck(self, gpu: str) -> bool:
        """Returns whether the change has failed for long."""
        failed = self._failed.get(gpu)
        return failed is not None and self._steady() - failed.since >= STUCK_S


# One turn plans and executes up to this often: ending, killing, destroying, switching, creating,
# handing over and verifying may each need a plan of their own.
_ROUNDS = 12


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """One GPU after its turn. `truth` is None if the driver did not answer. `stuck`: its mode
    change has failed for long."""

    gpu: str
    truth: Truth | None
    states: dict[str, State]
    error: str | None
    stuck: bool = False


class Applier:
    """Carries out the plan of one GPU in each turn; keeps failures between turns.

    A failure that is permanent is not tried again before a new document.
    """

    def __init__(
        self,
        *,
        port: GpuPort,
        handover: Handover,
        records: Records,
        endings: Endings,
        look: Callable[[GpuTarget], ProgramsSeen],
        times: StepTimes,
    ) -> None:
        """`look` returns the programs of a target's allocations; it may raise GpuError."""
        self._port = port
        self._handover = handover
        self._records = records
        self._endings = endings
        self._look = look
        self._clock = times.clock.wall
        self._times = times
        self._changes = ModeChanges(times.clock.steady)
        self._lasting: dict[str, Problem] = {}

    def retry_all(self) -> None:
        """Retries permanent failures, for a new document."""
        self._lasting.clear()

    def turn(self, target: GpuTarget) -> Outcome:
        """Brings one GPU as close to its target as possible now."""
        problems = dict(self._lasting)
        try:
            for _ in range(_ROUNDS):
                # Before the truth: a program that is being resumed is not on the device yet.
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
            self._proofs_withdraw(target, plan, problems[target.gpu])
        problem = problems.get(target.gpu)
        text = problem.text if problem else plan.error
        self._note_mode(target, truth, plan)
        return Outcome(target.gpu, truth, plan.states, text, self._changes.stuck(target.gpu))

    def _note_mode(self, target: GpuTarget, truth: Truth, plan: Plan) -> None:
        if target.mode is None or reconcile.hardware_mode(target.mode) == truth.mode:
            self._changes.done(target.gpu)
        elif plan.error is not None:
            self._changes.blocked(target.gpu, reconcile.hardware_mode(target.mode), plan.error)

    def _proofs_withdraw(self, target: GpuTarget, plan: Plan, problem: Problem) -> None:
        """Withdraws proofs of emptiness that are not on disk: a restart would lose them."""
        for task in target.tasks:
            state = plan.states.get(task.allocation.id)
            if state is not None and state.state == "empty" and not task.emptied:
                plan.states[task.allocation.id] = State("ending", error=problem.text)

    def _note_emptied(self, target: GpuTarget, plan: Plan) -> GpuTarget:
        """Records the allocations that are proven empty: their places are free from now on."""
        states = plan.states
        gone = {
            task.allocation.id
            for task in target.tasks
            if not task.emptied and states[task.allocation.id].state == "empty"
        }
        if not gone:
            return target
        self._records.mark_emptied(gone)
        self._endings.forget(gone)
        tasks = (dataclasses.replace(t, emptied=True) if t.allocation.id in gone else t for t in target.tasks)
        return dataclasses.replace(target, tasks=tuple(tasks))

    def _carry_out(self, target: GpuTarget, plan: Plan, problems: dict[str, Problem]) -> bool:
        """Executes the steps; returns whether anything was done and a new plan is needed."""
        moved = False
        handed = [s.allocation.id for s in plan.steps if isinstance(s, steps.HandOver)]
        if handed:
            self._records.mark_given(handed)
        for step in plan.steps:
            name = getattr(step, "allocation", None)
            name = getattr(name, "id", name) or target.gpu
            if name in problems:
                continue
            try:
                with self._times.measured(target, step):
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
        """Returns the outcome of a GPU that does not answer: nothing on it is proven empty.

        Devices stay handed over unless the GPU is lost. Programs of allocations that are over are
        ended without the driver.
        """
        states: dict[str, State] = {}
        devices = self._handover.devices()
        for task in target.tasks:
            name = task.allocation.id
            if task.emptied:
                states[name] = State("empty")
            elif task.ending:
                wrong = self._endings.end_without_driver(task, self._clock()) if task.given else None
                states[name] = State("ending", error=wrong or str(error))
            elif error.fault == "lost":
                states[name] = State("failed", error=str(error))
            else:
                device = devices.get(name)
                states[name] = State("ready" if device else "preparing", device, str(error))
        return Outcome(target.gpu, None, states, str(error))


def ended_mark_failed(outcomes: Iterable[Outcome], ended: Mapping[str, str]) -> None:
    """Marks allocations that are to run as failed whose job of another scheduler has `ended`."""
    for outcome in outcomes:
        for name in ended.keys() & outcome.states.keys():
            if outcome.states[name].state in ("preparing", "ready"):
                outcome.states[name] = State("failed", error=ended[name])
