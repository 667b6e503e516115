"""The process that plays trials: started by a worker, with the lowest priority, and only while one waits."""

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime

from allocation.features.policy_lab.trials import trials_served

# It leaves the processor to everybody else.
NICE = 19
COMMAND = ("-m", "django", "policy_trial", "--work")


def trial_process_ensure(now: datetime) -> bool:
    """Starts a process if a trial waits for one; a machine that is busy takes a while to begin it."""
    if not trials_served(now):
        return False
    subprocess.Popen(  # noqa: S603 (our own command)
        [sys.executable, *COMMAND],
        stdin=subprocess.DEVNULL,
    )
    return True


def priority_lower() -> None:
    """Gives this process the lowest priority."""
    os.nice(NICE)


def orphaned() -> Callable[[], bool]:
    """Returns a function that says whether the process that started this one is gone, so that a worker
    that is stopped takes its trials with it."""
    parent = os.getppid()
    return lambda: os.getppid() != parent
