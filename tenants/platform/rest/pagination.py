"""Cursor pagination: each page begins after the last row of the previous page."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar

from django.core import signing
from django.db.models import Model, Q, QuerySet
from rest_framework import serializers

from tenants.platform.errors import invalid
from tenants.platform.rest.fields import Strict
from tenants.platform.words import refusal_text

LIMIT_MAX = 200
LIMIT_DEFAULT = 50

Row = TypeVar("Row", bound=Model)
Item = TypeVar("Item")


class PageQuery(Strict):
    """The parameters of every list."""

    cursor = serializers.CharField(required=False, max_length=500, help_text="`next` of the page before.")
    limit = serializers.IntegerField(required=False, default=LIMIT_DEFAULT, min_value=1, max_value=LIMIT_MAX)


def page_of(
    rows: QuerySet[Row], *, keys: Sequence[str], query: dict[str, Any], scope: str
) -> tuple[list[Row], str | None]:
    """One page of `rows`, and the cursor of the next page or None.

    `keys` define a total order, as in order_by, all in one direction. `scope` names the list and
    its reader, so that a cursor is valid nowhere else.

    Raises:
        Refused: `bad_cursor`.
    """
    rows = rows.order_by(*keys)
    if "cursor" in query:
        rows = rows.filter(_after(keys, _cursor_values(query["cursor"], scope, len(keys))))
    return _page(list(rows[: query["limit"] + 1]), keys, query["limit"], scope)


def page_of_rows(
    rows: Sequence[Item], *, keys: Sequence[str], query: dict[str, Any], scope: str
) -> tuple[list[Item], str | None]:
    """Like `page_of`, for a short list in memory that is sorted by `keys`, all descending.

    Raises:
        Refused: `bad_cursor`.
    """
    found = list(rows)
    if "cursor" in query:
        last = _cursor_values(query["cursor"], scope, len(keys))
        found = [row for row in found if [_plain(row, key) for key in keys] < last]
    return _page(found, keys, query["limit"], scope)


def _page(found: list[Item], keys: Sequence[str], limit: int, scope: str) -> tuple[list[Item], str | None]:
    page = found[:limit]
    if len(found) == len(page):
        return page, None
    return page, signing.dumps([_plain(page[-1], key) for key in keys], salt=scope)


def _cursor_values(cursor: str, scope: str, length: int) -> list[Any]:
    try:
        values: list[Any] = signing.loads(cursor, salt=scope)
    except signing.BadSignature:
        values = []
    if len(values) != length:
        raise invalid("bad_cursor", refusal_text("bad_cursor"), "cursor")
    return values


def _after(keys: Sequence[str], values: Sequence[Any]) -> Q:
    """The condition for rows after `values` in the order of `keys`: a > x or (a = x and b > y) …"""
    first, last = keys[0].removeprefix("-"), values[0]
    # A bound for an index: the conditions that follow are alternatives, which use none.
    bound = Q(**{f"{first}__{'lte' if keys[0].startswith('-') else 'gte'}": last})
    condition, same = Q(), Q()
    for key, value in zip(keys, values, strict=True):
        name = key.removeprefix("-")
        beyond = "lt" if key.startswith("-") else "gt"
        condition |= same & Q(**{f"{name}__{beyond}": value})
        same &= Q(**{name: value})
    return bound & condition


def _plain(row: object, key: str) -> str | int:
    value = getattr(row, key.removeprefix("-"))
    if isinstance(value, datetime):
        return value.isoformat()
    return value if isinstance(value, int) else str(value)
