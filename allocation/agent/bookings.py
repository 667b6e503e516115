"""Keeps the files of the bookings that are active on this node: `env`, `booking.json` and, where
asked for, their CDI specification; and tells the hooks who is there.

The folder `bookings/<tenant>.<booking>/` has the first two exactly while all of the booking's
devices on this node are handed over.
"""

import json
import logging
from collections.abc import Mapping
from pathlib import Path

from allocation.agent.cdi import Cdi
from allocation.agent.handover import exports, write_whole
from allocation.agent.hooks import Hooks
from allocation.agent.parts import Part, description, environment

log = logging.getLogger(__name__)


class Bookings:
    """Level-triggered: told what is active, it makes the files and hooks follow."""

    def __init__(self, root: Path, *, cdi: Cdi | None = None, hooks: Hooks | None = None) -> None:
        self._root = root
        self._cdi = cdi
        self._hooks = hooks
        # Files of an earlier life are written anew, or removed, by the first look.
        folders = root.iterdir() if root.is_dir() else ()
        self._written: dict[str, Part | None] = {folder.name: None for folder in folders}

    def sync(self, parts: Mapping[str, Part]) -> str | None:
        """Returns what went wrong; it is tried again with the next call."""
        troubles = []
        for name in sorted(self._written.keys() | parts.keys()):
            part = parts.get(name)
            if part is not None and self._written.get(name) == part:
                continue
            try:
                self._remove(name) if part is None else self._write(part)
            except OSError as error:
                troubles.append(f"the files of {name}: {error}")
                log.warning("%s", troubles[-1])
        if self._cdi is not None:
            troubles += self._cdi.sync(parts)
        if self._hooks is not None:
            self._hooks.want({name: environment(part) for name, part in parts.items()})
        return "; ".join(troubles) or None

    def _write(self, part: Part) -> None:
        folder = self._root / part.name
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / "env", exports(environment(part)))
        write_whole(folder / "booking.json", json.dumps(description(part), indent=2) + "\n")
        self._written[part.name] = part

    def _remove(self, name: str) -> None:
        folder = self._root / name
        for file in folder.iterdir() if folder.is_dir() else ():
            if file.is_file():
                file.unlink(missing_ok=True)
        if folder.exists() and not any(folder.iterdir()):
            folder.rmdir()
        del self._written[name]
