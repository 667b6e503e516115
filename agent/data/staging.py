"""Fetches data sets that bookings name into the cache folder, by the site's program `DIR/stage`.

The program fills a folder of its own next to the data sets. Only when it has ended well is that folder
renamed to the data set's name, so what is listed is whole. A folder that was filled in part is kept and
given to the next run: a killed agent begins where it was. Each run holds a lock that its children
inherit, so that a run that has outlived its agent is ended before another one begins.
"""

import contextlib
import fcntl
import logging
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent.data.folder import DataFolder
from agent.owner.hooks import PLAIN, is_trusted
from agent.ports.clock import Clock

log = logging.getLogger(__name__)

STAGE = "stage"
MOST_AT_ONCE = 2
_FOLDER = ".staging"
_SAID_LENGTH = 160
_ENDS_WITHIN_S = 5.0
_LOOK_S = 0.5
_PID_LENGTH = 20
# The program's number is in its lock before it does anything: its agent may be killed at any moment.
_NAMED = 'echo $$ >"$1" && exec "$0"'


@dataclass(frozen=True, slots=True)
class Fetched:
    """When the fetching of an allocation's data began (Unix milliseconds), and how long it took."""

    began: int
    took: int


@dataclass(slots=True)
class _Fetch:
    """A run of the program for one data set; `error` says why it has failed."""

    name: str
    began: float
    steady: float
    is_over: threading.Event = field(default_factory=threading.Event)
    is_unwanted: threading.Event = field(default_factory=threading.Event)
    error: str = ""


