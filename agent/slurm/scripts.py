"""Scripts of bookings: the job runs one as its owner, and keeps its output where the owner reads it."""

import base64
import dataclasses
import pwd
import re
import shlex
import subprocess
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from wire import NOT_IN_TEXT, SCRIPT_LOG_LENGTH

BY_THEMSELVES = frozenset(("COMPLETED", "FAILED", "OUT_OF_MEMORY"))
"""How jobs end that nobody ended: what they ran is over."""
OWNERS_FOLDER = "~/gpu-bookings"
NO_LOG = 73
"""The exit code of a job whose script had no place for its output, as `EX_CANTCREAT`."""
_READ_LIMIT_S = 2.0
_CONTROLS = re.compile(f"[{NOT_IN_TEXT}]")


@dataclasses.dataclass(frozen=True, slots=True)
class ScriptPlace:
    """Where the script of an account runs: its home, and the folder of what it writes."""

    home: str
    folder: str

    @classmethod
    def of(cls, account: str, logs: str) -> "ScriptPlace":
        """Raises OSError for an account that this host does not know."""
        try:
            home = pwd.getpwnam(account).pw_dir
        except KeyError as error:
            raise OSError(f"no account {account} on this host") from error
        return cls(home, f"{home}{logs[1:]}" if logs.startswith("~/") else logs)

    def log(self, booking: str, job: int) -> str:
        """Returns the file with the output of a job."""
        return f"{self.folder}/{booking}.{job}.log"


def holder_text(notice: int | None) -> str:
    """Returns a batch script that holds devices."""
    return _batch({"NOTICE": str(notice or "")}, "holder.sh")


def script_text(text: str, booking: str, account: str, place: ScriptPlace, notice: int | None) -> str:
    """Returns a batch script that runs the script of a booking."""
    tenant, _, name = booking.partition(".")
    exported = {"HOME": place.home, "USER": account, "GPU_BOOKING": name, "GPU_BOOKING_TENANT": tenant}
    values = {
        **{f"export {each}": value for each, value in exported.items()},
        "NOTICE": str(notice or ""),
        "FOLDER": place.folder,
        "NAME": booking,
        "TEXT": base64.b64encode(text.encode()).decode(),
    }
    return _batch(values, "script.sh")


def _batch(values: Mapping[str, str], body: str) -> str:
    folder = resources.files("agent.slurm")
    lines = [f"{name}={shlex.quote(value)}" for name, value in values.items()]
    parts = [(folder / name).read_text(encoding="utf-8") for name in ("notice.sh", body)]
    return "\n".join(("#!/bin/bash", *lines, *parts))


def exit_code_read(text: str) -> int:
    """Returns the exit code of Slurm's `7:0`; a signal counts as a shell counts it. Raises ValueError."""
    code, _, signal = text.partition(":")
    return int(code) or (128 + int(signal) if int(signal or 0) else 0)


def log_tail(path: str, account: str) -> str:
    """Returns the end of the output, empty where this host does not see it."""
    found = _as_owner(account, "tail", f"--bytes={4 * SCRIPT_LOG_LENGTH}", "--", path)
    return _CONTROLS.sub("", found)[-SCRIPT_LOG_LENGTH:]


def exit_code_kept(log: str, account: str) -> int | None:
    """Returns the exit code that a job has written next to its output; None: there is none."""
    found = _as_owner(account, "head", "--bytes=4", "--", str(Path(log).with_suffix(".exit"))).strip()
    return int(found) if found.isascii() and found.isdecimal() else None


def _as_owner(account: str, *command: str) -> str:
    """Reads as the account, which chooses what its files are. They may be on storage that hangs."""
    try:
        entry = pwd.getpwnam(account)
        done = subprocess.run(  # noqa: S603 (head or tail with a path, no shell)
            command,
            check=False,
            timeout=_READ_LIMIT_S,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            user=entry.pw_uid,
            group=entry.pw_gid,
            extra_groups=(),
            cwd="/",
        )
    except (KeyError, OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode(errors="replace")
