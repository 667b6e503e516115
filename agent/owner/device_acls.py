"""Gives the account of a booking's owner access to its device files, by access control lists.

This restricts others only if the files are not world-accessible, which they are by default (see
`NVreg_DeviceFileMode=0660`). The files that every program needs (`/dev/nvidiactl`) are then opened
with the device. A world-accessible device file is logged.
"""

import json
import logging
import shutil
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from agent.owner.cdi import DeviceNodes
from agent.owner.shares import ActiveBooking
from agent.ports.commands import command_run
from agent.ports.gpu import GpuError
from agent.ports.programs import account_uid
from agent.state.store import write_synced

log = logging.getLogger(__name__)

_LIMIT_S = 5
Right = tuple[str, int]
"""The path of a device file, and the number of the account that may use it."""


class Access(Protocol):
    """Access rights of files. Every call may raise OSError."""

    def give(self, right: Right) -> None: ...

    def take(self, right: Right) -> None:
        """Removes a right. A missing right or file is no error."""

    def is_world_accessible(self, path: str) -> bool:
        """Returns whether everybody may use it."""


class SetFacl:
    """See Access."""

    def __init__(self) -> None:
        """Raises OSError where `setfacl` is missing."""
        program = shutil.which("setfacl")
        if program is None:
            raise FileNotFoundError("device permissions need the program setfacl")
        self._program = program

    def give(self, right: Right) -> None:
        path, uid = right
        command_run([self._program, "-m", f"u:{uid}:rw", path], _LIMIT_S)

    def take(self, right: Right) -> None:
        path, uid = right
        if Path(path).exists():
            command_run([self._program, "-x", f"u:{uid}", path], _LIMIT_S)

    def is_world_accessible(self, path: str) -> bool:
        return bool(Path(path).stat().st_mode & (stat.S_IROTH | stat.S_IWOTH))


class DeviceAcls:
    """Level-triggered: sets the rights for the bookings that are active now.

    A right is in the file `state` before it is given, so that a crash leaves no device open.
    """

    def __init__(
        self,
        nodes: DeviceNodes,
        access: Access,
        state: Path,
        uid_of: Callable[[str], int | None] = account_uid,
    ) -> None:
        """Raises OSError or ValueError for a damaged `state`."""
        self._nodes = nodes
        self._access = access
        self._state = state
        self._uid_of = uid_of
        saved = json.loads(state.read_bytes()) if state.exists() else []
        self._saved: set[Right] = {(str(path), int(uid)) for path, uid in saved}
        # After a reboot the files are new, so all rights are given again.
        self._given: set[Right] = set()
        # A driver that is briefly late must not take a device from a running booking.
        self._paths: dict[str, tuple[str, ...]] = {}

    def sync(self, parts: Mapping[str, ActiveBooking]) -> list[str]:
        """Returns the problems; the next call retries."""
        problems: list[str] = []
        wanted: set[Right] = set()
        # A reset renumbers files: the path of a device is certain only while it is held.
        held = {device for part in parts.values() for device in part.devices}
        self._paths = {device: paths for device, paths in self._paths.items() if device in held}
        for name, part in sorted(parts.items()):
            problems += self._collect(name, part, wanted)
        for right in sorted(self._saved - wanted):
            try:
                self._access.take(right)
            except OSError as error:
                problems.append(f"{right[0]} was not closed: {error}")
                wanted.add(right)
            self._given.discard(right)
        try:
            self._save(wanted)
            problems += self._give(wanted - self._given)
        except OSError as error:
            problems.append(f"devices were not opened: {error}")
        for problem in problems:
            log.warning("%s", problem)
        return problems

    def _collect(self, name: str, part: ActiveBooking, wanted: set[Right]) -> list[str]:
        """Adds the rights of the booking; returns the problems."""
        uid = self._uid_of(part.account) if part.account else None
        if uid is None:
            missing = part.account or f"for {part.owner}"
            return [f"the devices of {name} were not opened: there is no account {missing} here"]
        wanted |= {(path, uid) for path in self._nodes.common()}
        problems = []
        for device in part.devices:
            try:
                self._paths[device] = self._nodes.of(device)
            except (OSError, GpuError) as error:
                problems.append(f"the files of {device} of {name} are not known: {error}")
            wanted |= {(path, uid) for path in self._paths.get(device, ())}
        return problems

    def _save(self, rights: set[Right]) -> None:
        if rights != self._saved:
            write_synced(self._state, json.dumps(sorted(rights)).encode())
            self._saved = rights

    def _give(self, rights: Iterable[Right]) -> list[str]:
        """Gives the rights; one that fails does not prevent the others."""
        problems = []
        for right in sorted(rights):
            path = right[0]
            try:
                if self._access.is_world_accessible(path) and path not in self._nodes.common():
                    log.warning("%s stands open to everybody: rights keep nobody out", path)
                self._access.give(right)
                self._given.add(right)
            except FileNotFoundError:
                problems.append(f"{path} was not opened: there is no such file; see nvidia-modprobe")
            except OSError as error:
                problems.append(f"{path} was not opened: {error}")
        return problems
