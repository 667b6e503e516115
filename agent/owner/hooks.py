"""Runs the site's own programs when a booking starts, gets a notice or ends on this node, and
around changes of a GPU's mode.

The executables of `<folder>/start` and the others run one after the other in the order of their
names, without a shell, each with a time limit, on their own threads. Nothing waits for them, and
their exit status is only logged. Notices have a thread of their own, so that they never wait.
Programs run at least once: a restarted agent runs them again, so they must be idempotent.
"""

import contextlib
import json
import logging
import os
import queue
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from agent.state.store import write_synced

log = logging.getLogger(__name__)


Event = Literal["start", "resume", "notice", "pause", "end", "release", "regain"]
Environments = Mapping[str, Mapping[str, str]]
"""The environment of each active booking, by its full name."""
Known = Mapping[str, str] | None
Step = tuple[Event | None, str, Mapping[str, str], Known]
"""An event to run (or None), the booking, its environment, and what to remember afterwards."""

LIMIT_S = 10.0
PLAIN = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
_PAUSE, _RESUMES = "GPU_BOOKING_PAUSE_ID", "GPU_BOOKING_RESUMES"
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Hooks:
    def __init__(self, folder: Path, state: Path, *, limit_s: float = LIMIT_S) -> None:
        """`state` is the folder of the files that remember what has run.

        Raises OSError or ValueError for damaged ones.
        """
        programs = HookPrograms(folder, limit_s)
        self._threads = (
            HookThread("hooks", state / "hooks.json", programs, lifecycle_steps),
            HookThread("notice-hooks", state / "notices.json", programs, notice_steps),
        )

    def sync(self, active: Environments) -> None:
        """Runs hooks for the bookings that are active now; returns at once."""
        for thread in self._threads:
            thread.sync(active)

    def stop(self) -> None:
        """Waits for running programs, within their time limit."""
        for thread in self._threads:
            thread.stop()


def lifecycle_steps(known: Environments, active: Environments) -> Iterator[Step]:
    """Yields the steps from `known` (bookings whose start has run) to `active`."""
    for name in sorted(known.keys() - active.keys()):
        values = known[name]
        if _PAUSE in values:
            yield "pause", name, values, {k: v for k, v in values.items() if k != _PAUSE}
        yield "end", name, values, None
    for name in sorted(active.keys() - known.keys()):
        values = active[name]
        yield "start", name, values, values
        if _RESUMES in values:
            yield "resume", name, values, values
    for name in sorted(active.keys() & known.keys()):
        if _pause(active[name]) != _pause(known[name]):
            yield None, name, {}, active[name]


def notice_steps(known: Environments, active: Environments) -> Iterator[Step]:
    """Yields the steps for new notices since `known`."""
    for name in sorted(known.keys() - active.keys()):
        yield None, name, {}, None
    for name, values in sorted(active.items()):
        new = _pause(values)
        if new == _pause(known.get(name, {})):
            continue
        yield "notice" if new else None, name, values, values


def _pause(values: Mapping[str, str]) -> tuple[str, str] | None:
    return (values[_PAUSE], values["GPU_BOOKING_PAUSE_AT"]) if _PAUSE in values else None


class HookThread:
    """A thread that runs programs until its known bookings are the active ones. The known bookings
    are in the file `state`."""

    def __init__(
        self,
        name: str,
        state: Path,
        programs: "HookPrograms",
        steps: Callable[[Environments, Environments], Iterator[Step]],
    ) -> None:
        self._state = state
        self._programs = programs
        self._steps = steps
        self._requested: Environments | None = None
        self._requests: queue.SimpleQueue[Environments | None] = queue.SimpleQueue()
        self._known: dict[str, dict[str, str]] = json.loads(state.read_bytes()) if state.exists() else {}
        self._thread = threading.Thread(target=self._follow, name=name, daemon=True)
        self._thread.start()

    def sync(self, active: Environments) -> None:
        if active != self._requested:
            self._requested = active
            self._requests.put(active)

    def stop(self) -> None:
        self._requests.put(None)
        self._thread.join(self._programs.limit_s + 1)

    def _follow(self) -> None:
        while (active := self._requests.get()) is not None:
            for event, name, values, known in list(self._steps(dict(self._known), active)):
                if event is not None:
                    self._programs.run(event, name, values)
                if known is None:
                    self._known.pop(name, None)
                else:
                    self._known[name] = dict(known)
                self._save()

    def _save(self) -> None:
        try:
            write_synced(self._state, json.dumps(self._known).encode())
        except OSError as error:
            log.warning("hooks may run again after a restart: %s", error)


class HookPrograms:
    """The site's programs."""

    def __init__(self, folder: Path, limit_s: float) -> None:
        self._folder = folder
        self.limit_s = limit_s

    def run(self, event: Event, name: str, values: Mapping[str, str]) -> None:
        for program in self._programs(event):
            code = self._run_one(program, {**PLAIN, **values, "GPU_HOOK": event})
            if code != 0:
                log.warning("%s of %s for %s ended with %s", event, program.name, name, code)

    def _programs(self, event: Event) -> Iterator[Path]:
        """Yields the programs that only root and the agent's account can have written."""
        folder = self._folder / event
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            if not path.is_file() or not os.access(path, os.X_OK):
                continue
            if all(is_trusted(each) for each in (path, folder, self._folder)):
                yield path
            else:
                log.error("%s is not run: others than root may change it", path)

    def _run_one(self, program: Path, environment: Mapping[str, str]) -> int | str:
        """Returns the exit status. After the time limit the program and its children are killed."""
        try:
            running = subprocess.Popen(  # noqa: S603 (a file of the site's own directory, no shell)
                [program],
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno(),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return str(error)
        try:
            return running.wait(self.limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
            return f"a kill after {self.limit_s:g} s"


def is_trusted(path: Path) -> bool:
    """Returns whether only root and the agent's account can have written it. Raises OSError."""
    found = path.stat()
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & _OTHERS_MAY_WRITE


class ModeHooks:
    """Stops services that watch GPUs (DCGM, exporters, nvidia-persistenced) by the programs in
    `DIR/release` before the first of several concurrent mode changes, and starts them by
    `DIR/regain` after the last: a driver changes no GPU whose device file is open. A restarted
    agent starts services that a killed one has stopped."""

    def __init__(self, folder: Path, state: Path, *, limit_s: float = LIMIT_S) -> None:
        """`state` is the folder of the file that marks services as stopped."""
        self._programs = HookPrograms(folder, limit_s)
        self._mark = state / "released"
        self._lock = threading.Lock()
        self._changing = 0
        if self._mark.exists():
            self._regain("")

    @contextlib.contextmanager
    def __call__(self, gpu: str) -> Iterator[None]:
        """Keeps services from the GPU of this UUID."""
        with self._lock:
            if self._changing == 0:
                self._release(gpu)
            self._changing += 1
        try:
            yield
        finally:
            with self._lock:
                self._changing -= 1
                if self._changing == 0:
                    self._regain(gpu)

    def _release(self, gpu: str) -> None:
        try:
            self._mark.touch()
        except OSError as error:
            log.warning("services may stay stopped if the agent is killed: %s", error)
        self._programs.run("release", gpu, {"GPU_UUID": gpu})

    def _regain(self, gpu: str) -> None:
        self._programs.run("regain", gpu, {"GPU_UUID": gpu})
        try:
            self._mark.unlink(missing_ok=True)
        except OSError as error:
            log.warning("%s can't be removed: %s", self._mark, error)
