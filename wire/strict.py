"""Reading JSON that nobody vouches for, into frozen dataclasses: exactly the fields, exactly the
types, integers only, no name twice. What does not fit is a WireError and nothing else."""

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, Literal

_MAX_INT = (1 << 63) - 1


class WireError(Exception):
    """A message that must not be acted on; `detail` is for logs. `reason` is one of: malformed,
    unknown_version, unknown_kind, unknown_field, unknown_key, bad_mac, too_large."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


def as_bytes(value: object) -> bytes:
    """Raises WireError: malformed."""
    if isinstance(value, bytes):
        return value
    try:
        return str(value).encode()
    except UnicodeEncodeError as error:
        raise WireError("malformed", "not UTF-8") from error


def load(raw: bytes, *, limit: int) -> object:
    """Raises WireError: malformed, too_large (over `limit` bytes)."""
    if len(raw) > limit:
        raise WireError("too_large", f"{len(raw)} bytes")
    hooks: dict[str, Any] = {"parse_float": _no_float, "parse_constant": _no_float}
    try:
        return json.loads(raw.decode(), object_pairs_hook=_unique, **hooks)
    except (ValueError, RecursionError) as error:
        raise WireError("malformed", str(error)) from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name twice in one object")
    return found


def _no_float(text: str) -> object:
    raise ValueError(f"{text} is not an integer")


Reader = Callable[[Any, str], object]
"""Takes a plain value, and how errors name it."""


def build(cls: Callable[..., object], data: object, where: str) -> object:
    """A `cls` of plain values; `where` names it in errors. Raises WireError: malformed,
    unknown_field."""
    return _object_reader(cls)(data, where)


@functools.cache
def _object_reader(cls: Any) -> Reader:  # noqa: ANN401 (a dataclass; they have no type of their own)
    """What its annotations ask is found out once, not for every message."""
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = dataclasses.fields(cls)
    needed = frozenset(f.name for f in fields if f.default is dataclasses.MISSING)
    readers = {field.name: _reader(hints[field.name]) for field in fields}

    def read(data: Any, where: str) -> object:  # noqa: ANN401 (whatever JSON holds)
        if not isinstance(data, dict):
            raise WireError("malformed", f"{where} is not an object")
        if not data.keys() <= readers.keys():
            raise WireError("unknown_field", f"{where}: {sorted(data.keys() - readers.keys())}")
        if not needed <= data.keys():
            raise WireError("malformed", f"{where} lacks {sorted(needed - data.keys())}")
        return cls(**{name: readers[name](data[name], f"{where}.{name}") for name in data})

    return read


def _reader(hint: object) -> Reader:
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        (inner,) = (arm for arm in typing.get_args(hint) if arm is not types.NoneType)
        return _optional_reader(_reader(inner))
    if origin is tuple:
        return _list_reader(_reader(typing.get_args(hint)[0]))
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _object_reader(hint)
    return _plain_reader(_test(hint, origin))


def _optional_reader(inner: Reader) -> Reader:
    return lambda value, where: None if value is None else inner(value, where)


def _list_reader(item: Reader) -> Reader:
    def read(value: Any, where: str) -> object:  # noqa: ANN401 (whatever JSON holds)
        if not isinstance(value, list):
            raise WireError("malformed", f"{where} is not a list")
        return tuple([item(each, f"{where}[{i}]") for i, each in enumerate(value)])

    return read


def _plain_reader(fits: Callable[[Any], bool]) -> Reader:
    def read(value: Any, where: str) -> object:  # noqa: ANN401 (whatever JSON holds)
        if not fits(value):
            raise WireError("malformed", f"{where} has a wrong value")
        return value

    return read


def _test(hint: object, origin: object) -> Callable[[Any], bool]:
    """Whether a value is exactly of the type."""
    if origin is Literal:
        words = typing.get_args(hint)
        return lambda value: isinstance(value, str) and value in words
    if origin is Annotated:
        pattern = typing.get_args(hint)[1]
        if isinstance(pattern, range):
            return lambda value: type(value) is int and value in pattern
        return lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None
    if hint is int:
        return lambda value: type(value) is int and -_MAX_INT <= value <= _MAX_INT
    return lambda value: type(value) is hint
