"""What the programs of one cgroup (version 2) have used, and bookings since the last message.

The kernel counts no network by group. systemd counts that of a slice by IP, and adapters count what they
carry past the kernel (RDMA) for the whole node: that is a booking's only while it alone has the node.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import wire

INFINIBAND = Path("/sys/class/infiniband")
_WORD_BYTES = 4
_MOST = (1 << 31) - 1
_READ = re.compile(r"\brbytes=(\d+)")
_WRITTEN = re.compile(r"\bwbytes=(\d+)")
_USAGE = re.compile(r"^usage_usec (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class GroupUse:
    """Counters that only grow, and the memory now. None: it is not counted for this group."""

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


@dataclass(frozen=True, slots=True)
class LinkUse:
    """What the RDMA adapters of a node have carried; it only grows."""

    received_kb: int
    sent_kb: int


def links_use(root: Path = INFINIBAND) -> LinkUse | None:
    """Returns the sums of all ports; None without an RDMA adapter, or where one does not count."""
    ports = sorted(root.glob("*/ports/*/counters"))
    received = [_words(port / "port_rcv_data") for port in ports]
    sent = [_words(port / "port_xmit_data") for port in ports]
    if not ports or None in received or None in sent:
        return None
    return LinkUse(*(sum(filter(None, way)) * _WORD_BYTES >> 10 for way in (received, sent)))


def _words(path: Path) -> int | None:
    """A counter of words of four bytes."""
    text = (_text(path) or "").strip()
    return int(text) if text.isdecimal() else None


@dataclass(frozen=True, slots=True)
class HostShare:
    """A booking on the node: its first allocation, the cores that it may use, and those that it could be
    lent."""

    allocation: str
    cores: int = 0
    spare: int = 0


@dataclass(frozen=True, slots=True)
class _Before:
    """The counters of a booking at an instant of the steady clock."""

    use: GroupUse
    steady: float
    links: LinkUse | None = None


class HostUses:
    """Keeps the counters of each booking since the last message."""

    def __init__(
        self, read: Callable[[str], GroupUse | None], links: Callable[[], LinkUse | None] = lambda: None
    ) -> None:
        """`read` takes the full name of a booking; `links` reads the node's RDMA adapters."""
        self._read = read
        self._links = links
        self._alone: str | None = None
        self._before: dict[str, _Before] = {}

    def take(self, bookings: Mapping[str, HostShare], steady: float) -> tuple[wire.HostUse, ...]:
        """Returns the use of these bookings since they were last asked for. What has no group, or only
        since now, is left out."""
        now = {name: use for name in bookings if (use := self._read(name)) is not None}
        links, alone = self._links(), next(iter(bookings)) if len(bookings) == 1 else None
        stayed, self._alone = alone if alone == self._alone else None, alone
        found = []
        for name, use in sorted(now.items()):
            before = self._before.get(name)
            if before is not None and use.cpu_us >= before.use.cpu_us and steady > before.steady:
                each = _between(before, use, steady, bookings[name])
                if links is not None:
                    each = _with_links(each, before.links, links if name == stayed else None)
                found.append(each)
        self._before = {name: _Before(use, steady, links) for name, use in now.items()}
        return tuple(found[: wire.HOST_USES_MAX])


def _between(before: _Before, use: GroupUse, steady: float, share: HostShare) -> wire.HostUse:
    grown = {
        name: _grown(getattr(before.use, name), getattr(use, name))
        for name in ("read_kb", "written_kb", "received_kb", "sent_kb")
    }
    return wire.HostUse(
        allocation=share.allocation,
        ms=min(round((steady - before.steady) * 1000), _MOST),
        cpu_ms=min((use.cpu_us - before.use.cpu_us) // 1000, _MOST),
        cores=share.cores,
        spare=share.spare,
        memory_mb=use.memory_mb,
        **grown,
    )


def _with_links(use: wire.HostUse, before: LinkUse | None, now: LinkUse | None) -> wire.HostUse:
    """Adds what the adapters carried. `now` is None where others had the node too: the counters
    do not say whose traffic it is, so none of it is measured."""
    if before is None or now is None:
        return replace(use, received_kb=None, sent_kb=None)
    received, sent = (
        _grown(before.received_kb, now.received_kb),
        _grown(before.sent_kb, now.sent_kb),
    )
    return replace(use, received_kb=_added(use.received_kb, received), sent_kb=_added(use.sent_kb, sent))


def _added(by_ip: int | None, by_links: int | None) -> int | None:
    return None if by_links is None else min((by_ip or 0) + by_links, _MOST)


def _grown(before: int | None, now: int | None) -> int | None:
    """The growth of a counter; None if it was not read twice, or began anew."""
    return None if before is None or now is None or now < before else min(now - before, _MOST)


def first_allocations(names: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Returns the first allocation by id of each booking, from pairs of both."""
    found: dict[str, str] = {}
    for booking, allocation in sorted(names):
        found.setdefault(booking, allocation)
    return found
