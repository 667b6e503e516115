"""Waiting for what other processes do: until it is seen, or a failure after a limit."""

import time
from collections.abc import Callable


def wait_until(seen: Callable[[], bool], *, seconds: float, every: float = 0.02) -> None:
    """Return as soon as `seen()` is true, asked `every` so many seconds; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < deadline, f"not seen in {seconds} s"
        time.sleep(every)
