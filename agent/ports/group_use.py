"""What the programs of one cgroup (version 2) have used since it was made."""

import re
from dataclasses import dataclass
from pathlib import Path

_READ = re.compile(r"\brbytes=(\d+)")
_WRITTEN = re.compile(r"\bwbytes=(\d+)")
_USAGE = re.compile(r"^usage_usec (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class GroupUse:
    """Counters that only grow, and the memory now. None: the kernel does not count it for this group. It
    counts no network by group."""

    cpu_us: int
    memory_mb: int | None = None
    read_kb: int | None = None
    written_kb: int | None = None
    received_kb: int | None = None
    sent_kb: int | None = None


def group_use(group: Path) -> GroupUse | None:
    """Returns what a group has used; None where there is no such group."""
    usage = _USAGE.search(_text(group / "cpu.stat") or "")
    if usage is None:
        return None
    memory, disks = _text(group / "memory.current"), _text(group / "io.stat")
    return GroupUse(
        int(usage[1]),
        int(memory) >> 20 if memory and memory.strip().isdecimal() else None,
        *(_sum(pattern, disks) for pattern in (_READ, _WRITTEN)),
    )


def _sum(pattern: re.Pattern[str], text: str | None) -> int | None:
    return None if text is None else sum(map(int, pattern.findall(text))) >> 10


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None
