"""Memory errors that AMD's driver counts, and the users of processes."""

from collections.abc import Callable, Collection

from agent.amd.library import attempt, number
from agent.amd.processors import Processors
from agent.ports.gpu import FoundError

_UNCORRECTABLE_BITS = 2


class AmdWatch:
    """See gpu.WatchPort. The driver reports no events, so its counts of errors are compared."""

    def __init__(self, processors: Processors, process_user: Callable[[int], str | None]) -> None:
        self._processors = processors
        self._process_user = process_user
        self._counts: dict[str, int] = {}

    def close(self) -> None:
        """Does nothing: the port closes the library."""

    def errors(self) -> tuple[FoundError, ...]:
        """Returns an error for each GPU whose uncorrectable errors have become more."""
        smi = self._processors.smi
        found = []
        with self._processors.lock:
            for gpu in self._processors.all():
                counts = attempt(smi, smi.amdsmi_get_gpu_total_ecc_count, gpu.first) or {}
                count = number(counts.get("uncorrectable_count"))
                if count is None:
                    continue
                if count > self._counts.get(gpu.uuid, count):
                    found.append(FoundError(gpu.uuid, "ecc", _UNCORRECTABLE_BITS, None))
                self._counts[gpu.uuid] = count
        return tuple(found)

    def users(self, pids: Collection[int]) -> tuple[str, ...]:
        """Returns the users of these processes, by name."""
        return tuple(sorted({user for pid in pids if (user := self._process_user(pid))}))

    def hanging(self) -> tuple[str, ...]:
        """Returns nothing: a call that hangs does not return here. See TimeoutWatch."""
        return ()
