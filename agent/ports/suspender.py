"""The port to suspend programs: device memory moves to the host, and the device is released.

NVIDIA's `cuda-checkpoint` does that in two steps, and in two forms. From driver 570 on, `--action
lock` makes a program's CUDA calls wait, with a limit, and `--action checkpoint` copies its memory;
`restore` and `unlock` are the way back. Drivers 550 to 569 have one `--toggle` for both ways.
"""

import dataclasses
import logging
import re
import shutil
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from agent.ports.checkpoint_tool import Answer, Call, CheckpointTool
from agent.ports.handover import booking_full_name
from agent.ports.programs import Programs
from wire import DesiredAllocation

log = logging.getLogger(__name__)

LIMIT_S = 120.0
LOCK_S = 30.0
# NVIDIA's developers advise against killing a call, so each gets longer than it should need.
_SHORT_S = 40.0
_OLDEST = 550
_ACTIONS = 570
_MEMORY = Path("/proc/meminfo")


Program = tuple[int, str]
"""Process id and birth: see programs.Programs."""


@dataclasses.dataclass(frozen=True, slots=True)
class Suspended:
    """The record of an allocation's suspended programs on a GPU, and of the allocation that resumes
    them."""

    allocation: str
    booking: str
    gpu: str
    programs: tuple[Program, ...]
    resumed_by: str | None = None

    @classmethod
    def of(cls, allocation: DesiredAllocation, gpu: str, programs: tuple[Program, ...]) -> "Suspended":
        return cls(allocation.id, booking_full_name(allocation), gpu, programs)

    def with_resume(self, allocation: str) -> "Suspended":
        return dataclasses.replace(self, resumed_by=allocation)


def living(programs: Programs | None, pids: Iterable[int]) -> frozenset[Program]:
    """Returns those of the processes that exist."""
    if programs is None:
        return frozenset()
    births = ((pid, programs.birth(pid)) for pid in pids)
    return frozenset((pid, birth) for pid, birth in births if birth is not None)


class Suspender(Protocol):
    """By process id; every call returns at once."""

    @property
    def refusal(self) -> str | None:
        """Why no program can be suspended on this node; None if it is possible."""

    def available_mb(self) -> int | None:
        """Returns the free host memory in MiB; None when unknown."""

    def suspend(self, pid: int) -> None:
        """Begins to suspend a program on a device, or continues with one that is half suspended.
        Does nothing while an operation is in progress for it."""

    def resume(self, pid: int, *, there: bool) -> None:
        """Begins to resume a program that is wholly or partly suspended; a running one is
        unchanged. `there`: the driver lists it on a device."""

    def busy(self, pid: int) -> bool:
        """Returns whether an operation of this or an earlier process is in progress."""

    def result(self, pid: int) -> str | None:
        """Returns the failure of this process's last operation, "" after success; None before
        that."""

    def may_be_locked(self, pid: int) -> bool:
        """Whether CUDA calls of the program may be locked by what this life began."""


