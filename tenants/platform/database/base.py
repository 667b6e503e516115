"""Django's backend for PostgreSQL, with statements that wait for the next one.

A statement without a result needs no round trip of its own: `later` keeps it until the next
statement of the transaction, and sends them together, in order. An error of a kept statement is
raised there. After a rollback nothing that was kept is sent. Lists become arrays of PostgreSQL as
text.
"""

import select
from collections.abc import Callable, Sequence
from typing import Any

from django.db.backends.postgresql import base
from psycopg import adapters
from psycopg.pq import TransactionStatus
from psycopg.types.array import ListDumper


class _Escape:
    """In place of psycopg's regular expression, which calls Python for each quote and backslash;
    JSON has many."""

    @staticmethod
    def sub(_: bytes, text: bytes) -> bytes:
        return bytes(text).replace(b"\\", b"\\\\").replace(b'"', b'\\"')


class QuickListDumper(ListDumper):
    """psycopg's dumper with a quick escape."""

    _re_esc: Any = _Escape


def quick_lists() -> None:
    """Makes all connections of this process use it."""
    adapters.register_dumper(list, QuickListDumper)


Statement = tuple[str, Sequence[Any]]
Execute = Callable[..., Any]

quick_lists()


class DatabaseWrapper(base.DatabaseWrapper):
    """A connection that can keep statements until the next one, or until the commit."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 (Django's signature)
        super().__init__(*args, **kwargs)
        self._kept: list[Statement] = []
        self._kept_last: list[Statement] = []

    def is_usable(self) -> bool:
        """Whether the connection still works, without a query between transactions.

        A server that ends a connection sends a message or the end of the stream first.
        """
        session = self.connection.pgconn if self.connection is not None else None
        if session is not None and session.transaction_status == TransactionStatus.IDLE:
            waiting = select.poll()
            waiting.register(session.socket, select.POLLIN)
            if not waiting.poll(0):
                return True
        return super().is_usable()

    def later(self, sql: str, params: Sequence[Any], *, is_last: bool = False) -> None:
        """Sends a statement together with the transaction's next one, or with its commit.

        `is_last`: with the commit and after all others, because other transactions wait for what
        it locks. Outside a transaction a statement is sent at once.
        """
        if not self.in_atomic_block:
            self._execute([(sql, params)])
        elif is_last:
            self._kept_last.append((sql, params))
        else:
            if not self._kept:
                self.execute_wrappers.insert(0, self._send_with)
            self._kept.append((sql, params))

    def send_kept(self) -> None:
        """Sends all that is kept."""
        kept = self._take()
        if kept:
            with self.wrap_database_errors, self.connection.pipeline():
                self._execute(kept)

    def _send_with(
        self,
        execute: Execute,
        sql: str,
        params: Any,  # noqa: ANN401 (Django's)
        many: bool,  # noqa: FBT001 (Django's)
        context: dict[str, Any],
    ) -> Any:  # noqa: ANN401 (Django's)
        """Sends what is kept together with this statement. The last ones are kept on."""
        last, self._kept_last = self._kept_last, []
        kept = self._take()
        self._kept_last = last
        statement = (sql, params, many, context)
        is_named = getattr(context["cursor"].cursor, "name", None) is not None
        with self.wrap_database_errors, self.connection.pipeline():
            self._execute(kept)
            if not is_named:
                return execute(*statement)
        # A cursor of the server declares itself and reads in one step, which no pipeline allows.
        return execute(*statement)

    def _commit(self) -> None:
        kept = self._take()
        if not kept:
            self._django._commit()
            return
        with self.wrap_database_errors, self.connection.pipeline():
            self._execute(kept)
            # Not the connection's `commit`, which would need a second round trip.
            self.connection.execute("COMMIT")

    def _savepoint(self, sid: str) -> None:
        self.send_kept()
        self._django._savepoint(sid)

    def _savepoint_commit(self, sid: str) -> None:
        # The last ones are kept on: a rollback of what the savepoint is in discards them, too.
        last, self._kept_last = self._kept_last, []
        self.send_kept()
        self._kept_last = last
        self._django._savepoint_commit(sid)

    def _savepoint_rollback(self, sid: str) -> None:
        # What is kept came after the last savepoint, before which everything was sent.
        self._take()
        self._django._savepoint_rollback(sid)

    def _rollback(self) -> None:
        self._take()
        self._django._rollback()

    def _close(self) -> None:
        self._take()
        self._django._close()

    @property
    def _django(self) -> Any:  # noqa: ANN401 (the stubs lack what this backend extends)
        """Django's backend, of which this one extends private methods."""
        return super()

    def _take(self) -> list[Statement]:
        """Returns what is kept, in the order in which it is sent, and forgets it."""
        kept = [*self._kept, *self._kept_last]
        if self._kept:
            self.execute_wrappers.remove(self._send_with)
        self._kept, self._kept_last = [], []
        return kept

    def _execute(self, statements: Sequence[Statement]) -> None:
        with self.cursor() as cursor:
            for sql, params in statements:
                cursor.execute(sql, params)
