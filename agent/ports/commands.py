"""Runs programs of the system, without a shell and with a time limit."""

import subprocess
from collections.abc import Sequence
from pathlib import Path


class CommandTimeout(OSError):
    """The program did not end within its limit, and was killed."""


def command_run(command: Sequence[str | Path], limit_s: float) -> str:
    """Returns what the program printed.

    Raises CommandTimeout, and OSError when it can't be started or fails, with its last error line.
    """
    name = Path(command[0]).name
    try:
        done = subprocess.run(  # noqa: S603 (programs of the system and the driver)
            command, check=False, timeout=limit_s, stdin=subprocess.DEVNULL, capture_output=True
        )
    except subprocess.TimeoutExpired as error:
        raise CommandTimeout(f"{name} took longer than {limit_s:g} s") from error
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        why = lines[-1] if lines else f"exit status {done.returncode}"
        raise OSError(f"{name} refused: {why[:200]}")
    return done.stdout.decode(errors="replace")
