"""Processes that end when the process that forked them ends."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
# Loaded before the fork, after which taking the loader's lock could deadlock.
_LIBC = ctypes.CDLL(None)


def end_with_parent(parent: int, number: signal.Signals) -> None:
    """After a fork: makes the kernel signal us when `parent` dies, even by SIGKILL."""
    if sys.platform != "linux":
        return
    _LIBC.prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
