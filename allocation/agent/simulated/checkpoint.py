"""A simulated `cuda-checkpoint`, which answers as the simulated driver's branch does.

Options, states and errors are those of NVIDIA's tool and documentation, and of public reports (CRIU
issue 2953, gVisor, cuda-checkpoint issue 44).
"""

from collections.abc import Sequence

from allocation.agent.ports.checkpoint_tool import Answer, Call, FinishedCall
from allocation.agent.ports.suspender import CudaCheckpoint
from allocation.agent.simulated.hardware import Hardware
from allocation.agent.simulated.models import HardwareFault
from allocation.agent.simulated.programs import program, program_change

_OLDEST = 550
_ACTIONS = 555
_ILLEGAL_STATE = "the operation cannot be performed in the present state"
# What each action needs, and what it leaves: whether the program is locked, whether it is frozen.
_ACTIONS_FROM = {
    "lock": ((False, False), (True, False)),
    "checkpoint": ((True, False), (True, True)),
    "restore": ((True, True), (True, False)),
    "unlock": ((True, False), (False, False)),
}
NOT_READY = "device not ready"
UNSUPPORTED = "OS call failed or operation not supported on this OS"


class SimulatedTool:
    """See suspender.Tool. Done at once. `refuses` has what is said of an action that fails, and
    `calls` has what was called for whom."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware
        self._major = int(hardware.driver.version.partition(".")[0])
        self.refuses: dict[str, str] = {}
        self.calls: list[tuple[int, str]] = []

    def start(self, pid: int, arguments: Sequence[str]) -> Call:
        """Begins a call about a program."""
        action = arguments[1] if arguments[0] == "--action" else arguments[0]
        self.calls.append((pid, action))
        try:
            said = self._done(pid, action)
        except HardwareFault as fault:
            return FinishedCall(Answer.ended(arguments, 1, fault.symbol))
        return FinishedCall(Answer.ended(arguments, 0, said))

    def is_running(self, pid: int) -> bool:
        """Never: each call is done at once."""
        return False

    def _done(self, pid: int, action: str) -> str:
        if self._major < _OLDEST:
            raise HardwareFault("Insufficient driver")
        if self._major < _ACTIONS and action != "--toggle":
            raise HardwareFault("Unrecognized option")
        found = program(self._hardware, pid)
        if found is None or found.kind == "file":
            raise HardwareFault(UNSUPPORTED)
        if action in self.refuses:
            raise HardwareFault(self.refuses[action])
        if action == "--get-state":
            return "checkpointed" if found.frozen else "locked" if found.locked else "running"
        locked, frozen = _after(action, locked=found.locked, frozen=found.frozen)
        program_change(self._hardware, pid, locked=locked, frozen=frozen)
        return ""


def _after(action: str, *, locked: bool, frozen: bool) -> tuple[bool, bool]:
    """Returns whether a program is locked and frozen after an action. Raises HardwareFault."""
    if action == "--toggle":
        needs, after = (frozen, frozen), (not frozen, not frozen)
    else:
        needs, after = _ACTIONS_FROM[action]
    if (locked, frozen) != needs:
        raise HardwareFault(_ILLEGAL_STATE)
    return after


class SimulatedSuspender(CudaCheckpoint):
    """See suspender.Suspender."""

    def __init__(self, hardware: Hardware) -> None:
        self.tool = SimulatedTool(hardware)
        super().__init__(self.tool, hardware.driver.version)

    def available_mb(self) -> int | None:
        return None
