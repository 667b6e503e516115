"""Keeps the files of active bookings: `env`, `booking.json` and, if enabled, their CDI
specification; and notifies the hooks.

The folder `bookings/<tenant>.<booking>/` has the first two exactly while all of the booking's
devices on this node are handed over.
"""

import logging
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import wire
from agent.owner.cdi import Cdi
from agent.owner.cgroups import Cgroups
from agent.owner.device_acls import DeviceAcls
from agent.owner.hooks import Hooks
from agent.owner.shares import NOTICE, PROGRESS, SAVED, ActiveBooking, environment, files
from agent.ports.handover import write_atomic
from agent.ports.programs import account_uid
from agent.ports.readable import folder_readable

log = logging.getLogger(__name__)

# More than the longest line, whose characters have up to four bytes.
_READ_BYTES = 5 * wire.PROGRESS_LENGTH


class BookingFiles:
    """Level-triggered: updates files and hooks for the bookings that are active now."""

    def __init__(
        self,
        root: Path,
        *,
        cdi: Cdi | None = None,
        device_acls: DeviceAcls | None = None,
        hooks: Hooks | None = None,
        cgroups: Cgroups | None = None,
        uid_of: Callable[[str], int | None] = account_uid,
    ) -> None:
        """`uid_of` gives the number of a local account, None where it is not known."""
        self._root = root
        self.uid_of = uid_of
        self._cgroups = cgroups
        self._cdi = cdi
        self._device_acls = device_acls
        self._hooks = hooks
        # The first `sync` rewrites or removes the files of an earlier process.
        folders = root.iterdir() if root.is_dir() else ()
        self._written: dict[str, ActiveBooking | None] = {folder.name: None for folder in folders}
        # When the progress of each booking was written that has been read.
        self._progress: dict[str, int] = {}

    def open(self, parts: Mapping[str, ActiveBooking]) -> list[str]:
        """Opens the devices of these bookings and closes all others. Returns the problems."""
        return [] if self._device_acls is None else self._device_acls.sync(parts)

    def sync(self, opened: Mapping[str, ActiveBooking], waiting: Collection[str] = ()) -> str | None:
        """Opens the devices of all these bookings, and writes the files of those not `waiting`.

        Returns the problems; the next call retries.
        """
        parts = {name: part for name, part in opened.items() if name not in waiting}
        problems = []
        for name in sorted(self._written.keys() | parts.keys()):
            part = parts.get(name)
            if part is not None and self._written.get(name) == part:
                continue
            try:
                self._remove(name) if part is None else self._write(part)
            except OSError as error:
                problems.append(f"the files of {name}: {error}")
                log.warning("%s", problems[-1])
        problems += [
            f"no local account is known for {part.owner}, so nobody can use {name}"
            for name, part in sorted(parts.items())
            if not part.account
        ]
        problems += self.open(opened)
        if self._cdi is not None:
            problems += self._cdi.sync(parts)
        if self._cgroups is not None:
            problems += filter(None, [self._cgroups.sync(parts)])
        if self._hooks is not None:
            self._hooks.sync({name: environment(part) for name, part in parts.items()})
        return "; ".join(problems) or None

    def has_files(self, name: str) -> bool:
        """Returns whether the booking has its files, also from an earlier process."""
        return (self._root / name / "booking.json").exists()

    def saved_times(self) -> dict[str, int]:
        """Returns when owners last reported that everything is saved, by booking; in Unix
        seconds."""
        found = {}
        for name in self._written:
            try:
                at = (self._root / name / SAVED).stat(follow_symlinks=False).st_mtime
            except OSError:
                continue
            if at > 0:
                found[name] = int(at)
        return found

    def progress_lines(self) -> dict[str, str]:
        """Returns the last line of progress of each booking whose program has written one since the
        last call; empty text where it can't be sent. Only the end of a file is read."""
        found = {}
        for name in self._written:
            try:
                changed, data = _end_of(self._root / name / PROGRESS, self._progress.get(name, 0))
            except OSError:
                continue
            if data is not None:
                self._progress[name], found[name] = changed, _last_line(data)
        return found

    def _write(self, part: ActiveBooking) -> None:
        folder = self._root / part.name
        folder_readable(folder)
        wanted = files(part)
        for name, text in wanted.items():
            write_atomic(folder / name, text)
        for name in {NOTICE} - wanted.keys():
            (folder / name).unlink(missing_ok=True)
        old = self._written.get(part.name)
        for name in (SAVED, PROGRESS):
            if not (folder / name).exists() or (old is not None and old.account != part.account):
                uid = self.uid_of(part.account) if part.account else None
                _make_owned(folder / name, part, uid)
        self._written[part.name] = part

    def _remove(self, name: str) -> None:
        folder = self._root / name
        for file in folder.iterdir() if folder.is_dir() else ():
            if file.is_file():
                file.unlink(missing_ok=True)
        if folder.exists() and not any(folder.iterdir()):
            folder.rmdir()
        del self._written[name]
        self._progress.pop(name, None)


def _make_owned(path: Path, part: ActiveBooking, account: int | None) -> None:
    """Creates a file that its owner may write: to report that everything is saved, or how far a
    program is. Its folder belongs to the agent, so nobody can replace it. Raises OSError."""
    fresh = path.with_suffix(".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.close(descriptor)
    try:
        if account is None:
            who = part.account or f"for {part.owner}"
            log.info("no account %s here: nobody can report from %s", who, path.parent)
        elif account != os.geteuid():
            os.chown(fresh, account, -1)
    except PermissionError:
        log.warning("the agent may not give %s to %s", path, part.account)
    os.utime(fresh, (0, 0))
    os.replace(fresh, path)


def _end_of(path: Path, seen: int) -> tuple[int, bytes | None]:
    """When a file was written, in nanoseconds, and its last bytes; None: not since `seen`.

    Raises OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        facts = os.fstat(descriptor)
        if facts.st_mtime_ns in (0, seen) or not facts.st_size:
            return seen, None
        return facts.st_mtime_ns, os.pread(descriptor, _READ_BYTES, max(0, facts.st_size - _READ_BYTES))
    finally:
        os.close(descriptor)


def _last_line(data: bytes) -> str:
    """The last line that is complete, or the only one; empty if it is too long or not plain text."""
    whole, end, rest = data.rpartition(b"\n")
    line = (whole if end else rest).rpartition(b"\n")[2].strip()
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return ""
    return text if len(text) <= wire.PROGRESS_LENGTH and text.isprintable() else ""
