"""The programs of a simulated node, and what freezes them."""

from allocation.agent.programs import Whose
from allocation.agent.simulated_hardware import Hardware, HardwareFault


class SimulatedPrograms:
    """See programs.Programs. A program's label is the booking or allocation it belongs to."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware
        self.warned: list[tuple[int, int]] = []

    def birth(self, pid: int) -> str | None:
        found = self._hardware.program(pid)
        return None if found is None else f"{found.label}/{found.starts}"

    def whose(self, pid: int) -> Whose:
        found = self._hardware.program(pid)
        return Whose() if found is None else Whose(frozenset({found.label}))

    def warn(self, pid: int, number: int) -> bool:
        there = self._hardware.program(pid) is not None
        if there:
            self.warned.append((pid, number))
        return there

    def kill(self, pid: int, birth: str) -> None:
        if self.birth(pid) == birth:
            self._hardware.process_signal(pid, force=True)


class SimulatedSuspender:
    """See suspender.Suspender. Done at once."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware
        self._results: dict[int, str] = {}

    def room_mb(self) -> int | None:
        return None

    def toggle(self, pid: int) -> None:
        try:
            self._hardware.process_toggle(pid)
        except HardwareFault as fault:
            self._results[pid] = fault.symbol
        else:
            self._results[pid] = ""

    def busy(self, pid: int) -> bool:
        return False

    def result(self, pid: int) -> str | None:
        return self._results.get(pid)
