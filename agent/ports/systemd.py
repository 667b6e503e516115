"""The port to systemd's resource control: slices with device rules, and the programs in them.

A slice is a group of programs. Its properties are set by `systemctl set-property --runtime`: one
call changes all of them at once, takes effect on what runs, is answered when it is done, and is
gone after a reboot. Unit files below /run would need a `daemon-reload` for each change, which
reads all units of the host again and does not say which of them was refused.
"""

import logging
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from agent.ports.commands import CommandTimeout, command_run
from agent.ports.group_use import GroupUse, group_use

log = logging.getLogger(__name__)


PARENT = "gpu-booking"
MOUNT = Path("/sys/fs/cgroup")
CONTROL = Path("/run/systemd/system.control")
# AllowedCPUs came with this version.
_OLDEST = 244
_LIMIT_S = 3.0
# The agent's loop waits in these calls: leases must not lapse while systemd is silent.
_UNRESPONSIVE_S = 10.0
_CHECK_S = 20.0
# Readable by root on every host, and allowed by no policy unless it is named.
_PROBE = "/dev/kmsg"
# Counters are read for all slices at once, at most so often.
_TRAFFIC_S = 5.0
_TRAFFIC = ("--property=Id,IPIngressBytes,IPEgressBytes", f"{PARENT}-*.slice")
# systemd says this number, or no number, where it counts nothing.
_NO_COUNT = (1 << 64) - 1
_ONCE = ("--quiet", "--wait", "--collect")
_MANAGER = (
    "org.freedesktop.systemd1",
    "/org/freedesktop/systemd1",
    "org.freedesktop.systemd1.Manager",
)


class Units(Protocol):
    """Slices by their unit's name. Every call may raise OSError."""

    def existing(self) -> frozenset[str]:
        """Returns the slices of bookings that are there, or have rules for when they are."""

    def apply(self, unit: str, properties: Sequence[str]) -> None:
        """Sets these properties, as `DevicePolicy=closed`, and begins the slice."""

    def signal(self, unit: str, *, force: bool) -> None:
        """Asks everything in it to end, or kills it. A slice that is not there is no error."""

    def populated(self, unit: str) -> bool:
        """Returns whether any program is in it."""

    def remove(self, unit: str) -> None:
        """Takes an empty slice and its properties away."""

    def has(self, unit: str, pid: int) -> bool:
        """Returns whether a program is in it; one that is gone is not."""

    def join(self, unit: str, pid: int) -> None:
        """Moves a program into it."""

    def available_mb(self, unit: str) -> int | None:
        """Returns the memory that its programs may still take, in MiB; None without a limit."""

    def use(self, unit: str) -> GroupUse | None:
        """Returns what its programs have used; None while it is not there."""


