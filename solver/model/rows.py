"""Snapshots and plans as rows by key: what changes from one to the next, and a digest that costs as
much as the change.

Times that move with the clock are kept relative to it, so that a row changes only when its booking
does.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache
from hashlib import sha256
from operator import attrgetter
from typing import Any, TypeVar, cast, get_args

from solver.model.codec import hints_of, names_of, plain_of, row_of
from solver.model.inputs import Model, Request, Snapshot
from solver.model.ordering import model_in_order, request_in_order
from solver.model.plan import Plan

Document = TypeVar("Document", Snapshot, Plan)
Key = str | tuple[str | int, ...]
Table = Mapping[Key, Any]

_HEADS = {Snapshot: "now", Plan: "format"}
# The fields that name a row of these sections. Other rows are named by the first of _NAMES.
_NAMED_BY = {
    "limits": ("owner", "gpu_class"),
    "labs": ("owner", "gpu_class"),
    "persons": ("scope", "person", "gpu_class"),
    "cooling": ("tenant",),
    "caps": ("owner", "gpu_class", "starts", "most"),
    "used": ("project", "gpu_class", "day", "tenant", "owner"),
    "blackouts": ("gpu", "starts", "ends"),
    "peaks": ("gpu_class", "starts"),
    "energy": ("zone",),
    "caches": ("node",),
    "guarantees": ("owner", "gpu_class", "starts"),
    "tier_parts": ("owner", "gpu_class"),
}
_NAMES = ("id", "booking", "order", "slug", "beneficiary")


def _named_by(kind: type, section: str) -> tuple[str, ...]:
    row = _row_type(kind, section)
    if not is_dataclass(row):
        return ()
    known = {each.name for each in fields(row)}
    return _NAMED_BY.get(section) or tuple(name for name in _NAMES if name in known)[:1]


def _row_type(kind: type, section: str) -> Any:  # noqa: ANN401
    return get_args(hints_of(kind)[section])[0]


KEYS: dict[type, dict[str, tuple[str, ...]]] = {
    kind: {each.name: _named_by(kind, each.name) for each in fields(kind) if each.name != head}
    for kind, head in _HEADS.items()
}
"""The fields that name a row, by section; without any, its text does. Rows with equal names are
numbered."""

# No booking may start before 1970, so this is never a real time.
_NOW = -1


@dataclass(frozen=True, slots=True)
class Rows:
    """A document: its time or format, and the rows of each section by key."""

    head: int
    tables: Mapping[str, Table]


@dataclass(frozen=True, slots=True)
class Delta:
    """The changes that make one document another: rows to `put`, keys to `drop`, by section."""

    head: int
    put: Mapping[str, Table]
    drop: Mapping[str, tuple[Key, ...]]

    def __bool__(self) -> bool:
        return any(self.put.values()) or any(self.drop.values())


def rows_of(document: Snapshot | Plan) -> Rows:
    """The rows of a document, with times relative to its clock."""
    head: int = getattr(document, _HEADS[type(document)])
    return Rows(
        head,
        {
            name: table_of(type(document), name, getattr(document, name), head)
            for name in KEYS[type(document)]
        },
    )


def table_of(kind: type, section: str, rows: Iterable[Any], head: int) -> dict[Key, Any]:
    """The rows of one section by key."""
    if kind is Snapshot and section in _CLOCKED:
        clocked = _CLOCKED[section]
        rows = [clocked(row, head) for row in rows]
    key, rows = _key_of(KEYS[kind][section]), list(rows)
    found: dict[Key, Any] = {key(row): row for row in rows}
    if len(found) == len(rows):
        return found
    # The order of a snapshot's rows has no meaning, that of a plan's has.
    return _numbered(sorted(rows, key=repr) if kind is Snapshot else rows, key)


def document_of(kind: type[Document], rows: Rows) -> Document:
    """Undo `rows_of`; the rows of a section are in the order of their keys."""
    sections: dict[str, Any] = {}
    for name, table in rows.tables.items():
        found = [table[key] for key in _ordered(table)]
        if kind is Snapshot and name in _UNCLOCKED:
            unclocked = _UNCLOCKED[name]
            found = [unclocked(row, rows.head) for row in found]
        sections[name] = tuple(found)
    sections[_HEADS[kind]] = rows.head
    return kind(**sections)


def difference(old: Rows, new: Rows) -> Delta:
    """The delta from one document to another of its kind."""
    put, drop = {}, {}
    for name, after in new.tables.items():
        before = old.tables[name]
        changed = {
            key: row
            for key, row in after.items()
            # Rows that are kept from turn to turn are the same objects.
            if (known := before.get(key)) is not row and known != row
        }
        if changed:
            put[name] = changed
        if gone := tuple(key for key in before if key not in after):
            drop[name] = gone
    return Delta(new.head, put, drop)


def advance(rows: Rows, delta: Delta) -> Rows:
    """The document after the delta."""
    tables = dict(rows.tables)
    for name in {*delta.put, *delta.drop}:
        table = dict(tables[name])
        for key in delta.drop.get(name, ()):
            del table[key]
        table.update(delta.put.get(name, {}))
        tables[name] = table
    return Rows(delta.head, tables)


def delta_encode(old: Rows, delta: Delta) -> bytes:
    """Canonical JSON of a delta. Of a row that `old` has, only what differs is written."""
    put: dict[str, list[Any]] = {}
    changed: dict[str, list[Any]] = {}
    for name, table in delta.put.items():
        for key, row in table.items():
            known = old.tables[name].get(key)
            if known is None or not is_dataclass(row):
                put.setdefault(name, []).append([key, plain_of(row)])
            else:
                changed.setdefault(name, []).append([key, _fields_changed(known, row)])
    drop = {name: list(keys) for name, keys in delta.drop.items()}
    document = {"head": delta.head, "put": put, "set": changed, "drop": drop}
    return _canonical({name: each for name, each in document.items() if each != {}})


def delta_decode(kind: type[Snapshot] | type[Plan], old: Rows, data: bytes) -> Delta:
    """Undo `delta_encode`. ValueError or LookupError: it does not fit to `old`."""
    document, put = json.loads(data), dict[str, dict[Key, Any]]()
    for name, rows in document.get("put", {}).items():
        row_type = _row_type(kind, name)
        put[name] = {_key(key): row_of(row_type, plain) for key, plain in rows}
    for name, rows in document.get("set", {}).items():
        row_type = _row_type(kind, name)
        names, hints = names_of(row_type), hints_of(row_type)
        for key, plain in rows:
            values = {names[each]: row_of(hints[names[each]], at) for each, at in plain.items()}
            put.setdefault(name, {})[_key(key)] = replace(old.tables[name][_key(key)], **values)
    drop = {name: tuple(map(_key, keys)) for name, keys in document.get("drop", {}).items()}
    return Delta(document["head"], put, drop)


def is_in_order(rows: Rows) -> bool:
    """Whether `document_of` gives the rows of each section in the order that they had."""
    return all(list(table) == _ordered(table) for table in rows.tables.values())


class RowsDigest:
    """SHA-256 of the digests of all rows, in 256 buckets by their first byte.

    A change costs the digests of the changed rows and of their buckets.
    """

    def __init__(
        self, known: dict[tuple[str, Key], bytes], buckets: list[frozenset[bytes]], head: int
    ) -> None:
        """Use `of`, then `after`."""
        self._known, self._buckets, self._head = known, buckets, head
        self._sums = [_bucket_sum(each) for each in buckets]

    @classmethod
    def of(cls, rows: Rows) -> "RowsDigest":
        """The digest of a whole document."""
        known = {
            (name, key): _row_digest(name, key, row)
            for name, table in rows.tables.items()
            for key, row in table.items()
        }
        buckets: list[set[bytes]] = [set() for _ in range(256)]
        for each in known.values():
            buckets[each[0]].add(each)
        return cls(known, [frozenset(each) for each in buckets], rows.head)

    def after(self, delta: Delta) -> "RowsDigest":
        """The digest after a delta; this one stays."""
        known, gone, new = dict(self._known), set[bytes](), set[bytes]()
        for name, keys in delta.drop.items():
            gone.update(known.pop((name, key)) for key in keys)
        for name, table in delta.put.items():
            for key, row in table.items():
                if (before := known.get((name, key))) is not None:
                    gone.add(before)
                known[name, key] = each = _row_digest(name, key, row)
                new.add(each)
        found = object.__new__(RowsDigest)
        found._known, found._head = known, delta.head
        found._buckets, found._sums = self._changed(gone, new)
        return found

    def hex(self) -> str:
        """The digest, hexadecimal."""
        return sha256(b"".join((str(self._head).encode(), b":", *self._sums))).hexdigest()

    def _changed(self, gone: set[bytes], new: set[bytes]) -> tuple[list[frozenset[bytes]], list[bytes]]:
        buckets, sums = list(self._buckets), list(self._sums)
        for number in {each[0] for each in gone | new}:
            mine = {each for each in new if each[0] == number}
            buckets[number] = (buckets[number] - gone) | mine
            sums[number] = _bucket_sum(buckets[number])
        return buckets, sums


def _bucket_sum(bucket: frozenset[bytes]) -> bytes:
    return sha256(b"".join(sorted(bucket))).digest()


def _row_digest(section: str, key: Key, row: object) -> bytes:
    return sha256(_canonical([section, key, plain_of(row)])).digest()


def _canonical(plain: object) -> bytes:
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _fields_changed(old: object, new: object) -> dict[str, Any]:
    return {
        written: plain_of(value)
        for written, name in names_of(cast(Any, type(new))).items()
        if (value := getattr(new, name)) != getattr(old, name)
    }


@lru_cache(maxsize=64)
def _key_of(names: tuple[str, ...]) -> Callable[[Any], Key]:
    return attrgetter(*names) if names else str


def _key(plain: Any) -> Key:  # noqa: ANN401  JSON
    return tuple(plain) if isinstance(plain, list) else plain


def _numbered(rows: Iterable[Any], key: Callable[[Any], Key]) -> dict[Key, Any]:
    """Rows by key where some have equal keys: the second has a number."""
    found: dict[Key, Any] = {}
    for row in rows:
        name = parts = key(row)
        number = 0
        while name in found:
            number += 1
            name = (*(parts if isinstance(parts, tuple) else (parts,)), number)
        found[name] = row
    return found


def _ordered(table: Table) -> list[Key]:
    keys = list(table)
    # Strings need no key, which is most of the time.
    return sorted(keys, key=None if set(map(type, keys)) == {str} else sort_key)


def sort_key(key: Key) -> tuple[str | int, ...]:
    """The order of keys in a document."""
    return key if isinstance(key, tuple) else (key,)


def _model(model: Model, _: int) -> Model:
    return model_in_order(model)


def _waiting_clocked(request: Request, now: int) -> Request:
    """A paused booking asks to resume now, until it has a place."""
    request = request_in_order(request)
    is_now = request.paused and request.earliest == now
    return replace(request, earliest=_NOW) if is_now else request


def _waiting_unclocked(request: Request, now: int) -> Request:
    return replace(request, earliest=now) if request.earliest == _NOW else request


def _running_clocked(request: Request, now: int) -> Request:
    """A running booking would ask now for what is left of it; it has no planned start."""
    wait = request.home_wait - now if request.home else request.home_wait
    return replace(request, earliest=request.earliest - now, duration=request.duration + now, home_wait=wait)


def _running_unclocked(request: Request, now: int) -> Request:
    return _running_clocked(request, -now)


_CLOCKED: dict[str, Callable[[Any, int], Any]] = {
    "models": _model,
    "requests": _waiting_clocked,
    "running": _running_clocked,
}
_UNCLOCKED: dict[str, Callable[[Any, int], Any]] = {
    "requests": _waiting_unclocked,
    "running": _running_unclocked,
}