class Stager:
    """Level-triggered: fetches what allocations that are about to start miss."""

    def __init__(self, folder: DataFolder, program: Path, limit_s: float, clock: Clock) -> None:
        """A run is ended after `limit_s`."""
        self._folder = folder
        self._program = program
        self._limit_s = limit_s
        self._clock = clock
        self._runs: dict[str, _Fetch] = {}
        self._began: dict[str, tuple[float, float]] = {}
        self.fetching: dict[str, tuple[str, ...]] = {}
        """What is being fetched for which allocation, or waits for that."""
        self.failed: dict[str, str] = {}
        """Why the data of an allocation could not be fetched."""

    def follow(self, wanted: Mapping[str, Collection[str]]) -> dict[str, Fetched]:
        """Takes in the data of all allocations that are about to start. Returns those for which it has
        been fetched since the last call."""
        self._failures_note(wanted)
        for known in (self.failed, self._began):
            for gone in known.keys() - wanted.keys():
                del known[gone]
        missing = {
            allocation: tuple(name for name in names if not self._folder.has(name))
            for allocation, names in wanted.items()
            if allocation not in self.failed
        }
        self.fetching = {allocation: names for allocation, names in missing.items() if names}
        for allocation in self.fetching:
            self._began.setdefault(allocation, (self._clock.wall(), self._clock.steady()))
        done = [each for each in self._began if each in missing and not missing[each]]
        self._runs_update(list(dict.fromkeys(name for names in self.fetching.values() for name in names)))
        return {each: self._took(*self._began.pop(each)) for each in done}

    def stop(self) -> None:
        """Ends all runs. What they have fetched is kept for the next ones."""
        for run in self._runs.values():
            run.is_unwanted.set()
        for run in self._runs.values():
            run.is_over.wait(_ENDS_WITHIN_S)

    def _took(self, began: float, steady: float) -> Fetched:
        return Fetched(round(began * 1000), max(0, round((self._clock.steady() - steady) * 1000)))

    def _failures_note(self, wanted: Mapping[str, Collection[str]]) -> None:
        """A failed run is a failure for all that have waited for it. Others try again."""
        for name, run in list(self._runs.items()):
            if not run.is_over.is_set():
                continue
            del self._runs[name]
            if run.error and not run.is_unwanted.is_set():
                waited = (each for each in wanted if name in self.fetching.get(each, ()))
                self.failed |= dict.fromkeys(waited, f"the data set {name} was not fetched: {run.error}")

    def _runs_update(self, names: Collection[str]) -> None:
        for name, run in self._runs.items():
            if name not in names:
                run.is_unwanted.set()
        for name in names:
            if name not in self._runs and len(self._runs) < MOST_AT_ONCE:
                self._runs[name] = run = _Fetch(name, self._clock.wall(), self._clock.steady())
                threading.Thread(target=self._fetch, args=(run,), name=f"stage-{name}", daemon=True).start()

    # In the thread of a run.

    def _fetch(self, run: _Fetch) -> None:
        try:
            run.error = self._attempt(run)
        except (OSError, ValueError) as error:
            run.error = str(error)
        if run.error and not run.is_unwanted.is_set():
            log.warning("the data set %s was not fetched: %s", run.name, run.error)
        self._folder.look_soon()
        run.is_over.set()

    def _attempt(self, run: _Fetch) -> str:
        """Runs the program once; returns why it has failed. Raises OSError, ValueError."""
        if not all(is_trusted(each) for each in (self._program, self._program.parent)):
            return f"others than root may change {self._program}"
        staging = self._folder.root / _FOLDER
        partial, said = staging / run.name, staging / f"{run.name}.log"
        partial.mkdir(parents=True, exist_ok=True)
        with self._alone(run, path := staging / f"{run.name}.lock") as lock:
            error = self._run(run, partial, said, (path, lock))
        if error:
            return f"{error}{_last_line(said)}"
        if not any(partial.iterdir()):
            return "the program has fetched nothing"
        if self._folder.has(run.name):
            shutil.rmtree(partial)
        else:
            partial.rename(self._folder.root / run.name)
        said.unlink(missing_ok=True)
        return ""

    @contextlib.contextmanager
    def _alone(self, run: _Fetch, path: Path) -> Iterator[int]:
        """Holds the lock of a data set, whose open file the program inherits. A run that holds it has
        outlived its agent, and is ended. Raises OSError."""
        lock, until = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), None
        try:
            while not _locked(lock):
                until = until or self._clock.steady() + _ENDS_WITHIN_S
                leader = os.pread(lock, _PID_LENGTH, 0).decode(errors="replace").strip()
                if leader.isdecimal():
                    _group_end(int(leader))
                if self._clock.steady() > until:
                    raise OSError(f"an earlier run of {self._program} does not end")
                run.is_unwanted.wait(_LOOK_S)
            yield lock
        finally:
            os.close(lock)

    def _run(self, run: _Fetch, partial: Path, said: Path, lock: tuple[Path, int]) -> str:
        values = {
            "GPU_HOOK": STAGE,
            "GPU_DATA": run.name,
            "GPU_DATA_FOLDER": str(partial),
            "GPU_DATA_CACHE": str(self._folder.root),
        }
        with said.open("wb") as output:
            running = subprocess.Popen(  # noqa: S603 (a file of the site's own directory)
                ["/bin/sh", "-c", _NAMED, self._program, lock[0]],
                cwd=partial,
                env={**PLAIN, **values},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=(lock[1],),
            )
        until = self._clock.steady() + self._limit_s
        while True:
            try:
                code = running.wait(_LOOK_S)
            except subprocess.TimeoutExpired:
                if not run.is_unwanted.is_set() and self._clock.steady() < until:
                    continue
                _group_end(running.pid)
                running.wait()
                return "nobody needs it now" if run.is_unwanted.is_set() else f"more than {self._limit_s:g} s"
            return "" if code == 0 else f"exit status {code}"


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _group_end(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _last_line(path: Path) -> str:
    """What a program said last, to be appended to a sentence."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 4 * _SAID_LENGTH))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    plain = "".join(each if each.isprintable() else "?" for each in last)[:_SAID_LENGTH]
    return f" ({plain})" if plain else ""