@dataclasses.dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of the tool about a program, and its limit in seconds."""

    arguments: tuple[str, ...]
    limit: float = LIMIT_S


_STATE = ToolCall(("--get-state",), _SHORT_S)
_LOCK = ToolCall(("--action", "lock", "--timeout", f"{LOCK_S * 1000:.0f}"), LOCK_S + _SHORT_S)
_CHECKPOINT = ToolCall(("--action", "checkpoint"))
_RESTORE = ToolCall(("--action", "restore"))
_UNLOCK = ToolCall(("--action", "unlock"), _SHORT_S)
_TOGGLE = ToolCall(("--toggle",))

Steps = Generator[ToolCall, Answer, str]
"""Yields calls, receives their answers, and returns the problem."""


class Tool(Protocol):
    """`cuda-checkpoint` of a node."""

    def start(self, pid: int, arguments: Sequence[str]) -> Call:
        """Begins a call about a program."""

    def is_running(self, pid: int) -> bool:
        """Whether a call about it is under way, begun by this life of the agent or an earlier."""


@dataclasses.dataclass(slots=True)
class _Job:
    steps: Steps
    ask: ToolCall
    call: Call
    until: float
    killed: bool = False


class CudaCheckpoint:
    """See Suspender. Each job first reads the program's state, so it can continue the work of a
    killed agent."""

    def __init__(self, tool: Tool, driver: str, steady: Callable[[], float] = time.monotonic) -> None:
        """`driver` is the driver's version."""
        self._tool = tool
        self._driver = driver
        self._steady = steady
        found = re.match(r"\d+", driver)
        self._major = int(found[0]) if found else 0
        self._jobs: dict[int, _Job] = {}
        self._results: dict[int, str] = {}
        # Programs for which a step was begun that may lock CUDA, and that were not seen to run
        # since.
        self._may_be_locked: set[int] = set()

    @property
    def refusal(self) -> str | None:
        """Why no program can be frozen with this driver."""
        if self._major >= _OLDEST:
            return None
        return f"driver {self._driver} can't suspend programs, {_OLDEST} or later can"

    def available_mb(self) -> int | None:
        for line in _MEMORY.read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "MemAvailable":
                return int(value.split()[0]) >> 10
        return None

    def suspend(self, pid: int) -> None:
        self._begin(pid, self._suspend_calls(pid))

    def resume(self, pid: int, *, there: bool) -> None:
        self._begin(pid, self._resume_calls(pid, there=there))

    def busy(self, pid: int) -> bool:
        self._drive(pid)
        return pid in self._jobs or self._tool.is_running(pid)

    def result(self, pid: int) -> str | None:
        self._drive(pid)
        return None if pid in self._jobs else self._results.get(pid)

    def may_be_locked(self, pid: int) -> bool:
        """Whether CUDA calls of the program may be locked by what this life began."""
        return pid in self._may_be_locked

    # The steps.

    def _suspend_calls(self, pid: int) -> Steps:
        answer = yield _STATE
        state = answer.state
        if state == "checkpointed":
            return ""
        if self._major < _ACTIONS and state in (None, "running") and not answer.late:
            # Without a state, a program that the driver lists on a device runs.
            self._may_be_locked.add(pid)
            return (yield _TOGGLE).failure
        if self._major < _ACTIONS or state not in ("running", "locked"):
            return answer.failure or f"CUDA of the program is {state}"
        self._may_be_locked.add(pid)
        if state == "running":
            locked = yield _LOCK
            if locked.failure:
                return locked.failure
        return (yield _CHECKPOINT).failure

    def _resume_calls(self, pid: int, *, there: bool) -> Steps:
        answer = yield _STATE
        state = answer.state
        if state == "running":
            failure = ""
        elif state == "locked":
            failure = (yield _UNLOCK).failure
        elif state == "checkpointed":
            failure = yield from self._restore_calls()
        elif state is None and self._major < _ACTIONS and not answer.late:
            if there:
                # Whether it is locked is unknown.
                return ""
            failure = (yield _TOGGLE).failure
        else:
            return answer.failure or f"CUDA of the program is {state}"
        if not failure:
            self._may_be_locked.discard(pid)
        return failure

    def _restore_calls(self) -> Steps:
        if self._major < _ACTIONS:
            return (yield _TOGGLE).failure
        restored = yield _RESTORE
        return restored.failure or (yield _UNLOCK).failure

    # Making them.

    def _begin(self, pid: int, steps: Steps) -> None:
        if self.busy(pid):
            return
        self._results.pop(pid, None)
        self._start(pid, steps, next(steps))
        self._drive(pid)

    def _start(self, pid: int, steps: Steps, ask: ToolCall) -> None:
        call = self._tool.start(pid, ask.arguments)
        self._jobs[pid] = _Job(steps, ask, call, self._steady() + ask.limit)

    def _drive(self, pid: int) -> None:
        """Continues as far as there are answers."""
        while (job := self._jobs.get(pid)) is not None:
            answer = self._answer(job)
            if answer is None:
                return
            try:
                ask = job.steps.send(answer)
            except StopIteration as done:
                self._results[pid] = done.value
                del self._jobs[pid]
            else:
                self._start(pid, job.steps, ask)

    def _answer(self, job: _Job) -> Answer | None:
        answer = job.call.poll()
        if answer is None:
            # A call that the driver holds may take its time to die: until then it is under way.
            if self._steady() >= job.until and not job.killed:
                job.call.kill()
                job.killed = True
            return None
        if job.killed:
            what = " ".join(job.ask.arguments)
            return Answer(None, "", f"cuda-checkpoint {what} took longer than {job.ask.limit:g} s")
        return answer


def cuda_checkpoint_find(folder: Path, driver: str) -> CudaCheckpoint | None:
    """`cuda-checkpoint` of this node, if there is one. Raises OSError."""
    program = shutil.which("cuda-checkpoint")
    if program is None:
        log.info("no cuda-checkpoint here: bookings are stopped instead of suspended")
        return None
    found = CudaCheckpoint(CheckpointTool(Path(program), folder), driver)
    if found.refusal is not None:
        log.info("%s: bookings are stopped instead of suspended", found.refusal)
    return found
