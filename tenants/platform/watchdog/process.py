"""The watchdog of one program: `python -m tenants.platform.watchdog.process PID`, its parent.

It reads the pulses of the program's loops. When one is missing for too long although the servers
that it waits for answer, it ends the program with SIGKILL, and whatever supervises the program (the
launcher, systemd, a container's restart policy) starts it again. The portal's Redis gets a note
while a loop is silent, which /readyz shows, and a count of the ends, which Prometheus reads.

It counts its own looks and not the clock, so that a machine that stood still for a minute has lost
one look. It imports the clients of servers only in need, because each program has a watchdog.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tenants.platform.watchdog.pulses import ENVIRONMENT, RESTS

LOOK_SECONDS = 1.0
# A program has so many looks to start, and a loop is called silent after so many without a pulse.
START_LOOKS, SILENT_LOOKS = 60, 5
# A look in which the program computed or waited for a processor counts so much less than others:
# on an overloaded machine a restart would only add to the load.
IDLE_WEIGHT = 3
BUSY_TICKS = 20
ANSWER_SECONDS = 2
STOPPED = "stopped"


class Silence:
    """For how many looks each loop has been silent, in units of a busy look."""

    def __init__(self, loops: Mapping[str, str], limit: int) -> None:
        """The first loop is watched from the start, the others from their first pulse on."""
        self._names = list(loops)
        self._servers = {name: waits.split() for name, waits in loops.items()} | {STOPPED: []}
        self._limit = limit * IDLE_WEIGHT
        self._silent = {self._names[0]: self._limit - START_LOOKS * IDLE_WEIGHT}

    def heard(self, pulses: bytes, *, is_busy: bool = False) -> None:
        """Counts a look, before which these pulses came."""
        for name in self._silent:
            self._silent[name] += 1 if is_busy else IDLE_WEIGHT
        for number in pulses:
            if number < RESTS:
                self._silent[self._names[number]] = 0
            else:
                self._silent.pop(self._names[number - RESTS], None)

    def stopped(self, *, is_stopped: bool) -> None:
        """Counts a look in which a process of the program was stopped."""
        self._silent.setdefault(STOPPED, 0)
        if not is_stopped:
            self._silent[STOPPED] = 0

    def excuse(self, loop: str) -> None:
        """Starts to count anew."""
        self._silent[loop] = 0

    def silent(self) -> list[str]:
        """The loops that have been silent for a while."""
        return [name for name, n in self._silent.items() if n >= SILENT_LOOKS * IDLE_WEIGHT]

    def servers(self, loop: str) -> list[str]:
        """The servers that the loop waits for."""
        return self._servers[loop]

    def deaf(self) -> list[str]:
        """The loops that have been silent for too long."""
        return [name for name, n in self._silent.items() if n >= self._limit]


class Servers:
    """The servers of the program; `redis` keeps notes."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        """Connects to none."""
        self._addresses = addresses

    def answers(self, name: str) -> bool:
        """Whether a server answers now. Redis has to take a write: while it is full, it answers a
        ping, and no loop gets on."""
        if name == "database":
            return self._database(name)
        from tenants.platform.watchdog import notes  # noqa: PLC0415 (only in need: see above)

        return self._redis(notes.asked_note, name)

    def note(self, program: str, loop: str) -> None:
        """Notes that a loop of the program is silent."""
        from tenants.platform.watchdog import notes  # noqa: PLC0415

        self._redis(notes.silent_note, "redis", program, loop)

    def end_note(self, program: str) -> None:
        """Counts that the program was ended."""
        from tenants.platform.watchdog import notes  # noqa: PLC0415

        self._redis(notes.end_note, "redis", program)

    def _redis(self, ask: Callable[..., object], name: str, *given: str) -> bool:
        import redis  # noqa: PLC0415

        try:
            ask(self._addresses[name], *given)
        except redis.RedisError:
            return False
        return True

    def _database(self, name: str) -> bool:
        import psycopg  # noqa: PLC0415

        try:
            with psycopg.connect(self._addresses[name], connect_timeout=ANSWER_SECONDS) as session:
                session.execute("SELECT 1")
        except psycopg.Error:
            return False
        return True


class Processes:
    """What Linux says of the program's processes."""

    def __init__(self, parent: int) -> None:
        """`parent` is the program's first process."""
        self._parent = parent
        self._ticks = 0

    def is_busy(self) -> bool:
        """Whether the program computed since the last look, or waits for a processor."""
        fields = _fields(self._parent)
        if not fields:
            return False
        ticks = int(fields[11]) + int(fields[12])
        used, self._ticks = ticks - self._ticks, ticks
        return fields[0] == "R" or used >= BUSY_TICKS

    def is_stopped(self) -> bool:
        """Whether a child process, other than this one, is stopped or traced."""
        path = Path(f"/proc/{self._parent}/task/{self._parent}/children")
        try:
            children = [int(word) for word in path.read_text(encoding="ascii").split()]
        except OSError:
            return False
        return any(_fields(pid)[:1] in (["T"], ["t"]) for pid in children if pid != os.getpid())


def _fields(pid: int) -> list[str]:
    """A process's state and what follows it; nothing if it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    # The name, in brackets, may itself contain brackets and spaces.
    return text.rpartition(")")[2].split()


def watch(parent: int, options: Mapping[str, Any]) -> None:
    """Watches until the program ends, or ends it."""
    silence, servers = Silence(options["loops"], options["seconds"]), Servers(options["servers"])
    program, processes = options["program"], Processes(parent)
    os.set_blocking(sys.stdin.fileno(), False)
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
        try:
            pulses = os.read(sys.stdin.fileno(), 65_536)
        except BlockingIOError:
            pulses = b""
        silence.heard(pulses, is_busy=processes.is_busy())
        silence.stopped(is_stopped=processes.is_stopped())
        for loop in silence.silent():
            if all(servers.answers(name) for name in silence.servers(loop)):
                servers.note(program, loop)
            else:
                silence.excuse(loop)
        if (deaf := silence.deaf()) and os.getppid() == parent:
            _say(f"ended {program}: {', '.join(deaf)} silent for {options['seconds']} s")
            os.kill(parent, signal.SIGKILL)
            servers.end_note(program)
            return


def _say(words: str) -> None:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
    print(f"{at} ERROR watchdog: {words}", file=sys.stderr, flush=True)  # noqa: T201 (its log)


if __name__ == "__main__":
    watch(int(sys.argv[1]), json.loads(os.environ[ENVIRONMENT]))
