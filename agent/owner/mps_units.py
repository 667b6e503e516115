"""Starts and stops the MPS daemon of each shared GPU, as a systemd unit of its own.

The daemon outlives the agent, and systemd is what remembers it: after a restart the agent asks
which units run. systemctl is called on a thread, so that the loop does not wait for it.
"""

import logging
import pwd
import queue
import re
import threading
from collections.abc import Collection, Mapping
from pathlib import Path

from agent.ports.commands import command_run
from agent.ports.handover import write_atomic

log = logging.getLogger(__name__)

FOLDER = Path("/run/gpu-agent/mps")
"""Where the unit has its pipes and finds the files of the agent."""
Accounts = Mapping[str, int | None]
"""The number of the account that each shared GPU is for; None while that is not known."""
_LIMIT_S = 30
_HERE_S = 0.5
_UNIT = re.compile(r"^\W*gpu-mps@(\S+)\.service\b", re.MULTILINE)
_THERE = "--state=active,activating,reloading"


class MpsUnits:
    """Level-triggered: starts and stops units for the GPUs that have shares now."""

    def __init__(self, folder: Path = FOLDER, systemctl: str = "systemctl") -> None:
        """`folder` gets a file with the account of each daemon. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._systemctl = systemctl
        self._requested: Accounts | None = None
        self._done: Mapping[str, tuple[int | None, str | None]] = {}
        self._left: tuple[str, ...] = ()
        self._inbox: queue.SimpleQueue[Accounts | None] = queue.SimpleQueue()
        self._idle = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="mps-units", daemon=True)
        self._thread.start()

    def sync(self, accounts: Accounts) -> list[str]:
        """Runs a daemon of its account for each of these GPUs, and none for others. Where the
        account is not known, a running daemon stays.

        Waits half a second for systemd. Returns the problems; the next call retries.
        """
        if accounts != self._requested or (self._idle.is_set() and self._problems()):
            self._requested = dict(accounts)
            self._idle.clear()
            self._inbox.put(self._requested)
        self._idle.wait(_HERE_S)
        return self._problems()

    def is_settled(self, gpus: Collection[str]) -> bool:
        """Returns whether the daemons that were asked for on these GPUs run, or failed to start."""
        asked, done = self._requested or {}, self._done
        return all(gpu in done and done[gpu][0] == asked.get(gpu) for gpu in gpus)

    def stop(self) -> None:
        """Ends the thread; the daemons stay."""
        self._inbox.put(None)
        self._thread.join(1)

    def _problems(self) -> list[str]:
        each = [f"the MPS daemon of {gpu}: {why}" for gpu, (_, why) in self._done.items() if why]
        return [*self._left, *each]

    def _follow(self) -> None:
        while (wanted := self._inbox.get()) is not None:
            if not self._inbox.empty():
                continue
            self._make(wanted)
            if self._inbox.empty():
                self._idle.set()

    def _make(self, wanted: Accounts) -> None:
        try:
            listed = self._call("list-units", "--plain", "--no-legend", "--full", _THERE, "gpu-mps@*.service")
        except OSError as refused:
            self._done = {gpu: (uid, str(refused)) for gpu, uid in wanted.items()}
            self._left = (f"MPS units: {refused}",)
            return
        there = set(_UNIT.findall(listed))
        left = []
        for gpu in sorted(there - wanted.keys()):
            try:
                self._end(gpu)
            except OSError as error:
                left.append(f"the MPS daemon of {gpu} does not end: {error}")
        self._left = tuple(left)
        self._done = {
            gpu: (uid, self._serve(gpu, uid, there=gpu in there)) for gpu, uid in sorted(wanted.items())
        }

    def _serve(self, gpu: str, uid: int | None, *, there: bool) -> str | None:
        """Returns the problem."""
        if uid is None:
            return None if there else "its account is not known"
        file = self._folder / f"{gpu}.env"
        try:
            text = _settings(uid)
            if there and file.exists() and file.read_text() == text:
                return None
            if there:
                self._end(gpu)
            write_atomic(file, text)
            self._call("start", f"gpu-mps@{gpu}.service")
        except KeyError:
            return f"no account has the number {uid}"
        except OSError as error:
            return str(error)
        log.info("the MPS daemon of %s serves account %d", gpu, uid)
        return None

    def _end(self, gpu: str) -> None:
        """Raises OSError."""
        self._call("stop", f"gpu-mps@{gpu}.service")
        (self._folder / f"{gpu}.env").unlink(missing_ok=True)
        log.info("the MPS daemon of %s has ended", gpu)

    def _call(self, *words: str) -> str:
        return command_run([self._systemctl, *words], _LIMIT_S)


def _settings(uid: int) -> str:
    """Returns what the unit reads. Raises KeyError."""
    mode = "0700" if uid else "0755"
    return f"MPS_UID={uid}\nMPS_GID={pwd.getpwuid(uid).pw_gid}\nMPS_MODE={mode}\n"
