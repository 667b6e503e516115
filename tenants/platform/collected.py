"""Collects the rows of several members of a transaction, and writes those of one model at once.

What a member does in the transaction counts only by its rows. A member that would write in another
way, or read after it has rows, raises `NotTogether` and has left nothing behind.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from django.db import connection, transaction
from django.db.models import Model

from tenants.platform.database.base import DatabaseWrapper, Statement

Values: TypeAlias = Sequence[Any]
Write: TypeAlias = Callable[[Sequence[Model], Sequence[Values]], None]
Then: TypeAlias = Callable[[], None]


class NotTogether(Exception):
    """Not an error: this member's work needs a transaction of its own."""


@dataclass(slots=True)
class _Rows:
    """The rows of one model, and their values. Each `then` is called when they are written."""

    write: Write
    rows: list[Model] = field(default_factory=list)
    values: list[Values] = field(default_factory=list)
    order: str = ""
    then: list[Then] = field(default_factory=list)


@dataclass(slots=True)
class _Kept:
    """What members want written, in the order in which its kinds first came."""

    rows: dict[tuple[type[Model], bool], _Rows] = field(default_factory=dict)
    last: list[Statement] = field(default_factory=list)

    def join(self, other: "_Kept") -> None:
        for key, group in other.rows.items():
            mine = self.rows.setdefault(key, _Rows(group.write, order=group.order))
            mine.rows += group.rows
            mine.values += group.values
            mine.then += group.then
        self.last += other.last


class Collection:
    """The rows of the members so far."""

    def __init__(self) -> None:
        self._all, self._own = _Kept(), _Kept()
        self._is_member = False

    def add(
        self,
        rows: Sequence[Model],
        values: Sequence[Values],
        write: Write,
        *,
        then: Then | None = None,
        is_last: bool = False,
        order: str = "",
    ) -> None:
        """Collects rows of one model. `is_last`: they are sent with the commit, by what they
        lock (`order`)."""
        group = self._own.rows.setdefault((type(rows[0]), is_last), _Rows(write, order=order))
        group.rows += rows
        group.values += values
        if then is not None:
            group.then.append(then)

    def add_last(self, sql: str, params: Sequence[Any]) -> None:
        """Collects a statement that is sent with the commit."""
        self._own.last.append((sql, params))

    @contextmanager
    def member(self) -> Iterator[None]:
        """Collects what one member writes inside; nothing of it counts if it raises."""
        self._own, self._is_member = _Kept(), True
        try:
            yield
            self._all.join(self._own)
        except NotTogether:
            # Django marks the transaction as broken, but nothing was sent.
            transaction.set_rollback(False)
            raise
        finally:
            self._own, self._is_member = _Kept(), False

    def watch(self, execute: Callable[..., Any], sql: str, *rest: Any) -> Any:  # noqa: ANN401 (Django's)
        """A wrapper of the connection's statements: a member may read before it has rows."""
        if self._is_member:
            if self._own.rows or self._own.last or not sql.startswith("SELECT"):
                raise NotTogether
            self._is_member = False
            self._send_first()
            _database().send_kept()
            self._is_member = True
        return execute(sql, *rest)

    def send(self) -> None:
        """Writes everything; what others wait for goes with the commit."""
        self._send_first()
        for group in self._take(is_last=True):
            rows = sorted(
                zip(group.rows, group.values, strict=True),
                key=lambda pair: str(getattr(pair[0], group.order)),
            )
            group.write(*zip(*rows, strict=True))
        for sql, params in self._all.last:
            _database().later(sql, params, is_last=True)
        self._all = _Kept()

    def _send_first(self) -> None:
        while groups := self._take(is_last=False):
            for group in groups:
                group.write(group.rows, group.values)
                for then in group.then:
                    then()
            # What `then` has collected follows.
            self._all.join(self._own)
            self._own = _Kept()

    def _take(self, *, is_last: bool) -> list[_Rows]:
        keys = [key for key in self._all.rows if key[1] == is_last]
        return [self._all.rows.pop(key) for key in keys]


_collection: ContextVar[Collection | None] = ContextVar("rows_collected", default=None)


def collection_here() -> Collection | None:
    """Returns what collects the rows of this transaction; None: they are written at once."""
    return _collection.get()


@contextmanager
def collecting() -> Iterator[Collection]:
    """Collects the rows of members inside, in an open transaction, and sends them at the end."""
    collection = Collection()
    token = _collection.set(collection)
    try:
        with connection.execute_wrapper(collection.watch):
            yield collection
            collection.send()
    finally:
        _collection.reset(token)


def _database() -> DatabaseWrapper:
    return cast(DatabaseWrapper, connection)