class Systemd:
    """See Units; by systemd's own programs, and by the kernel's files for what only reads."""

    def __init__(
        self,
        mount: Path = MOUNT,
        control: Path = CONTROL,
        proc: Path = Path("/proc"),
        *,
        limit_s: float = _LIMIT_S,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises OSError where device rules can't be enforced, with the reason."""
        self._mount = mount
        self._control = control
        self._proc = proc
        self._limit_s = limit_s
        self._steady = steady
        self._unresponsive_until = steady()
        self._traffic_until = steady()
        self._traffic_seen: Mapping[str, tuple[int | None, int | None]] = {}
        self._programs = {name: _found(name) for name in ("systemctl", "systemd-run", "busctl", "sh")}
        self._check()

    def _check(self) -> None:
        if not (self._mount / "cgroup.controllers").exists():
            raise OSError("device rules need cgroup v2 alone (systemd.unified_cgroup_hierarchy=1)")
        said = self._run("systemctl", "--version")
        version = re.match(r"systemd (\d+)", said)
        if version is None or int(version[1]) < _OLDEST:
            raise OSError(f"device rules need systemd {_OLDEST} or newer, here is {said[:20]!r}")
        # systemd continues without device rules where the kernel refuses its BPF programs.
        if self._opens() or not self._opens(f"DeviceAllow={_PROBE} r"):
            raise OSError(
                "device rules have no effect here: a service with DevicePolicy=closed must be kept"
                f" from {_PROBE}, and one that DeviceAllow names must not"
            )

    def _opens(self, *more: str) -> bool:
        """Returns whether a service that is closed, but for `more`, can open a device."""
        properties = [f"--property={each}" for each in ("DevicePolicy=closed", *more)]
        command = [self._programs["sh"], "-c", f"exec <{_PROBE}"]
        try:
            done = subprocess.run(  # noqa: S603 (the system's own programs)
                [self._programs["systemd-run"], *_ONCE, *properties, *command],
                timeout=_CHECK_S,
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired as error:
            raise OSError(f"systemd-run took longer than {_CHECK_S:g} s") from error
        return done.returncode == 0

    def existing(self) -> frozenset[str]:
        groups = self._group("").glob(f"{PARENT}-*.slice")
        rules = self._control.glob(f"{PARENT}-*.slice.d")
        return frozenset({path.name.removesuffix(".d") for path in (*groups, *rules)})

    def apply(self, unit: str, properties: Sequence[str]) -> None:
        self._run("systemctl", "set-property", "--runtime", unit, "IPAccounting=yes", *properties)
        self._run("systemctl", "start", unit)

    def signal(self, unit: str, *, force: bool) -> None:
        group = self._group(unit)
        if not group.exists():
            return
        if force and (group / "cgroup.kill").exists():
            # The kernel's own: nothing that is just being started gets away, and it does not
            # wait for systemd.
            (group / "cgroup.kill").write_text("1")
        else:
            self._run("systemctl", "kill", f"--signal={'KILL' if force else 'TERM'}", unit)

    def populated(self, unit: str) -> bool:
        try:
            return "populated 1" in (self._group(unit) / "cgroup.events").read_text()
        except FileNotFoundError:
            return False

    def remove(self, unit: str) -> None:
        self._run("systemctl", "stop", unit)
        self._run("systemctl", "revert", unit)

    def has(self, unit: str, pid: int) -> bool:
        return is_inside(unit, self._proc / str(pid))

    def join(self, unit: str, pid: int) -> None:
        """As a scope of its own: systemd wants no programs in a slice itself."""
        properties = ("2", "PIDs", "au", "1", str(pid), "Slice", "s", unit)
        self._run(
            "busctl",
            "--quiet",
            "call",
            *_MANAGER,
            "StartTransientUnit",
            "ssa(sv)a(sa(sv))",
            f"gpu-run-{pid}.scope",
            "fail",
            *properties,
            "0",
        )

    def available_mb(self, unit: str) -> int | None:
        return available_mb(self._group(unit))

    def use(self, unit: str) -> GroupUse | None:
        use = group_use(self._group(unit))
        received, sent = self._traffic().get(unit, (None, None)) if use is not None else (None, None)
        return None if use is None else replace(use, received_kb=received, sent_kb=sent)

    def _traffic(self) -> Mapping[str, tuple[int | None, int | None]]:
        """Returns the KiB of each slice by IP, received and sent. One call for all slices is enough for a
        few seconds; without an answer nothing is measured."""
        now = self._steady()
        if now >= self._traffic_until:
            self._traffic_until = now + _TRAFFIC_S
            try:
                self._traffic_seen = traffic_read(self._run("systemctl", "show", *_TRAFFIC))
            except OSError as error:
                log.debug("the network of slices is not measured: %s", error)
                self._traffic_seen = {}
        return self._traffic_seen

    def _group(self, unit: str) -> Path:
        """Where the kernel has a slice: below those whose names are the beginning of its name."""
        return self._mount / "gpu.slice" / f"{PARENT}.slice" / unit

    def _run(self, name: str, *arguments: str) -> str:
        """After a call that was not answered others fail at once for a while."""
        if self._steady() < self._unresponsive_until:
            raise OSError("systemd does not answer")
        try:
            return command_run([self._programs[name], *arguments], self._limit_s)
        except CommandTimeout:
            self._unresponsive_until = self._steady() + _UNRESPONSIVE_S
            raise


def limits_refusal() -> str:
    """Returns why slices can't limit cores and memory here, empty where they can."""
    try:
        offered = (MOUNT / "cgroup.controllers").read_text().split()
    except FileNotFoundError:
        offered = []
    missing = [name for name in ("cpuset", "memory") if name not in offered]
    return f"the kernel does not offer {' and '.join(missing)}" if missing else ""


def traffic_read(text: str) -> dict[str, tuple[int | None, int | None]]:
    """Returns the KiB that each unit received and sent, from what `systemctl show` prints."""
    found = {}
    for block in text.split("\n\n"):
        values = dict(line.partition("=")[::2] for line in block.splitlines())
        if values.get("Id"):
            found[values["Id"]] = (_kb(values.get("IPIngressBytes")), _kb(values.get("IPEgressBytes")))
    return found


def _kb(text: str | None) -> int | None:
    is_count = text is not None and text.isdecimal() and int(text) != _NO_COUNT
    return int(text) >> 10 if text is not None and is_count else None


def _found(name: str) -> str:
    program = shutil.which(name)
    if program is None:
        raise FileNotFoundError(f"device rules need the program {name}")
    return program


def is_inside(unit: str, program: Path = Path("/proc/self")) -> bool:
    """Returns whether a program is in a slice; `program` is its folder in /proc."""
    try:
        text = (program / "cgroup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return any(unit in line.split("/") for line in text.splitlines())


def unit_of(uid: int, booking: str) -> str:
    """Returns the slice of a booking, by its full name, and of its owner's account."""
    return f"{PARENT}-{uid}.{_escape(booking)}.slice"


def booking_of(unit: str) -> str:
    """Returns the booking that a slice is for."""
    name = unit.removesuffix(".slice").removeprefix(f"{PARENT}-").partition(".")[2]
    return re.sub(r"\\x([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), name)


def _escape(text: str) -> str:
    """As `systemd-escape`: in the name of a slice a dash would mean a slice above it."""
    return "".join(
        each if re.fullmatch(r"[A-Za-z0-9:_.]", each) else "".join(rf"\x{b:02x}" for b in each.encode())
        for each in text
    )


def available_mb(group: Path) -> int | None:
    """Returns the memory that a cgroup's programs may still take, in MiB; None without a limit.

    Files that were read count as free as far as the kernel would drop them first.
    """
    try:
        limit = (group / "memory.max").read_text().strip()
        used = int((group / "memory.current").read_text())
        stat = (group / "memory.stat").read_text()
    except FileNotFoundError:
        return None
    if limit == "max":
        return None
    idle = re.search(r"^inactive_file (\d+)$", stat, re.MULTILINE)
    used -= int(idle[1]) if idle else 0
    return max(0, int(limit) - max(0, used)) >> 20


class Supervisor:
    """Notifies systemd of the agent's state; does nothing without `NOTIFY_SOCKET`."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        # An at sign stands for the null byte of an abstract name.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(0)

    def ready(self) -> None:
        """The agent serves."""
        self._notify("READY=1")

    def alive(self) -> None:
        """The loop has completed a turn: `WatchdogSec=` restarts an agent that does not report
        it."""
        self._notify("WATCHDOG=1")

    def stopping(self) -> None:
        """The agent was asked to end."""
        self._notify("STOPPING=1")

    def _notify(self, text: str) -> None:
        if not self._address:
            return
        try:
            self._socket.sendto(text.encode(), self._address)
        except OSError as error:
            log.warning("the supervisor can't be notified: %s", error)
