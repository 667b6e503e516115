"""Lists the data sets of the cache folder: each of its sub-folders is one.

Only names, sizes and times leave the node, never what is in a file. Folders are walked in a thread of
their own, because a large one takes long.
"""

import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import wire

log = logging.getLogger(__name__)

LOOK_EVERY_S = 60.0
MEASURE_EVERY_S = 3_600.0
FILES_MOST = 200_000
"""The number of files from which a data set is too large to be measured."""
_NAME = re.compile(wire.DATA_PATTERN)
_BLOCK = 512


@dataclass(frozen=True, slots=True)
class _Measured:
    """A data set as it was at `at`, when its folder had been changed at `changed`."""

    data: wire.CachedData
    changed: int
    at: float


class DataFolder:
    """The listing of one cache folder, kept up to date by a thread after `start`."""

    def __init__(self, root: Path, steady: Callable[[], float] = time.monotonic) -> None:
        self.root = root
        self._steady = steady
        self._known: dict[str, _Measured] = {}
        self._listing: tuple[wire.CachedData, ...] | None = None
        self._problem = ""
        self._wake = threading.Event()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._follow, name="data-folder", daemon=True)

    @property
    def listing(self) -> tuple[wire.CachedData, ...] | None:
        """The newest listing by name; None before the first, and while the folder can't be read."""
        return self._listing

    def has(self, name: str) -> bool:
        """Returns whether the data set is there now."""
        folder = self.root / name
        return _NAME.fullmatch(name) is not None and folder.is_dir() and not folder.is_symlink()

    def start(self) -> None:
        """Lists the folder from now on."""
        self._thread.start()

    def look_soon(self) -> None:
        """Lists the folder again, because it has changed."""
        self._wake.set()

    def stop(self) -> None:
        """Ends the thread. A walk under way ends at its next file."""
        self._is_stopped = True
        self._wake.set()
        self._thread.join(LOOK_EVERY_S)

    def _follow(self) -> None:
        while not self._is_stopped:
            self._wake.clear()
            self.look()
            self._wake.wait(LOOK_EVERY_S)

    def look(self) -> None:
        """Lists the folder once, and measures what is due."""
        try:
            found = self._found()
        except OSError as error:
            self._note(f"the data sets of {self.root} can't be listed: {error.strerror}")
            self._listing = None
            return
        self._known = {name: each for name, each in self._known.items() if name in found}
        # New ones are listed before they are measured, which may take minutes.
        self._show(found)
        now = self._steady()
        for name, changed in found.items():
            known = self._known.get(name)
            if known is None or known.changed != changed or now - known.at >= MEASURE_EVERY_S:
                data = self._measured(name)
                if data is None:
                    continue
                self._known[name] = _Measured(data, changed, now)
        self._show(found)

    def _found(self) -> dict[str, int]:
        """The data sets by name, with the time of the last change of their folder. Raises OSError."""
        with os.scandir(self.root) as entries:
            folders = sorted(
                (each for each in entries if each.is_dir(follow_symlinks=False)), key=lambda each: each.name
            )
        named = [each for each in folders if _NAME.fullmatch(each.name)]
        others = [each.name for each in folders if each not in named and not each.name.startswith(".")]
        problem = ""
        if others:
            problem = f"{others[0]!r} in {self.root} is not listed: names have a-z, 0-9 and . _ -"
        if len(named) > wire.DATA_SETS_MAX:
            problem = f"{self.root} has more than {wire.DATA_SETS_MAX} data sets: the others are not listed"
        self._note(problem)
        return {
            each.name: each.stat(follow_symlinks=False).st_mtime_ns for each in named[: wire.DATA_SETS_MAX]
        }

    def _show(self, found: dict[str, int]) -> None:
        self._listing = tuple(
            self._known[name].data if name in self._known else wire.CachedData(name=name) for name in found
        )

    def _measured(self, name: str) -> wire.CachedData | None:
        """The size and the last use of a data set; None when the agent stops meanwhile."""
        size = files = used = 0
        folders = deque([self.root / name])
        while folders:
            try:
                with os.scandir(folders.popleft()) as entries:
                    for entry in entries:
                        if self._is_stopped:
                            return None
                        files += 1
                        if files > FILES_MOST:
                            return wire.CachedData(name=name, used=used or None)
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(Path(entry.path))
                            continue
                        facts = entry.stat(follow_symlinks=False)
                        size += facts.st_blocks * _BLOCK
                        used = max(used, int(facts.st_atime), int(facts.st_mtime))
            except OSError as error:
                log.info("a part of the data set %s is not measured: %s", name, error)
        size_mb = min(-(-size >> 20), (1 << 31) - 1)
        return wire.CachedData(name=name, size_mb=size_mb, used=used or None)

    def _note(self, problem: str) -> None:
        if problem and problem != self._problem:
            log.warning("%s", problem)
        self._problem = problem
