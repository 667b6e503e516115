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


@functools.cache
def _shape(cls: "type[Any]") -> tuple[dict[str, Any], frozenset[str]]:
    """Field annotations by name, and the names that have no default."""
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = dataclasses.fields(cls)
    needed = frozenset(f.name for f in fields if f.default is dataclasses.MISSING)
    return {field.name: hints[field.name] for field in fields}, needed


def build(cls: Callable[..., object], data: object, where: str) -> object:
    """A `cls` of plain values; `where` names it in errors. Raises WireError: malformed,
    unknown_field."""
    if not isinstance(data, dict):
        raise WireError("malformed", f"{where} is not an object")
    hints, needed = _shape(cls)
    if not data.keys() <= hints.keys():
        raise WireError("unknown_field", f"{where}: {sorted(data.keys() - hints.keys())}")
    if not needed <= data.keys():
        raise WireError("malformed", f"{where} lacks {sorted(needed - data.keys())}")
    return cls(**{name: _value(hints[name], data[name], f"{where}.{name}") for name in data})


def _value(hint: object, value: object, where: str) -> object:
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        (inner,) = (arm for arm in typing.get_args(hint) if arm is not types.NoneType)
        return None if value is None else _value(inner, value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise WireError("malformed", f"{where} is not a list")
        item = typing.get_args(hint)[0]
        return tuple(_value(item, each, f"{where}[{i}]") for i, each in enumerate(value))
    if dataclasses.is_dataclass(hint):
        return build(typing.cast(Callable[..., object], hint), value, where)
    if not _fits(hint, origin, value):
        raise WireError("malformed", f"{where} has a wrong value")
    return value


def _fits(hint: object, origin: object, value: object) -> bool:
    if origin is Literal:
        return isinstance(value, str) and value in typing.get_args(hint)
    if origin is Annotated:
        pattern = typing.get_args(hint)[1]
        return isinstance(value, str) and pattern.fullmatch(value) is not None
    return type(value) is hint and (not isinstance(value, int) or abs(value) <= _MAX_INT)
