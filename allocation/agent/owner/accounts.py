"""Which local account a member of the portal has, as the site's own program `login` says.

`DIR/login MEMBER` writes the account's name on one line. It runs for a bounded time on a thread of
its own, and what it says is kept for a while. Where it fails, is late, or names nobody, the member
has no account here: nothing is opened to anybody on a guess.
"""

import logging
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from allocation.agent.owner.hooks import PLAIN, is_trusted
from allocation.agent.ports.programs import account_uid
from allocation.agent.ports.worker_threads import CallTimeout, WorkerThread

log = logging.getLogger(__name__)

LIMIT_S = 5.0
# The agent's loop waits no longer than this; what comes later counts at its next turn.
LOOKUP_WAIT_S = 0.3
FOUND_FOR_S = 600.0
MISSING_FOR_S = 30.0
_ACCOUNT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")


class LoginProgram:
    """`steady` never jumps."""

    def __init__(
        self,
        program: Path,
        *,
        steady: Callable[[], float] = time.monotonic,
        uid_of: Callable[[str], int | None] = account_uid,
        limit_s: float = LIMIT_S,
    ) -> None:
        self._program = program
        self._steady = steady
        self._uid_of = uid_of
        self._limit_s = limit_s
        self._thread = WorkerThread("login")
        self._known: dict[str, tuple[str | None, float]] = {}

    def account_of(self, member: str) -> str | None:
        """None where it has none, or that is not known yet. What is known is good until the
        program has said something else, or has failed."""
        account, until = self._known.get(member, (None, 0.0))
        if until > self._steady():
            return account
        try:
            self._thread.ask(lambda: self._learn(member), LOOKUP_WAIT_S)
        except CallTimeout:
            return account
        return self._known[member][0]

    def _learn(self, member: str) -> None:
        account, why = self._run(member)
        if account is not None and self._uid_of(account) is None:
            account, why = None, f"there is no account {account} here"
        if account is None:
            log.error("no account is known for %s: %s", member, why)
        kept = MISSING_FOR_S if account is None else FOUND_FOR_S
        self._known[member] = (account, self._steady() + kept)

    def _run(self, member: str) -> tuple[str | None, str]:
        """What the program says, or why that is nothing."""
        try:
            if not all(is_trusted(path) for path in (self._program, self._program.parent)):
                return None, f"{self._program} is not run: others than root may change it"
            running = subprocess.Popen(  # noqa: S603 (a file of the site's own directory, no shell)
                [self._program, member],
                cwd=self._program.parent,
                env=PLAIN,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return None, str(error)
        try:
            said, _ = running.communicate(timeout=self._limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.communicate()
            return None, f"{self._program} took longer than {self._limit_s:g} s"
        name = said.decode(errors="replace").strip()
        if running.returncode != 0:
            return None, f"{self._program} ended with {running.returncode}"
        if not _ACCOUNT.fullmatch(name):
            return None, f"{self._program} said {name[:40]!r}"
        return name, ""
