"""Bodies of requests and answers: strict JSON of limited size and depth, with exact decimals."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, NoReturn

from rest_framework import serializers
from rest_framework.request import Request

from tenants.platform.errors import Refused, invalid
from tenants.platform.words import refusal_text

Render = Callable[[Any], Any]
MAX_BYTES = 1024 * 1024
MAX_DEPTH = 16
# No float has more. Written out, a number of twelve characters could take a gigabyte.
MAX_EXPONENT = 400
# A lone surrogate can't be encoded, and PostgreSQL can't store a NUL.
FORBIDDEN = re.compile(r"[\x00\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Body:
    """The exact bytes of a body, and the parsed object."""

    raw: bytes
    data: dict[str, Any]


def body_of(request: Request) -> Body:
    """The request's JSON object; an empty body is an empty object.

    Raises:
        Refused: `body_too_large`, `media_type`, `malformed_json`, `bad_text`, `too_deep`.
    """
    raw = _read(request)
    if not raw:
        return Body(raw, {})
    _require_json(request)
    data = _parse(raw)
    if _may_be_bad(raw):
        _require_good(data)
    if not isinstance(data, dict):
        raise _bad("malformed_json", refusal_text("body_object"))
    return Body(raw, data)


def _read(request: Request) -> bytes:
    # The length may be wrong; reading one more byte shows whether the body is too large.
    claimed = request.META.get("CONTENT_LENGTH") or "0"
    if claimed.isascii() and claimed.isdigit() and int(claimed) > MAX_BYTES:
        raise _too_large()
    raw = request.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise _too_large()
    return raw


def _require_json(request: Request) -> None:
    media, _, parameters = request.content_type.partition(";")
    charset = parameters.strip().lower().replace('"', "")
    if media.strip().lower() != "application/json" or charset not in ("", "charset=utf-8"):
        raise invalid("media_type", refusal_text("media_type"), "Content-Type")
    if request.META.get("HTTP_CONTENT_ENCODING", "identity") != "identity":
        raise invalid("media_type", refusal_text("body_compressed"), "Content-Encoding")


def _parse(raw: bytes) -> object:
    try:
        return json.loads(
            raw.decode("utf-8"),
            parse_float=exact_number,
            parse_constant=_no_constant,
            object_pairs_hook=_object,
        )
    except RecursionError:
        raise _bad("too_deep", refusal_text("too_deep", max_depth=MAX_DEPTH)) from None
    except (ValueError, ArithmeticError):
        raise _bad("malformed_json", refusal_text("body_json")) from None


def exact_number(text: str) -> Decimal:
    """Reads a number of JSON exactly. Raises Refused for one beyond all floats."""
    found = Decimal(text)
    if not -MAX_EXPONENT <= found.adjusted() <= MAX_EXPONENT:
        raise _bad("malformed_json", refusal_text("json_beyond"))
    return found


def _no_constant(name: str) -> NoReturn:
    raise _bad("malformed_json", refusal_text("json_infinite", name=name))


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _bad("repeated_field", refusal_text("repeated_field"))
    return found


def _may_be_bad(raw: bytes) -> bool:
    """Whether it can be too deep, or have forbidden characters: valid UTF-8 has them as escapes."""
    return b"\\u" in raw or raw.count(b"{") + raw.count(b"[") >= MAX_DEPTH


def _require_good(data: object) -> None:
    for depth, value in _walk(data):
        if depth > MAX_DEPTH:
            raise _bad("too_deep", refusal_text("too_deep", max_depth=MAX_DEPTH))
        if isinstance(value, str) and FORBIDDEN.search(value):
            raise _bad("bad_text", refusal_text("text_bytes"))


def _walk(root: object) -> Iterator[tuple[int, object]]:
    """Yields every key and value with its depth, without recursion."""
    waiting = [(1, root)]
    while waiting:
        depth, value = waiting.pop()
        yield depth, value
        if isinstance(value, dict):
            waiting.extend((depth, key) for key in value)
            waiting.extend((depth + 1, child) for child in value.values())
        elif isinstance(value, list):
            waiting.extend((depth + 1, child) for child in value)


def _bad(code: str, sentence: str) -> Refused:
    return Refused(code, sentence, "invalid")


def _too_large() -> Refused:
    return _bad("body_too_large", refusal_text("body_too_large"))


class Shape(serializers.Serializer[Any]):
    """A serializer of mappings: each field is the value under its own name, and None stays None.

    It knows how to render each field after the first time. Django REST framework looks up anew, for
    each value, where it may come from.
    """

    def to_representation(self, instance: Mapping[str, Any]) -> dict[str, Any]:
        """Renders the values. Raises KeyError for one that is missing."""
        return {
            name: None if (value := instance[name]) is None else render(value)
            for name, render in self._renders
        }

    @cached_property
    def _renders(self) -> tuple[tuple[str, Render], ...]:
        return tuple((name, field.to_representation) for name, field in self.fields.items())
