"""Notebooks of bookings: started for their owners while the bookings are active here.

Level-triggered. The document says which notebooks there are to be. Each has a folder that belongs to
its owner's account, with the secret of its tunnels, its socket and its status, and next to that a
record of the agent, so that another agent continues and starts nothing twice.
"""

import hashlib
import json
import logging
import math
import os
import re
import secrets
import shutil
import signal
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast, get_args
from urllib.parse import urlsplit

import wire
from agent.owner.hooks import is_trusted
from agent.owner.shares import ActiveBooking
from agent.ports.notebook_programs import (
    SECRET,
    STATUS,
    NotebookStart,
    NotebookStarter,
    notebook_pids,
    notebook_signal,
)
from agent.state.store import write_synced

log = logging.getLogger(__name__)

POLL_S, QUIET_S = 0.25, 5.0
_KILL_AFTER_S = 5.0
# A program that was just started may not be seen yet.
_SEEN_WITHIN_S = 5.0
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
_STATUS_BYTES = 4_096
_OVER = "the booking is not active here any more"
_CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class NotebookSettings:
    """The portal's proxy, and the command of each program by its name."""

    portal: str
    programs: Mapping[str, tuple[str, ...]]


def settings_read(file: Path) -> NotebookSettings:
    """Reads the site's file. Raises OSError, and ValueError with what is wrong."""
    if not is_trusted(file):
        raise ValueError(f"{file}: others than root may change it")
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
        portal, programs = found["portal"], {n: each["command"] for n, each in found["programs"].items()}
    except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{file} needs `portal` and [programs.NAME] with `command`: {error!r}") from error
    parts = urlsplit(portal) if isinstance(portal, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{file}: portal is no address such as https://notebooks.example.org")
    if parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise ValueError(f"{file}: portal needs https, or everybody on the way reads along")
    for name, command in programs.items():
        _program_check(file, name, command)
    if not 0 < len(programs) <= wire.NOTEBOOK_PROGRAMS_MAX:
        raise ValueError(f"{file}: 1 to {wire.NOTEBOOK_PROGRAMS_MAX} programs")
    return NotebookSettings(portal, {name: tuple(command) for name, command in programs.items()})


def _program_check(file: Path, name: str, command: object) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{file}: {name!r} is no name of a program")
    words = command if isinstance(command, list) else []
    if not words or not all(isinstance(word, str) for word in words):
        raise ValueError(f"{file}: the command of {name} is a list of words")
    if not any("{socket}" in word for word in words):
        raise ValueError(f"{file}: the command of {name} does not say {{socket}}, on which it has to listen")


@dataclass(frozen=True, slots=True)
class _Held:
    """A notebook that was started, or could not be."""

    uid: int
    key: str
    state: wire.NotebookState = "starting"
    error: str = ""

    @property
    def is_over(self) -> bool:
        return self.state in ("ended", "failed")


class Notebooks:
    """The notebooks of this node. `steady` never jumps."""

    def __init__(
        self,
        settings: NotebookSettings,
        starter: NotebookStarter,
        state: Path,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._starter = starter
        self._state = state
        self._root = state / "notebooks"
        self._steady = steady
        self._root.mkdir(mode=0o711, exist_ok=True)
        self._held = {path.stem: held for path in self._root.glob("*.json") if (held := _record(path))}
        # By the steady clock: when each was started by this agent, and asked to end.
        self._started: dict[str, float] = {}
        self._asked: dict[str, float] = {}
        self._wanted: tuple[str, ...] = ()

    @property
    def programs(self) -> tuple[str, ...]:
        """The names that the portal may ask for."""
        return tuple(sorted(self._settings.programs))

    @property
    def poll_s(self) -> float:
        """Seconds until the next `sync`."""
        moving = any(held.state == "starting" for held in self._held.values())
        return POLL_S if moving or self._asked else QUIET_S

    def reported(self) -> tuple[wire.ReportedNotebook, ...]:
        """Returns those of the document that were started, or could not be."""
        found = ((name, self._held[name]) for name in self._wanted if name in self._held)
        return tuple(
            wire.ReportedNotebook(id=name, state=held.state, key=held.key or None, error=held.error)
            for name, held in found
        )[: wire.NOTEBOOKS_MAX]

    def sync(self, wanted: Iterable[wire.DesiredNotebook], active: Mapping[str, ActiveBooking]) -> None:
        """Starts what is to run now, ends the rest, and reads how each is."""
        self._starter.reap()
        orders = {each.id: each for each in wanted}
        self._wanted = tuple(sorted(orders))
        for name in sorted(self._held.keys() | orders.keys()):
            order = orders.get(name)
            part = active.get(f"{order.tenant}.{order.booking}") if order else None
            held = self._held.get(name)
            if held is None:
                if order is not None and part is not None:
                    self._start(order, part)
            elif order is None or part is None:
                self._end(name, held, is_wanted=order is not None)
            elif not held.is_over:
                self._look(name, held)

    def _start(self, order: wire.DesiredNotebook, part: ActiveBooking) -> None:
        uid = self._starter.uid(part.account) if part.account else None
        if uid is None:
            self._keep(order.id, _Held(-1, "", "failed", f"no account here is known for {part.owner}"))
            return
        command = self._settings.programs.get(order.program)
        if command is None:
            self._keep(order.id, _Held(uid, "", "failed", f"{order.program} is not offered here"))
            return
        secret = secrets.token_hex(32)
        # On disk before anything runs, so that nothing is started twice.
        held = self._keep(order.id, _Held(uid, hashlib.sha256(secret.encode()).hexdigest()))
        try:
            self._folder_make(order.id, uid, secret)
            self._started[order.id] = self._steady()
            self._starter.start(self._wanted_start(order, part, uid, command))
        except OSError as error:
            self._keep(order.id, replace(held, state="failed", error=str(error)[: wire.LINE_MAX_LENGTH]))
            log.warning("notebook of %s: %s", part.name, error)

    def _wanted_start(
        self, order: wire.DesiredNotebook, part: ActiveBooking, uid: int, command: Iterable[str]
    ) -> NotebookStart:
        python = (sys.executable, "-m", "agent")
        # A program uses one slice or share.
        first = ("--part", "0") if part.divided and len(part.devices) > 1 else ()
        words = (
            *(*python, "run", "--state", str(self._state.absolute()), *first, part.name, "--"),
            *(*python, "notebook", "--folder", str(self._folder(order.id).absolute())),
            *("--portal", self._settings.portal, "--address", order.address, "--", *command),
        )
        return NotebookStart(order.id, part.owner, part.account, uid, part.unit, words, _CHECKOUT)

    def _folder(self, name: str) -> Path:
        # The names of sockets are short.
        return self._root / name[:12]

    def _folder_make(self, name: str, uid: int, secret: str) -> None:
        folder = self._folder(name)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        descriptor = os.open(folder / SECRET, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secret)
        if uid != os.geteuid():
            os.chown(folder / SECRET, uid, -1)
            # From here on the account may change everything in it.
            os.chown(folder, uid, -1)

    def _end(self, name: str, held: _Held, *, is_wanted: bool) -> None:
        """Asks its programs to end, and kills them later. Forgets it once nothing wants it."""
        if name not in self._asked:
            self._asked[name] = self._steady()
            notebook_signal(name, held.uid, signal.SIGTERM)
        elif self._steady() - self._asked[name] > _KILL_AFTER_S:
            notebook_signal(name, held.uid, signal.SIGKILL)
        if notebook_pids(name, held.uid):
            return
        del self._asked[name]
        if is_wanted:
            if not held.is_over:
                self._keep(name, replace(held, state="ended", error=_OVER))
            return
        shutil.rmtree(self._folder(name), ignore_errors=True)
        (self._root / f"{name}.json").unlink(missing_ok=True)
        del self._held[name]
        self._started.pop(name, None)

    def _look(self, name: str, held: _Held) -> None:
        state, error = _status(self._folder(name) / STATUS)
        is_new = self._steady() - self._started.get(name, -math.inf) < _SEEN_WITHIN_S
        if not is_new and state in ("starting", "ready") and not notebook_pids(name, held.uid):
            state, error = "ended", error or "its programs have ended"
        if (state, error) != (held.state, held.error):
            self._keep(name, replace(held, state=state, error=error))

    def _keep(self, name: str, held: _Held) -> _Held:
        self._held[name] = held
        try:
            write_synced(self._root / f"{name}.json", json.dumps(asdict(held)).encode())
        except OSError as error:
            log.warning("the record of notebook %s: %s", name, error)
        return held


def _record(path: Path) -> _Held | None:
    """A record of an earlier agent; a damaged one counts as none."""
    try:
        return _Held(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        log.warning("%s is damaged: %s", path, error)
        return None


def _status(path: Path) -> tuple[wire.NotebookState, str]:
    """What the notebook says of itself. The file is its owner's, who may have put anything there."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            said: Any = json.loads(os.read(descriptor, _STATUS_BYTES))
        finally:
            os.close(descriptor)
        state, error = said["state"], said["error"]
    except (OSError, ValueError, KeyError, TypeError):
        return "starting", ""
    if state not in get_args(wire.NotebookState) or not isinstance(error, str):
        return "starting", ""
    plain = "".join(each if each.isprintable() else " " for each in error)
    return cast(wire.NotebookState, state), plain[: wire.LINE_MAX_LENGTH]
