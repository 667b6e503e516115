"""A node's disk: what was written and not synced is gone when power is lost."""

import os
import random
import stat
from pathlib import Path
from unittest import mock

from agent.state import store


class Disk:
    """Files that the agent syncs, and those that it only writes."""

    def __init__(self) -> None:
        self._write_synced = store.write_synced
        # What is there after a loss of power, of files of which the newest text is not synced.
        self._before: dict[Path, bytes | None] = {}

    def write_synced(self, path: Path, raw: bytes) -> None:
        """By the agent's own function. It counts as synced when the new file was synced before it
        took its name, and the folder after that."""
        before = path.read_bytes() if path.exists() else None
        kinds: list[str] = []

        def fsync(descriptor: int) -> None:
            is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            is_named = path.exists() and path.read_bytes() == raw
            kinds.append("folder" if is_folder and is_named else "file")

        with mock.patch.object(os, "fsync", fsync):
            self._write_synced(path, raw)
        if kinds == ["file", "folder"]:
            self._before.pop(path, None)
        else:
            self._before.setdefault(path, before)

    def loses_power(self, only_written: list[Path], rng: random.Random) -> None:
        """Some files that were `only_written` are gone, or have no text."""
        for path, before in self._before.items():
            if before is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(before)
        self._before.clear()
        for path in only_written:
            what = rng.choice(("is there", "is there", "is gone", "is empty"))
            if what == "is gone":
                path.unlink()
            elif what == "is empty":
                path.write_bytes(b"")
