"""Runs programs in phases, shows their output, restarts them when they end, stops them in order.

It uses one thread and no event loop: forking from several threads is not safe.
"""

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from devtools.launch.processes import (
    Program,
    StartFailed,
    group_kill,
    pid_write,
    spawn_options,
)

BACKOFF_FIRST_SECONDS = 0.5
# A program may fail repeatedly while another one is down; then it should come back soon.
BACKOFF_MAX_SECONDS = 5.0
HEALTHY_AFTER_SECONDS = 5.0
START_ATTEMPTS = 4
PUMP_SECONDS = 0.1
READ_BYTES = 65536
LAUNCHER = "launcher"
COLOURS = (36, 32, 33, 35, 34, 96, 92, 93, 95, 94)


class StopRequested(Exception):
    """A signal asked the launcher to stop."""


@dataclass
class Child:
    """A program and its current process."""

    program: Program
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    is_ready: bool = False
    failures: int = 0
    restart_at: float | None = None
    partial_line: bytes = b""
    last_lines: list[str] = field(default_factory=list)


class ProgramOutput:
    """Prints output lines with the name of their program, in colours on a terminal.

    With `is_quiet` only the launcher's lines are printed; the others go to files in `folder`. Lines
    for which a disk has no space are lost, and counted in the first line after them.
    """

    def __init__(self, folder: Path, *, is_quiet: bool) -> None:
        self.folder = folder
        self.is_quiet = is_quiet
        self.is_coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self.colour_of: dict[str, int] = {}
        self.lost: dict[str, int] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def say(self, name: str, line: str) -> None:
        """Writes one line of program `name` to the terminal or to its file."""
        if self.is_quiet and name != LAUNCHER:
            self._file_write(name, line)
            return
        prefix = f"{name:<10} | "
        if self.is_coloured:
            colour = self.colour_of.setdefault(name, COLOURS[len(self.colour_of) % len(COLOURS)])
            prefix = f"\x1b[{colour}m{prefix}\x1b[0m"
        # The reader of our output may have ended (`make demo | head`), or the disk of a file may be
        # full; the programs continue, and stop in order.
        with suppress(OSError):
            sys.stdout.write(f"{prefix}{line}\n")
            sys.stdout.flush()

    def _file_write(self, name: str, line: str) -> None:
        lost = self.lost.get(name, 0)
        text = f"({lost} lines are missing: the disk was full)\n{line}\n" if lost else f"{line}\n"
        try:
            with (self.folder / f"{name}.log").open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError:
            self.lost[name] = lost + 1
        else:
            self.lost.pop(name, None)


