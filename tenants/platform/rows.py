"""Writes rows with few round trips: many in one statement, sent with what follows.

An insert names the columns that differ from their defaults. Its text is the same for any number of
rows above one, so connections keep it prepared.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeAlias, TypeVar, cast
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, IntegrityError, connection, connections
from django.db.models import (
    BooleanField,
    CharField,
    DateField,
    DateTimeField,
    Field,
    ForeignKey,
    Model,
    SlugField,
    TextField,
    TimeField,
    UUIDField,
)
from django.db.models.expressions import DatabaseDefault

from tenants.platform.collected import Collection, Values, collecting, collection_here
from tenants.platform.database.base import DatabaseWrapper

Answer = TypeVar("Answer")
AnyField: TypeAlias = "Field[Any, Any]"

# A default that is no constant: no value is equal to it.
_COMPUTED = object()
_SENT_AS_IS: dict[type, type] = {
    CharField: str,
    SlugField: str,
    TextField: str,
    UUIDField: UUID,
    BooleanField: bool,
}
_may_be_last: ContextVar[bool] = ContextVar("rows_last", default=False)


def statement_later(sql: str, params: Sequence[Any], *, is_last: bool = False) -> None:
    """Sends a statement without a result together with the transaction's next one or its commit."""
    collection = collection_here()
    if collection is not None and is_last:
        collection.add_last(sql, params)
    else:
        cast(DatabaseWrapper, connection).later(sql, params, is_last=is_last)


def statements_send() -> None:
    """Sends all statements that are kept for later."""
    cast(DatabaseWrapper, connection).send_kept()


def rows_write(rows: Sequence[Model], *, is_last: bool = False, order: str = "pk") -> None:
    """Inserts rows of one model together with the transaction's next statement or its commit.

    Generated keys are not read: use `rows_insert` where they are needed. `is_last`: see
    `last_rows_allowed`. Rows of members that are gathered are inserted together, the last ones
    in the `order` of a field that names what they lock.
    """
    if not rows:
        return
    write, values = _write_last if is_last else _write, _values(rows)
    collection = collection_here()
    if collection is None:
        write(rows, values)
    else:
        collection.add(rows, values, write, is_last=is_last, order=order)


def rows_insert(rows: Sequence[Model], then: Callable[[], None] | None = None) -> None:
    """Inserts rows of one model, and sets their generated keys. `then` is what needs the keys.

    All happens now, or together with what is gathered.
    """
    if not rows:
        return
    values, collection = _values(rows), collection_here()
    if collection is not None and then is not None:
        collection.add(rows, values, _write_keyed, then=then)
        return
    _write_keyed(rows, values)
    if then is not None:
        then()


def rows_insert_free(rows: Sequence[Model]) -> set[Any]:
    """Inserts rows of one model now, except those that a constraint forbids. Returns the keys of
    those that were written."""
    if not rows:
        return set()
    sql, params = _insert(rows, _values(rows))
    key = rows[0]._meta.pk
    with connection.cursor() as cursor:
        cursor.execute(f'{sql} ON CONFLICT DO NOTHING RETURNING "{key.column}"', params)
        written = {value for (value,) in cursor.fetchall()}
    _mark_as_written([row for row in rows if row.pk in written])
    return written


def last_rows_allowed() -> bool:
    """Whether rows that others wait for can be sent with the commit.

    Then nobody reads what a constraint says about them: the transaction of `with_last_rows` is
    undone and repeated without this.
    """
    return _may_be_last.get()


def with_last_rows(work: Callable[[], Answer]) -> Answer:
    """Runs `work`, a whole transaction, so that rows that others wait for are sent with its commit.

    If a constraint refuses the transaction, `work` runs again with each row written in its turn,
    where the refusal can be examined.
    """
    try:
        with _last_rows(allowed=True):
            return work()
    except IntegrityError:
        return work()


@contextmanager
def rows_in_turn() -> Iterator[None]:
    """Writes each row in its turn, for work that is undone and still has to know its refusals."""
    with _last_rows(allowed=False):
        yield


@contextmanager
def _last_rows(*, allowed: bool) -> Iterator[None]:
    before = _may_be_last.set(allowed)
    try:
        yield
    finally:
        _may_be_last.reset(before)


@contextmanager
def rows_together() -> Iterator[Collection]:
    """Inserts the rows of members together at the end of the open transaction."""
    with _last_rows(allowed=True), collecting() as collection:
        yield collection


