"""What Slurm's commands print, from 22.05 on. Pure."""

import dataclasses
import re
from collections.abc import Iterator
from datetime import datetime

JOBS_FORMAT = "%A|%T|%u|%N|%n|%v|%b|%S|%V|%r|%j"
"""For `squeue --format`. The name comes last: people choose it, and it may hold anything."""
_OVER = frozenset(
    (
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    )
)
_WAITS = frozenset(("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"))
_FIELD = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z/:]*)=")
_GPUS = re.compile(r"(?:^|,|gres:|gres/)gpu(?:[:/]([A-Za-z][^:,()=]*))?[:=](\d+)")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_DAMAGED = frozenset(("DOWN", "FAIL", "FAILING", "POWERED_DOWN", "FUTURE"))
_CLOSED = frozenset(
    (
        "BLOCKED",
        "DRAIN",
        "DRAINED",
        "DRAINING",
        "MAINT",
        "NOT_RESPONDING",
        "POWERING_DOWN",
        "POWER_DOWN",
        "REBOOT_ISSUED",
        "REBOOT_REQUESTED",
    )
)


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """One job. `gpus` is their number on each of its nodes, None if it asked for them in another
    way or for none. `started` is in Unix seconds, None before its start."""

    id: int
    state: str
    user: str
    nodes: frozenset[str]
    reservation: str
    gpus: int | None
    started: int | None
    submitted: str
    reason: str
    name: str

    @property
    def is_over(self) -> bool:
        """Whether it has left its nodes. A job that is COMPLETING has not."""
        return self.state in _OVER

    @property
    def is_waiting(self) -> bool:
        """Whether it has not started."""
        return self.state in _WAITS

    @property
    def is_held(self) -> bool:
        """Whether it waits for a release."""
        return self.is_waiting and self.reason.startswith("JobHeld")


@dataclasses.dataclass(frozen=True, slots=True)
class SlurmNode:
    """One node. `types` has the type of each of its GPUs, empty where they have none. `rack` is that of
    its feature `rack=…`, empty without one."""

    name: str
    states: frozenset[str]
    reason: str
    types: tuple[str, ...]
    used: int
    cores: int
    memory_mb: int
    boot: str
    rack: str = ""

    @property
    def damage(self) -> str | None:
        """Says that the node is lost: what ran there has ended."""
        return self._said(_DAMAGED)

    @property
    def closure(self) -> str | None:
        """Says that Slurm starts nothing new there; what runs there continues."""
        return self._said(_CLOSED)

    def _said(self, states: frozenset[str]) -> str | None:
        found = sorted(self.states.intersection(states))
        if not found:
            return None
        why = f" ({self.reason})" if self.reason else ""
        return f"Slurm says that {self.name} is {'+'.join(found)}{why}"


def jobs_parse(text: str) -> Iterator[Job]:
    """Yields the jobs of `squeue --format JOBS_FORMAT`. Raises ValueError."""
    for line in text.splitlines():
        number, state, user, nodes, asked, reservation, gres, started, submitted, reason, name = line.split(
            "|", 10
        )
        found = gpus_of(gres)
        yield Job(
            id=int(number),
            state=state,
            user=user,
            nodes=frozenset(hosts_expand(nodes) or hosts_expand(asked)),
            reservation="" if reservation == "(null)" else reservation,
            gpus=len(found) if found else None,
            started=_seconds(started),
            submitted=submitted,
            reason=reason,
            name=name,
        )


def nodes_parse(text: str) -> Iterator[SlurmNode]:
    """Yields the nodes of `scontrol --oneliner --details show node`. Raises ValueError."""
    for line in text.splitlines():
        fields = fields_of(line)
        if "NodeName" not in fields:
            continue
        states = fields["State"]
        marks = {"NOT_RESPONDING"} if "*" in states else set()
        yield SlurmNode(
            name=fields["NodeName"],
            states=frozenset(re.findall(r"[A-Z_]+", states)) | marks,
            reason=fields.get("Reason", "").partition(" [")[0],
            types=gpus_of(fields.get("Gres", "")),
            used=len(gpus_of(fields.get("GresUsed", ""))),
            cores=int(fields.get("CPUEfctv") or fields["CPUTot"]),
            memory_mb=int(fields["RealMemory"]),
            boot=fields.get("BootTime", ""),
            rack=rack_of(fields.get("AvailableFeatures", "")),
        )


def rack_of(features: str) -> str:
    """Returns the rack that a node's features name, as `rack=a2`; empty: none."""
    return next((each[5:] for each in features.split(",") if each.startswith("rack=")), "")


def switches_parse(text: str) -> dict[str, str]:
    """Returns the switch of each node, of `scontrol --oneliner show topology`: those of the lowest level."""
    rows = (fields_of(line) for line in text.splitlines())
    leaves = (row for row in rows if row.get("Level") == "0" and "SwitchName" in row)
    return {host: row["SwitchName"] for row in leaves for host in hosts_expand(row.get("Nodes", ""))}


def config_parse(text: str) -> dict[str, str]:
    """Returns the values of `scontrol show config`."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {name.strip(): value.strip() for name, mark, value in pairs if mark}


def fields_of(line: str) -> dict[str, str]:
    """Returns the fields of a line of `scontrol --oneliner`; of two with one name the first."""
    marks = list(_FIELD.finditer(line))
    ends = [mark.start() for mark in marks[1:]] + [len(line)]
    found: dict[str, str] = {}
    for mark, end in zip(marks, ends, strict=True):
        found.setdefault(mark[1], line[mark.end() : end].strip())
    return found


def gpus_of(gres: str) -> tuple[str, ...]:
    """Returns the type of each GPU of `gpu:h100:4(S:0-1),gpu:2`; empty where it has none."""
    return tuple(kind for kind, count in _GPUS.findall(gres) for _ in range(int(count)))


def hosts_expand(text: str) -> list[str]:
    """Returns the hosts of `n[1-3,07],login`."""
    found: list[str] = []
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", "" if text in ("(null)", "N/A") else text):
        found += _expand(part)
    return found


def _expand(part: str) -> list[str]:
    head, bracket, rest = part.partition("[")
    if not bracket:
        return [head]
    numbers, _, tail = rest.partition("]")
    found: list[str] = []
    for first, last in _RANGE.findall(numbers):
        digits = (f"{n:0{len(first)}d}" for n in range(int(first), int(last or first) + 1))
        found += [f"{head}{number}{after}" for number in digits for after in _expand(tail)]
    return found


def _seconds(text: str) -> int | None:
    """The commands print local time."""
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp())
    except ValueError:
        return None
