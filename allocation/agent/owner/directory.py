"""The accounts of this node, looked up where nobody waits for them.

Names and numbers of accounts may come from a directory service (LDAP, sssd) that answers late or
never. A look-up that the agent's loop made itself would hold up leases, and with them everybody's
work. So look-ups run on a thread of their own; what is known is kept, also over a restart, and
stays good for as long as the directory does not answer.
"""

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path

from allocation.agent.ports.programs import account_name, account_uid
from allocation.agent.ports.worker_threads import CallTimeout, WorkerThread
from allocation.agent.state.store import write_synced

log = logging.getLogger(__name__)

# The agent's loop waits no longer than this; what comes later counts at its next turn.
LOOKUP_WAIT_S = 0.3
FOUND_FOR_S = 600.0
MISSING_FOR_S = 30.0
_MOST_KEPT = 10_000


class AccountDirectory:
    """`steady` never jumps. `file` keeps the accounts that were found."""

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
        """Returns the number of an account; None where there is none, or that is not known yet."""
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
        """At once over while an earlier look-up is out."""
        try:
            self._thread.ask(learn, LOOKUP_WAIT_S)
        except CallTimeout:
            if not self._warned:
                self._warned = True
                log.warning("the accounts of this node are not answered for; what is known counts")
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
            return {
                str(name): int(uid) for name, uid in json.loads(self._file.read_bytes()).items()
            }
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
