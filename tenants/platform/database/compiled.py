"""Queries of the ORM that are compiled once and run with other times, keys and values.

Django compiles a query anew each time, which takes longer than many queries. A `Compiled` query is
compiled at its first use, for a time, a key and values that stand for the real ones, and gives the
same objects. Its text is the same for any number of keys, so connections keep it prepared.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Generic, Literal, TypeAlias, TypeVar
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet
from django.db.models.sql.compiler import SQLCompiler

from tenants.platform.database.look import ASKED_AT, NEAR

Row = TypeVar("Row")
Query: TypeAlias = "Callable[[datetime, Sequence[Any]], QuerySet[Any, Row]]"
Value: TypeAlias = UUID | int
# How the values of a column become Python's, by the number of the column.
Converters: TypeAlias = dict[int, Any]
Values: TypeAlias = Mapping[Value, Value]
Param: TypeAlias = Callable[[datetime, Collection[Any], Values], object]

# They stand for one value each in a query. No row has one of them.
ANY_TENANT = UUID("c0ffee00-dead-4bee-8bad-f00d00c0ff01")
ANY_NUMBER = -7_777_777_777_777_701
ANY_INDEX = 2_147_000_702
ANY_NODE = UUID("c0ffee00-dead-4bee-8bad-f00d00c0ff02")
_STANDING = (ANY_TENANT, ANY_NUMBER, ANY_INDEX, ANY_NODE)
NO_VALUES: Values = {}

# No row has one of these keys.
_KEYS: dict[str, UUID | int | str] = {
    "uuid": UUID("c0ffee00-dead-4bee-8bad-f00d00c0ffee"),
    "bigint": -7_777_777_777_777_777,
    "text": "no row has this name: c0ffee00",
}
_IN = "IN ("


class Compiled(Generic[Row]):
    """A query that depends on a time, its UTC date, times at a fixed distance from it, on keys of
    the given type in `IN`, on values for which `ANY_TENANT` and the like stand, and on nothing else
    that changes."""

    def __init__(self, query: "Query[Row]", *, keys: Literal["uuid", "bigint", "text"] = "uuid") -> None:
        """Takes the query. Nothing is compiled before the first use."""
        self._query, self._type = query, keys

    def __call__(self, now: datetime, keys: Collection[Any] = (), values: Values = NO_VALUES) -> list[Row]:
        """Returns the rows. `values` are by what stands for them."""
        rows, compiler, sql, converters, params = self._made
        bound = copy(compiler)
        said = tuple(param(now, keys, values) for param in params)
        # The rows are made by Django from what a compiler returns: it gets this one.
        setattr(bound, "as_sql", lambda *_, **__: (sql, said))  # noqa: B010 (a method of Django's)
        setattr(bound, "get_converters", lambda _: converters)  # noqa: B010
        fresh = rows.all()
        setattr(fresh.query, "get_compiler", lambda *_, **__: bound)  # noqa: B010
        return list(fresh)

    @cached_property
    def _made(self) -> "tuple[QuerySet[Any, Row], SQLCompiler, str, Converters, list[Param]]":
        key = _KEYS[self._type]
        rows = self._query(ASKED_AT, [key])
        compiler = rows.query.get_compiler(connection=connection)
        sql, values = compiler.as_sql()
        selected = compiler.select or []
        converters = compiler.get_converters([column for column, *_ in selected][: compiler.col_count])
        first, *rest = sql.split("%s")
        texts, params = [first], list[Param]()
        for value, text in zip(values, rest, strict=True):
            if value == key:
                if not texts[-1].endswith(_IN):
                    raise ValueError("a compiled query takes its keys with IN only")
                texts[-1] = f"{texts[-1].removesuffix(_IN)}= ANY (%s::{self._type}[]"
                texts.append(text)
                params.append(lambda _now, keys, _values: list(keys))
            else:
                texts.append(f"%s{text}")
                params.append(_param(value))
        return rows, compiler, "".join(texts), converters, params


def _param(value: object) -> Param:
    if value == ASKED_AT.date():
        return lambda now, *_: now.astimezone(UTC).date()
    if isinstance(value, UUID | int) and value in _STANDING:
        return lambda _now, _keys, values: values[value]
    if not isinstance(value, datetime):
        return lambda *_: value
    distance = value - ASKED_AT
    if abs(distance) > NEAR:
        raise ValueError("a compiled query may use times near its own only")
    return lambda now, *_: now + distance