class Supervisor:
    """The programs of one launcher. Signal handlers only count; the loop reacts."""

    def __init__(self, pids: Path, lines: ProgramOutput) -> None:
        self.pids = pids
        self.lines = lines
        self.phases: list[list[Child]] = []
        self.selector = selectors.DefaultSelector()
        self.stop_requests = 0

    def listen(self) -> None:
        """Handles Ctrl-C, SIGTERM and SIGHUP."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: self._stop_requested())

    def start(self, programs: Sequence[Program]) -> None:
        """Starts programs together, as one phase, and waits until all are ready.

        Raises DidNotStart, or StopAsked; what runs then is ended by `stop`.
        """
        phase = [Child(program) for program in programs]
        self.phases.append(phase)
        for child in phase:
            self._spawn(child)
        began = time.monotonic()
        while not all(child.is_ready for child in phase):
            self.turn()
            for child in phase:
                self._check_start(child, time.monotonic() - began)

    def run(self) -> None:
        """Supervises all programs until a signal asks to stop."""
        while True:
            try:
                self.turn()
            except StopRequested:
                return

    def turn(self) -> None:
        """Copies output, notices ended programs, restarts due ones. Raises StopRequested."""
        self._read(PUMP_SECONDS)
        for child in self._children():
            self._check(child)
        if self.stop_requests:
            raise StopRequested

    def stop(self) -> None:
        """Stops the phases, last first; a second Ctrl-C kills everything at once."""
        self.stop_requests = 0
        for phase in reversed(self.phases):
            self._stop_phase(phase)
        self.phases.clear()

    def _stop_requested(self) -> None:
        self.stop_requests += 1

    def _children(self) -> list[Child]:
        return [child for phase in self.phases for child in phase]

    def _spawn(self, child: Child) -> None:
        program = child.program
        process = subprocess.Popen(  # noqa: S603 (our own programs, never a shell)
            program.command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            **spawn_options(program),
        )
        assert process.stdout is not None  # noqa: S101 (asked for above)
        os.set_blocking(process.stdout.fileno(), False)
        self.selector.register(process.stdout, selectors.EVENT_READ, child)
        child.process, child.started, child.restart_at = process, time.monotonic(), None
        child.partial_line = b""
        # Without it, only a start after a kill of this launcher can't end the program.
        try:
            pid_write(self.pids, program.name, process.pid)
        except OSError as error:
            self.lines.say(LAUNCHER, f"The process id of {program.name} is not stored: {error}")

    def _read(self, seconds: float) -> None:
        if not self.selector.get_map():
            time.sleep(seconds)
        for key, _ in self.selector.select(seconds):
            if not self._read_some(key.data, key.fd):
                self.selector.unregister(key.fileobj)

    def _read_some(self, child: Child, descriptor: int) -> bool:
        """Copies the available output; returns False at its end."""
        data = os.read(descriptor, READ_BYTES)
        *whole, child.partial_line = (child.partial_line + data).split(b"\n")
        for line in whole:
            self._line_received(child, line)
        return bool(data)

    def _line_received(self, child: Child, line: bytes) -> None:
        text = line.decode("utf-8", "replace").rstrip()
        child.last_lines = [*child.last_lines[-9:], text]
        self.lines.say(child.program.name, text)

    def _check(self, child: Child) -> None:
        if child.process is None:
            if child.restart_at is not None and time.monotonic() >= child.restart_at:
                self._spawn(child)
        elif child.process.poll() is not None:
            self._restart_schedule(child)
        elif not child.is_ready:
            child.is_ready = child.program.is_ready is None or child.program.is_ready()

    def _restart_schedule(self, child: Child) -> None:
        assert child.process is not None  # noqa: S101 (the caller looked)
        status = child.process.returncode
        if time.monotonic() - child.started > HEALTHY_AFTER_SECONDS:
            child.failures = 0
        delay = min(BACKOFF_FIRST_SECONDS * 2**child.failures, BACKOFF_MAX_SECONDS)
        child.failures += 1
        self._release(child)
        child.restart_at = time.monotonic() + delay
        self.lines.say(
            LAUNCHER,
            f"{child.program.name} ended ({_status_words(status)}); again in {delay:.1f} s",
        )

    def _release(self, child: Child) -> None:
        """Releases an ended process, and kills what is left of its group."""
        assert child.process is not None  # noqa: S101 (the caller looked)
        group_kill(child.process.pid)
        output = child.process.stdout
        if output is not None:
            with suppress(BlockingIOError):
                while self._read_some(child, output.fileno()):
                    pass
            if output in self.selector.get_map():
                self.selector.unregister(output)
            output.close()
        child.process = None
        (self.pids / f"{child.program.name}.pid").unlink(missing_ok=True)

    def _check_start(self, child: Child, waited: float) -> None:
        name = child.program.name
        if child.failures >= START_ATTEMPTS:
            raise StartFailed(f"{name} ended {child.failures} times:\n" + "\n".join(child.last_lines))
        if not child.is_ready and waited > child.program.ready_seconds:
            raise StartFailed(f"{name} is not ready after {waited:.0f} s.")

    def _stop_phase(self, phase: list[Child]) -> None:
        alive = [child for child in phase if child.process is not None]
        for child in alive:
            child.restart_at = None
            _signal(child, child.program.stop_signal)
        began = time.monotonic()
        while alive:
            self._read(PUMP_SECONDS)
            waited = time.monotonic() - began
            for child in list(alive):
                if child.process is not None and child.process.poll() is None:
                    if self.stop_requests or waited > child.program.stop_seconds:
                        group_kill(child.process.pid)
                    continue
                self._release(child)
                alive.remove(child)


def _signal(child: Child, number: signal.Signals) -> None:
    if child.process is not None and child.process.poll() is None:
        child.process.send_signal(number)


def _status_words(status: int) -> str:
    if status < 0:
        return signal.Signals(-status).name
    return f"status {status}"
