"""The program's side: it starts its watchdog and sends it a pulse from each of its loops.

A loop sends a pulse when it has done its work, not when it merely turns. Pulses are sent once a
second at most; before `watchdog_start`, or when watchdogs are off, they are not sent at all.
"""

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

logger = logging.getLogger(__name__)

EVERY_SECONDS = 1.0
# A watchdog that was killed, such as for memory, is started anew once in this time at most.
RESTART_SECONDS = 30.0
MODULE = "tenants.platform.watchdog.process"
ENVIRONMENT = "WATCHDOG"
# Added to the number of a loop that ends.
RESTS = 128


@dataclass
class _Here:
    """The watchdog of this process, and when each loop sent its last pulse."""

    options: Mapping[str, Any] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    pipe: int = -1
    started: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)
    numbers: dict[str, int] = field(default_factory=dict)
    sent: dict[str, float] = field(default_factory=dict)


_here = _Here()


def watchdog_start(
    program: str, loops: Mapping[str, str], *, seconds: int, servers: Mapping[str, str]
) -> None:
    """Starts the watchdog of this process, which ends it after `seconds` without a pulse of a loop.

    `loops`: for each loop the names of the servers that it waits for, with spaces; while one of
    these does not answer, the loop has an excuse. `servers`: their addresses by name. The first
    loop must send a pulse within a minute, the others are watched from their first pulse on.
    """
    if not seconds:
        return
    _here.options = {"program": program, "loops": loops, "seconds": seconds, "servers": servers}
    _here.numbers = {name: number for number, name in enumerate(loops)}
    _start()


def _start() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    _here.process = subprocess.Popen(  # noqa: S603 (our own module, never a shell)
        [sys.executable, "-m", MODULE, str(os.getpid())],
        stdin=reading,
        # A signal to this program's group must not stop its watchdog.
        start_new_session=True,
        env={**os.environ, ENVIRONMENT: json.dumps(_here.options)},
    )
    os.close(reading)
    _here.pipe, _here.started = writing, time.monotonic()


def watchdog_stop() -> None:
    """Ends the watchdog: this program is about to stop, which may take a while."""
    if _here.process is not None:
        process, _here.process = _here.process, None
        os.close(_here.pipe)
        process.kill()
        process.wait()


def pulse(loop: str) -> None:
    """Says that this loop works. Safe in any thread."""
    now = time.monotonic()
    if now - _here.sent.get(loop, -EVERY_SECONDS) >= EVERY_SECONDS:
        _here.sent[loop] = now
        _send(loop)


def pulses_end(loop: str) -> None:
    """Says that this loop has ended, and sends pulses again when it begins anew."""
    _here.sent.pop(loop, None)
    _send(loop, RESTS)


def _send(loop: str, kind: int = 0) -> None:
    if _here.process is None:
        return
    try:
        os.write(_here.pipe, bytes([_here.numbers[loop] + kind]))
    except BlockingIOError:
        logger.warning("The watchdog does not read.")
    except BrokenPipeError:
        _start_again()


def _start_again() -> None:
    """Starts another watchdog, because this one has ended. Threads that come together start one."""
    with _here.lock:
        process = _here.process
        if process is None or process.poll() is None:
            return
        if time.monotonic() - _here.started >= RESTART_SECONDS:
            logger.warning("The watchdog has ended: another one is started.")
            before = _here.pipe
            _start()
            os.close(before)
