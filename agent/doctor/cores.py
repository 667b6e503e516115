"""Checks of the cores that bookings get without a GPU."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from agent.doctor.checks import Check, Finding, found, said
from agent.host.machine import host_read
from agent.ports.host_cores import NUMA_NODES, core_topology_read, cores_parse, cores_text

_NAME = "host cores"


@dataclasses.dataclass(frozen=True, slots=True)
class CoreExamination:
    """The cores and memory that the agent would give."""

    cores: str
    memory_mb: int
    nodes: Path = NUMA_NODES

    def there(self) -> Finding:
        """Whether the host has these cores."""
        online: Mapping[int, tuple[int, ...]] = core_topology_read({}, self.nodes).cores
        known = {core for cores in online.values() for core in cores}
        missing = [core for core in cores_parse(self.cores) if core not in known]
        if not known:
            return Finding("unknown", said("cores_unknown"))
        if missing:
            return Finding("fail", said("cores_missing", cores=cores_text(missing)), said("fix_cores"))
        return Finding("ok", said("cores", cores=self.cores))

    def memory(self) -> Finding:
        """Whether the host has so much memory."""
        whole = host_read("").memory_mb
        seen = said("cores_memory", mb=self.memory_mb, whole=whole)
        return found(good=self.memory_mb < whole, seen=seen, do=said("fix_cores"), otherwise="fail")


def core_checks(cores: str, memory_mb: int) -> list[Check]:
    """Returns the checks in the order of the report."""
    examination = CoreExamination(cores, memory_mb)
    return [
        Check("host cores", examination.there, _NAME),
        Check("memory of the cores", examination.memory, _NAME),
    ]
