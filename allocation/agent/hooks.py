"""Runs a site's own programs when a booking becomes active on this node, and when it is over.

The executables of `<folder>/start` and `<folder>/end` run one after the other in the order of their
names, without a shell, each for a bounded time, on a thread of their own: nothing waits for them,
and what they answer changes nothing but the log. They run at least once: an agent that is killed in
between runs them again, so they must be safe to run twice.
"""

import json
import logging
import os
import queue
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from allocation.agent.store import write_synced

log = logging.getLogger(__name__)

Event = Literal["start", "end"]
Environments = Mapping[str, Mapping[str, str]]
"""The environment of each active booking, by its full name."""

LIMIT_S = 10.0
_PLAIN = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Hooks:
    """`state` is the file that remembers whose start has run."""

    def __init__(self, folder: Path, state: Path, *, limit_s: float = LIMIT_S) -> None:
        """Raises OSError or ValueError for a damaged `state`."""
        self._folder = folder
        self._state = state
        self._limit_s = limit_s
        self._asked: Environments | None = None
        self._told: queue.SimpleQueue[Environments | None] = queue.SimpleQueue()
        self._started: dict[str, dict[str, str]] = (
            json.loads(state.read_bytes()) if state.exists() else {}
        )
        self._thread = threading.Thread(target=self._follow, name="hooks", daemon=True)
        self._thread.start()

    def want(self, active: Environments) -> None:
        """These bookings are active now; returns at once."""
        if active != self._asked:
            self._asked = active
            self._told.put(active)

    def stop(self) -> None:
        """Lets the program that runs come to its end, within its time."""
        self._told.put(None)
        self._thread.join(self._limit_s + 1)

    def _follow(self) -> None:
        while (active := self._told.get()) is not None:
            for name in sorted(self._started.keys() - active.keys()):
                self._run("end", name, self._started[name])
                del self._started[name]
                self._save()
            for name in sorted(active.keys() - self._started.keys()):
                self._run("start", name, active[name])
                self._started[name] = dict(active[name])
                self._save()

    def _save(self) -> None:
        try:
            write_synced(self._state, json.dumps(self._started).encode())
        except OSError as error:
            log.warning("hooks may run again after a restart: %s", error)

    def _run(self, event: Event, name: str, values: Mapping[str, str]) -> None:
        for program in self._programs(event):
            code = self._run_one(program, {**_PLAIN, **values, "GPU_HOOK": event})
            if code != 0:
                log.warning("%s of %s for %s ended with %s", event, program.name, name, code)

    def _programs(self, event: Event) -> Iterator[Path]:
        """Only what nobody but root and we ourselves can have put there or changed."""
        folder = self._folder / event
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            if not path.is_file() or not os.access(path, os.X_OK):
                continue
            if all(_is_ours(each) for each in (path, folder, self._folder)):
                yield path
            else:
                log.error("%s is not run: others than root may change it", path)

    def _run_one(self, program: Path, environment: Mapping[str, str]) -> int | str:
        """Its exit status; on time out the program and all it started are killed."""
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
            return running.wait(self._limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
            return f"a kill after {self._limit_s:g} s"


def _is_ours(path: Path) -> bool:
    found = path.stat()
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & _OTHERS_MAY_WRITE
