"""Calls of NVIDIA's `cuda-checkpoint`, each a program of its own."""

import contextlib
import dataclasses
import fcntl
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

_LONGEST = 200


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """`code` is the exit status, None if the call did not end in its time. `text` is the last line
    that it printed, `failure` why it failed, empty when it was done."""

    code: int | None
    text: str = ""
    failure: str = ""

    @classmethod
    def ended(cls, arguments: Sequence[str], code: int, printed: str) -> "Answer":
        """Returns what a call that has ended says."""
        lines = [line for line in printed.splitlines() if line.strip()]
        last = lines[-1].strip() if lines else ""
        text = "".join(c if c.isprintable() else " " for c in last)[:_LONGEST]
        if code == 0:
            return cls(0, text)
        what = f"cuda-checkpoint {' '.join(arguments)} ended with {code}"
        return cls(code, text, f"{what}: {text}" if text else what)

    @property
    def state(self) -> str | None:
        """The CUDA state of the program, None when unknown."""
        return self.text if self.code == 0 else None

    @property
    def late(self) -> bool:
        """Whether it did not end in its time."""
        return self.code is None


class Call(Protocol):
    """One call of the tool that was begun."""

    def poll(self) -> Answer | None:
        """What it answered; None while it is under way."""

    def kill(self) -> None: ...


@dataclasses.dataclass(frozen=True, slots=True)
class FinishedCall:
    """A call that has ended already."""

    answer: Answer

    def poll(self) -> Answer | None:
        """What it answered."""
        return self.answer

    def kill(self) -> None:
        """Does nothing."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Child:
    arguments: tuple[str, ...]
    child: "subprocess.Popen[bytes]"
    said: Path

    def poll(self) -> Answer | None:
        code = self.child.poll()
        if code is None:
            return None
        return Answer.ended(self.arguments, code, self.said.read_text(errors="replace"))

    def kill(self) -> None:
        self.child.kill()


class CheckpointTool:
    """See suspender.Tool.

    A call outlives an agent that is killed, and must not meet a second one for the same program,
    which might undo its work: each holds a lock while it runs.
    """

    def __init__(self, program: Path, folder: Path) -> None:
        """`folder` is for the locks. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        self._program = program
        self._folder = folder
        for path in folder.glob("*.lock"):
            if not self.is_running(int(path.stem)):
                path.unlink()
                path.with_suffix(".said").unlink(missing_ok=True)

    def start(self, pid: int, arguments: Sequence[str]) -> Call:
        """Begins a call about a program."""
        try:
            with self._locked(pid) as lock:
                if lock is None:
                    other = "another call of cuda-checkpoint is under way"
                    return FinishedCall(Answer(None, "", other))
                return self._begun(pid, tuple(arguments), lock)
        except OSError as error:
            return FinishedCall(Answer(127, "", f"{self._program.name}: {error.strerror}"))

    def _begun(self, pid: int, arguments: tuple[str, ...], lock: int) -> Call:
        # A file, not a pipe: nobody may be left to read when the call prints.
        said = self._folder / f"{pid}.said"
        with said.open("wb") as output:
            child = subprocess.Popen(  # noqa: S603 (the site's own program, no shell)
                [self._program, *arguments, "--pid", str(pid)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[lock],
            )
        return _Child(arguments, child, said)

    def is_running(self, pid: int) -> bool:
        """Whether a call about it is under way, begun by this life of the agent or an earlier."""
        try:
            with self._locked(pid) as lock:
                return lock is None
        except OSError:
            # A lock that can't be made, as on a full disk, is nobody's.
            return False

    @contextlib.contextmanager
    def _locked(self, pid: int) -> Iterator[int | None]:
        """The lock's descriptor, which a child keeps; None while another one has it."""
        path = self._folder / f"{pid}.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield descriptor
        except BlockingIOError:
            yield None
        finally:
            os.close(descriptor)
