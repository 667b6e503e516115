"""Asks many yes-or-no questions of the database in one statement, which is compiled once.

Django compiles a query anew each time. A `Look` compiles its queries at the first use, for a time
far in the future, and puts the real time in their place afterwards.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Any, TypeAlias

from django.db import connection
from django.db.models import QuerySet
from psycopg.sql import Literal

Question: TypeAlias = Callable[[datetime], "QuerySet[Any]"]

# No row and no constant of the code is near this time.
ASKED_AT = datetime(3000, 1, 1, 11, 22, 33, 444_555, tzinfo=UTC)
NEAR = timedelta(days=36_500)
_NOW = "%(now)s::timestamptz"


class Look:
    """Questions by name, each the rows of which it asks whether there are any at a time.

    A question may use the time, and times at a fixed distance from it, and nothing else that
    changes.
    """

    def __init__(self, questions: Mapping[str, Question]) -> None:
        """Takes the questions. Nothing is compiled before the first use."""
        self._questions = questions

    def __call__(self, now: datetime) -> frozenset[str]:
        """Returns the names of the questions whose answer is yes."""
        with connection.cursor() as cursor:
            cursor.execute(self._sql, {"now": now})
            answers = cursor.fetchone()
        return frozenset(name for name, answer in zip(self._questions, answers, strict=True) if answer)

    @cached_property
    def _sql(self) -> str:
        asked = (_exists(question(ASKED_AT)) for question in self._questions.values())
        return "SELECT " + ",\n".join(asked)


def _exists(rows: "QuerySet[Any]") -> str:
    """The text of an EXISTS, with its parameters in place and the time as `now`."""
    compiler = rows.query.exists().get_compiler(connection=connection)
    sql, params = compiler.as_sql()
    first, *rest = sql.split("%s")
    placed = (_placed(param) + text for param, text in zip(params, rest, strict=True))
    return f"EXISTS({first}{''.join(placed)})"


def _placed(param: object) -> str:
    if isinstance(param, datetime):
        if abs(param - ASKED_AT) > NEAR:
            raise ValueError("a question may use times near its own only")
        return f"({_NOW} + make_interval(secs => {(param - ASKED_AT).total_seconds()}))"
    if isinstance(param, date):
        if param != ASKED_AT.date():
            raise ValueError("a question may use the UTC date of its time only")
        return f"({_NOW} AT TIME ZONE 'UTC')::date"
    return Literal(param).as_string(connection.connection).replace("%", "%%")
