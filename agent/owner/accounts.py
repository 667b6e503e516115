"""The local accounts of portal members: by the node's directory, or by the site's program `login`.

Directory services (LDAP, sssd) and programs may answer late or never, and a look-up in the agent's
loop would delay leases. So look-ups run on a thread with a time limit, and known accounts are kept.
"""

import json
import logging
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from agent.owner.hooks import PLAIN, is_trusted
from agent.ports.programs import account_name, account_uid
from agent.ports.worker_threads import CallTimeout, WorkerThread
from agent.state.store import write_synced

log = logging.getLogger(__name__)


_MOST_KEPT = 10_000


class AccountDirectory:
    """The node's accounts. What is known stays valid while the directory does not answer, also
    after a restart: `file` keeps it. `steady` never jumps."""

    def __init__(
        self,
        file: Path | None = None,
        *,
        steady: Callable[[], float] = time.monotonic,
        uid_of: Callable[[str], int | None] = account_uid,
        name_of: Callable[[int], str | None] = account_name,
    ) -> None:
        self._file = file
        self._steady = steady
        self._uid_of = uid_of
        self._name_of = name_of
        self._thread = WorkerThread("accounts")
        self._uids: dict[str, tuple[int | None, float]] = {}
        self._names: dict[int, tuple[str | None, float]] = {}
        self._warned = False
        for name, uid in self._load().items():
            self._uids[name], self._names[uid] = (uid, 0.0), (name, 0.0)

    def uid(self, name: str) -> int | None:
        """Returns the uid of an account; None if there is none or it is not known yet."""
        found = self._uids.get(name)
        if found is None or found[1] <= self._steady():
            self._ask(lambda: self._learn_uid(name))
            found = self._uids.get(name)
        return None if found is None else found[0]

    def account(self, member: str) -> str | None:
        """Returns the account of the same name as a member of the portal, None as `uid` does."""
        return None if self.uid(member) is None else member

    def name(self, uid: int) -> str | None:
        """Returns an account's name, its number where no account has it; None where that is not
        known yet."""
        found = self._names.get(uid)
        if found is None or found[1] <= self._steady():
            self._ask(lambda: self._learn_name(uid))
            found = self._names.get(uid)
        return None if found is None else found[0] or str(uid)

    def _ask(self, learn: Callable[[], None]) -> None:
        """Looks up; returns at once while an earlier look-up is pending."""
        try:
            self._thread.ask(learn, LOOKUP_WAIT_S)
        except CallTimeout:
            if not self._warned:
                self._warned = True
                log.warning("the directory does not answer; known accounts stay valid")
        except OSError as error:
            log.warning("an account can't be looked up: %s", error)
        else:
            self._warned = False

    def _learn_uid(self, name: str) -> None:
        uid = self._uid_of(name)
        self._uids[name] = (uid, self._until(uid))
        if uid is not None:
            self._names[uid] = (name, self._until(uid))
            self._save()

    def _learn_name(self, uid: int) -> None:
        name = self._name_of(uid)
        self._names[uid] = (name, self._until(name))

    def _until(self, found: object) -> float:
        return self._steady() + (MISSING_FOR_S if found is None else FOUND_FOR_S)

    def _load(self) -> dict[str, int]:
        if self._file is None:
            return {}
        try:
            return {str(name): int(uid) for name, uid in json.loads(self._file.read_bytes()).items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, AttributeError, TypeError) as error:
            log.warning("%s can't be used: %s", self._file, error)
            return {}

    def _save(self) -> None:
        if self._file is None:
            return
        found = {name: uid for name, (uid, _) in dict(self._uids).items() if uid is not None}
        try:
            write_synced(self._file, json.dumps(dict(sorted(found.items())[:_MOST_KEPT])).encode())
        except OSError as error:
            log.warning("%s can't be written: %s", self._file, error)


LIMIT_S = 5.0
# The agent's loop waits this long; a later result counts at its next turn.
LOOKUP_WAIT_S = 0.3
FOUND_FOR_S = 600.0
MISSING_FOR_S = 30.0
_ACCOUNT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")


class LoginProgram:
    """Looks up accounts by the site's program: `DIR/login MEMBER` prints one name. If it fails, is
    late or names no account of this node, the member has none. `steady` never jumps."""

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
        """Returns the account, None without one. A known account is valid until the program prints
        another one or fails."""
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
        """Returns the printed name, or None and the reason."""
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