def _write(rows: Sequence[Model], values: Sequence[Values]) -> None:
    cast(DatabaseWrapper, connection).later(*_insert(rows, values))
    _mark_as_written(rows)


def _write_last(rows: Sequence[Model], values: Sequence[Values]) -> None:
    cast(DatabaseWrapper, connection).later(*_insert(rows, values), is_last=True)
    _mark_as_written(rows)


def _write_keyed(rows: Sequence[Model], values: Sequence[Values]) -> None:
    sql, params = _insert(rows, values)
    key = rows[0]._meta.pk
    with connection.cursor() as cursor:
        cursor.execute(f'{sql} RETURNING "{key.column}"', params)
        for row, (value,) in zip(rows, cursor.fetchall(), strict=True):
            setattr(row, key.attname, value)
    _mark_as_written(rows)


def _insert(rows: Sequence[Model], values: Sequence[Values]) -> tuple[str, list[Any]]:
    """The insert of columns that differ from their defaults, and its parameters."""
    fields, params = list[AnyField](), list[Any]()
    # Not `connection`, which looks the connection up at each of its attributes.
    database = connections[DEFAULT_DB_ALIAS]
    for (field, default, _), column in zip(_columns(type(rows[0])), zip(*values, strict=True), strict=True):
        if any(value != default for value in column):
            fields.append(field)
            sent_as_is = _sent_as_is(field)
            params.append(
                [
                    value if type(value) is sent_as_is else field.get_db_prep_save(value, database)
                    for value in column
                ]
            )
    is_one = len(rows) == 1
    sql = _insert_of(type(rows[0]), tuple(fields), is_one)
    return sql, [value for (value,) in params] if is_one else params


def _values(rows: Sequence[Model]) -> list[Values]:
    columns = _columns(type(rows[0]))
    return [
        [
            getattr(row, field.attname) if is_plain else _value(field, row, default)
            for field, default, is_plain in columns
        ]
        for row in rows
    ]


def _value(field: AnyField, row: Model, default: object) -> Any:  # noqa: ANN401 (a column's)
    value = field.pre_save(row, True)  # noqa: FBT003 (Django's signature)
    if not isinstance(value, DatabaseDefault):
        return value
    if default is not _COMPUTED:
        # The database will store this constant, so the object gets it, too.
        setattr(row, field.attname, default)
    return default


@cache
def _columns(model: type[Model]) -> tuple[tuple[AnyField, object, bool], ...]:
    """The columns of a model that are not generated, each with its default in the database, and
    whether its value is simply the attribute."""
    fields = (each for each in model._meta.concrete_fields if not each.generated)
    return tuple((field, _default(field), _is_plain(field)) for field in fields)


def _is_plain(field: AnyField) -> bool:
    """Whether the value is the attribute: no default of the database, and nothing computed."""
    known = {each.pre_save for each in (Field, DateField, DateTimeField, TimeField)}
    is_computed = getattr(field, "auto_now", False) or getattr(field, "auto_now_add", False)
    return type(field).pre_save in known and not is_computed and not field.has_db_default()


def _default(field: AnyField) -> object:
    if not field.has_db_default():
        return None
    is_constant = not hasattr(field.db_default, "resolve_expression")
    return field.db_default if is_constant else _COMPUTED


@cache
def _insert_of(model: type[Model], fields: tuple[AnyField, ...], is_one: bool) -> str:  # noqa: FBT001
    """The text of an insert: of one row, or of rows whose columns are arrays."""
    columns = ", ".join(f'"{field.column}"' for field in fields)
    into = f'INSERT INTO "{model._meta.db_table}" ({columns})'
    if is_one:
        return f"{into} VALUES ({', '.join(['%s'] * len(fields))})"
    arrays = ", ".join(f"%s::{_type_of(field)}[]" for field in fields)
    return f"{into} SELECT * FROM unnest({arrays})"  # noqa: S608 (names of our columns)


def _type_of(field: AnyField) -> str:
    """The type of its values, without a length: a cast to one would cut them without an error."""
    named = field.rel_db_type(connection) if field.primary_key else field.db_type(connection)
    return re.sub(r"\(.*\)", "", cast(str, named))


@cache
def _sent_as_is(field: AnyField) -> type | None:
    """The type of values of which Django's preparation returns each unchanged."""
    while isinstance(field, ForeignKey):
        field = field.target_field
    return _SENT_AS_IS.get(type(field))


def _mark_as_written(rows: Sequence[Model]) -> None:
    for row in rows:
        row._state.adding = False
        row._state.db = DEFAULT_DB_ALIAS
