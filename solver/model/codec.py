"""Canonical JSON and sha256 of Snapshot, Policy and Plan, for replay and audit.

The input order of a snapshot's rows has no meaning: they are sorted first.
"""

import hashlib
import json
import types
from collections.abc import Hashable
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from solver.model.format_1 import is_format_1, raised
from solver.model.inputs import Snapshot
from solver.model.ordering import in_order
from solver.model.plan import Plan
from solver.model.policy import Policy

Document = TypeVar("Document", Snapshot, Policy, Plan)


def encode(document: Snapshot | Policy | Plan) -> bytes:
    """Canonical bytes: sorted keys, no spaces, ASCII, integers only."""
    if isinstance(document, Snapshot):
        document = in_order(document)
    plain = _plain(document)
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def digest(document: Snapshot | Policy | Plan) -> str:
    """sha256 of the canonical bytes, hexadecimal."""
    return digest_of(encode(document))


def digest_of(data: bytes) -> str:
    """The digest of bytes that `encode` has made."""
    return hashlib.sha256(data).hexdigest()


def decode(kind: type[Document], data: bytes) -> Document:
    """Undo `encode`. ValueError: not JSON, a missing or unknown field, or a wrong type.

    A field with a default may be missing, because older versions did not write it. Plans of format
    1 lose the sentences of their reasons.
    """
    document = json.loads(data)
    if kind is Plan and is_format_1(document):
        document = {**raised(document), "format": 1}
    found = _value(kind, document, kind.__name__)
    return cast(Document, found)


def plain_of(row: object) -> Any:  # noqa: ANN401  JSON is what it is
    """A row of a document as JSON has it."""
    return _plain(row)


def row_of(kind: Any, plain: Any) -> Any:  # noqa: ANN401
    """Undo `plain_of` for a row, or for a value, of this type. ValueError: it has another shape."""
    return _value(kind, plain, getattr(kind, "__name__", str(kind)))


def hints_of(kind: type) -> dict[str, Any]:
    """The types of a document's or row's fields, by name."""
    return _hints(kind)


def _plain(value: object) -> Any:  # noqa: ANN401  JSON is what it is
    if value is None or isinstance(value, (int, str)):
        return value
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    kind = cast(Hashable, type(value))
    quiet = _quiet(kind)
    return {
        written: _plain(found)
        for written, name in names_of(kind).items()
        if (found := getattr(value, name)) or name not in quiet
    }


@lru_cache(maxsize=64)
def names_of(kind: Hashable) -> dict[str, str]:
    """The fields of a row by the names that documents have for them."""
    if not is_dataclass(kind):
        raise TypeError(f"{kind} has no place in a document")
    return {field.metadata.get("written_as", field.name): field.name for field in fields(kind)}


@lru_cache(maxsize=64)
def _quiet(kind: Hashable) -> frozenset[str]:
    """Fields that are omitted when empty."""
    return frozenset(f.name for f in fields(cast(Any, kind)) if f.metadata.get("said"))


@lru_cache(maxsize=64)
def _needed(kind: Hashable) -> frozenset[str]:
    """Fields that every version has written."""
    default = {field.name: field.default for field in fields(cast(Any, kind))}
    return frozenset(written for written, name in names_of(kind).items() if default[name] is MISSING)


@lru_cache(maxsize=64)
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _value(kind: Any, data: Any, where: str) -> object:  # noqa: ANN401  type hints are values
    if is_dataclass(kind) and isinstance(kind, type):
        return _record(kind, data, where)
    origin = get_origin(kind)
    if origin is tuple:
        return _tuple(get_args(kind), data, where)
    if origin in (Union, types.UnionType):
        return _either(get_args(kind), data, where)
    if origin is Literal:
        if data not in get_args(kind):
            raise ValueError(f"{where}: {data!r} is not one of {get_args(kind)}")
        return data
    if type(data) is not kind:
        raise ValueError(f"{where}: not {kind.__name__}")
    return data


def _record(kind: type, data: Any, where: str) -> object:  # noqa: ANN401
    names = names_of(kind)
    if not isinstance(data, dict) or not _needed(kind) <= set(data) <= set(names):
        raise ValueError(f"{where}: not the fields of {kind.__name__}")
    hints = _hints(kind)
    return kind(**{names[each]: _value(hints[names[each]], data[each], f"{where}.{each}") for each in data})


def _tuple(inner: tuple[Any, ...], data: Any, where: str) -> tuple[object, ...]:  # noqa: ANN401
    if not isinstance(data, list):
        raise ValueError(f"{where}: not a list")  # noqa: TRY004  bad input, not a bug
    if len(inner) == 2 and inner[1] is Ellipsis:
        return tuple(_value(inner[0], each, f"{where}[]") for each in data)
    if len(inner) != len(data):
        raise ValueError(f"{where}: {len(data)} values, not {len(inner)}")
    return tuple(_value(kind, each, where) for kind, each in zip(inner, data, strict=True))


def _either(kinds: tuple[Any, ...], data: Any, where: str) -> object:  # noqa: ANN401
    if data is None and type(None) in kinds:
        return None
    problem: ValueError | None = None
    for kind in kinds:
        if kind is type(None):
            continue
        try:
            return _value(kind, data, where)
        except ValueError as error:
            problem = error
    raise problem or ValueError(f"{where}: nothing allowed")
