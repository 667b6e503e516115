"""The agent's durable state: the document that it follows, the fence, and its records.

The state is one file, replaced and synced before any action. So after a crash or during a partition
the node continues from the newest document that it accepted.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from agent.plan.targets import Record
from agent.ports.readable import folder_ensure
from agent.ports.suspender import Suspended
from wire import Desired, DesiredAllocation, Envelope, WireError, open_desired
from wire.strict import build

# How far the number on disk is ahead of the last one used: many more than are used between two
# saves, so that numbers rise over a restart even if the clock was set back.
_SEQ_AHEAD = 100

Verdict = Literal["new", "same", "stale", "conflict"]


class StoreError(Exception):
    """The state can't be read or written, so no new work may begin."""


def write_synced(path: Path, raw: bytes) -> None:
    """Replaces a file, readable by its owner alone, and waits for the disk. Raises OSError."""
    fresh = path.with_suffix(path.suffix + ".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def folder_locked(folder: Path) -> Iterator[None]:
    """One agent per state folder. Raises StoreError when another one runs."""
    folder_ensure(folder)
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StoreError(f"another agent uses {folder}") from error
        yield


class Store:
    """The saved state. `desired` is None until a document was accepted; `held` and `suspended` are
    by allocation. `remembers` is False while no document was on disk: an earlier process may
    have begun allocations without a record."""

    def __init__(self, path: Path, *, keys: Mapping[int, bytes], epoch: int, now: float) -> None:
        """`epoch` is the one of the enrolment: no older document is ever accepted.

        Raises StoreError when there is a file that can't be read, trusted or understood.
        """
        self._path = path
        self._keys = keys
        self._envelope: Envelope | None = None
        self._fence = (epoch, -1)
        # Starting from the clock keeps numbers rising even if the file was lost.
        self._seq = int(now * 1000)
        self._saved: dict[str, Any] = {}
        self.desired: Desired | None = None
        self.remembers = False
        self.held: dict[str, Record] = {}
        self.suspended: dict[str, Suspended] = {}
        if path.exists():
            try:
                self._load(json.loads(path.read_bytes()))
            except (OSError, ValueError, LookupError, TypeError, WireError) as error:
                raise StoreError(f"{path} can't be used: {error}") from error
        self._on_disk = self._now()

    @property
    def folder(self) -> Path:
        """The folder of the node's state."""
        return self._path.parent

    @property
    def generation(self) -> int:
        return max(0, self._fence[1])

    @property
    def key_version(self) -> int | None:
        """The version of the key that signed the followed document."""
        return None if self._envelope is None else self._envelope.key_version

    @property
    def epoch(self) -> int:
        return self._fence[0]

    def script_of(self, booking: str) -> str | None:
        """Returns the script of a booking (`helix.BK-12`) of the document."""
        scripts = self.desired.scripts if self.desired else ()
        return next((each.text for each in scripts if f"{each.tenant}.{each.booking}" == booking), None)

    def judge(self, envelope: Envelope, desired: Desired) -> Verdict:
        """Compares a verified document with the fence: only newer ones, or the same bytes."""
        pair = (desired.epoch, desired.generation)
        if pair > self._fence:
            return "new"
        if pair < self._fence:
            return "stale"
        same = self._envelope is not None and self._envelope.body == envelope.body
        return "same" if same else "conflict"

    def accept(self, envelope: Envelope, desired: Desired) -> None:
        """Follows a document that was judged "new"; `save` makes it last."""
        self._envelope = envelope
        self._fence = (desired.epoch, desired.generation)
        self.desired = desired

    def next_seq(self) -> int:
        self._seq += 1
        return self._seq

    def save(self) -> None:
        """Writes what changed. Raises StoreError; `held` and `suspended` are then as they were last
        written, and nothing new may be done on the GPUs."""
        data: dict[str, Any] = {
            "envelope": None if self._envelope is None else self._envelope.to_json().decode(),
            "epoch": self._fence[0],
            "generation": self._fence[1],
            "held": [dataclasses.asdict(held) for held in self.held.values()],
            "seq": (self._seq // _SEQ_AHEAD + 2) * _SEQ_AHEAD,
            "suspended": [dataclasses.asdict(each) for each in self.suspended.values()],
        }
        if data == self._saved:
            return
        try:
            write_synced(self._path, json.dumps(data).encode())
        except OSError as error:
            held, suspended = self._on_disk
            self.held, self.suspended = dict(held), dict(suspended)
            raise StoreError(f"{self._path} can't be written: {error}") from error
        self._saved, self._on_disk = data, self._now()
        self.remembers = self._envelope is not None

    def _now(self) -> tuple[dict[str, Record], dict[str, Suspended]]:
        return dict(self.held), dict(self.suspended)

    def _load(self, data: dict[str, Any]) -> None:
        saved = (data["epoch"], data["generation"])
        self.remembers = data["envelope"] is not None
        if data["envelope"] is not None:
            self._envelope = Envelope.from_json(data["envelope"].encode())
            self.desired = open_desired(self._envelope, self._keys)
            if saved != (self.desired.epoch, self.desired.generation):
                raise ValueError("the fence and the document differ")
        self._fence = max(saved, self._fence)
        self._seq = max(self._seq, data["seq"])
        for each in data["held"]:
            allocation: Any = build(DesiredAllocation, each["allocation"], "held")
            self.held[allocation.id] = Record(**{**each, "allocation": allocation})
        for each in data.get("suspended", ()):
            programs = tuple((int(pid), str(birth)) for pid, birth in each["programs"])
            found = Suspended(**{**each, "programs": programs})
            self.suspended[found.allocation] = found
