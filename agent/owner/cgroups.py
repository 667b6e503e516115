"""Limits a booking's programs to its cores and memory, and measures them, by cgroup v2, in a subtree of the
agent.

A program that names the booking in its environment, as `run` and `env` set it, joins the group with
all that it starts from then on. A program that hides its booking is not limited.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

from agent.owner.shares import ActiveBooking
from agent.ports.group_use import GroupUse, group_use
from agent.ports.host_cores import cores_parse, cores_text
from agent.ports.programs import Programs
from agent.ports.systemd import available_mb

log = logging.getLogger(__name__)

OWN = "own"
NEEDED = ("cpuset", "memory")
MEASURED = "io"
"""A controller that only measures: without it disks are not measured."""
_MOUNT = Path("/sys/fs/cgroup")
_AGENT = "agent"


class CgroupsUnavailable(Exception):
    """Why cores and memory can't be enforced here, for people."""


def subtree_prepare(option: str, *, mount: Path = _MOUNT, proc: Path = Path("/proc/self")) -> Path:
    """The folder for bookings' groups: a delegated one, or with `own` the agent's own group.

    The kernel lets no group have both processes and limited children, so from its own group the
    agent moves to a child. Raises NoCgroups.
    """
    root = _own(mount, proc) if option == OWN else Path(option)
    try:
        offered = (root / "cgroup.controllers").read_text().split()
        missing = [name for name in NEEDED if name not in offered]
        if missing:
            raise CgroupsUnavailable(f"{root} does not offer {' and '.join(missing)}")
        if option == OWN:
            (root / _AGENT).mkdir(exist_ok=True)
            (root / _AGENT / "cgroup.procs").write_text("0")
        wanted = [*NEEDED, *([MEASURED] if MEASURED in offered else [])]
        (root / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in wanted))
    except OSError as error:
        raise CgroupsUnavailable(f"{root} is no cgroup v2 folder of ours: {error.strerror}") from error
    return root


def _own(mount: Path, proc: Path) -> Path:
    lines = (proc / "cgroup").read_text().splitlines()
    path = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    if path is None:
        raise CgroupsUnavailable("this host has no cgroup v2")
    group = mount / path.strip("/")
    # systemd starts the agent in the child where the unit says DelegateSubgroup.
    return group.parent if group.name == _AGENT else group


class Cgroups:
    """Level-triggered: updates groups and their members for the bookings that are active now."""

    def __init__(self, root: Path, programs: Programs) -> None:
        """`root` is what `subtree_prepare` gave."""
        self._root = root
        self._programs = programs

    def sync(self, parts: Mapping[str, ActiveBooking]) -> str | None:
        """Returns the problems; the next call retries."""
        problems = []
        for name, part in sorted(parts.items()):
            try:
                self._limit(self._root / name, part)
            except OSError as error:
                problems.append(f"the cores and memory of {name}: {error.strerror}")
        for group in sorted(self._root.glob("*.*/")):
            if group.name not in parts and (group / "cgroup.procs").exists():
                self._remove(group)
        return "; ".join(problems) or None

    def available_mb(self, booking: str) -> int | None:
        """Returns the memory that its limit leaves a booking, in MiB; None without one."""
        return available_mb(self._root / booking)

    def use(self, booking: str) -> GroupUse | None:
        """Returns what its programs have used; None while it has no group."""
        return group_use(self._root / booking)

    def on_cores(self) -> dict[int, tuple[int, ...]]:
        """Returns the programs in groups that are kept to some cores, by core."""
        found: dict[int, tuple[int, ...]] = {}
        for group in sorted(self._root.glob("*.*/")):
            try:
                cores = cores_parse((group / "cpuset.cpus").read_text())
                pids = tuple(map(int, (group / "cgroup.procs").read_text().split()))
            except (OSError, ValueError) as error:
                log.debug("%s is not read: %s", group, error)
                continue
            for core in cores if pids else ():
                found[core] = (*found.get(core, ()), *pids)
        return found

    def _limit(self, group: Path, part: ActiveBooking) -> None:
        group.mkdir(exist_ok=True)
        if part.cores:
            (group / "cpuset.cpus").write_text(cores_text(part.cores))
        if part.memory_mb:
            (group / "memory.max").write_text(str(part.memory_mb << 20))
        inside = (group / "cgroup.procs").read_text().split()
        for pid in self._programs.named({part.name}):
            if str(pid) not in inside:
                self._join(group, pid)

    def _join(self, group: Path, pid: int) -> None:
        try:
            (group / "cgroup.procs").write_text(str(pid))
        except ProcessLookupError:
            return  # it has ended meanwhile

    def _remove(self, group: Path) -> None:
        """Removes the group once it is empty; ending programs keep it."""
        try:
            group.rmdir()
        except OSError as busy:
            log.debug("%s stays: %s", group, busy)
