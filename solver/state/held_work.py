"""Held work as pieces and arrays: what all parts of a cycle read of it, whatever the time.

It is brought up to date from cycle to cycle. Only bookings of which a row has changed are read
again, so what is kept equals what a fresh one has.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from solver.fleet.demand_mix import HeldKind
from solver.fleet.fragmentation import Ints
from solver.fleet.mig_geometry import Geometry, Masks, geometry_of
from solver.fleet.pool import Bools, Pool
from solver.model.demand import Fit
from solver.model.inputs import Gpu, Held, Model, Place, Shape
from solver.quota.use import Kind, Table
from solver.timeline.gpu_calendar import Painted

Grant = tuple[int, int, int, str]
"""Orders equals: whether it has a number, the number or the start, the booking."""
OLD, NUMBERED = range(2)
_MANY = 200
"""From so many changed bookings on, all are joined anew."""


class Piece(NamedTuple):
    """Places of a booking that agree in everything else.

    `units` are those of all places, `row` is the id of the first of them, and `serial` is another
    one whenever the piece is read again.
    """

    gpu_class: str
    booking: str
    tenant: str
    project: str
    owner: str
    tier: str
    starts: int
    ends: int
    cores: int
    memory: int
    quota_owners: tuple[str, ...]
    granted: Grant
    may_move: bool
    places: tuple[Place, ...]
    units: int
    row: str
    serial: int

    @property
    def kind(self) -> Kind:
        """How it uses quota."""
        return Kind(self.quota_owners, self.owner, self.tier, self.gpu_class)


_FIELDS = {"tier": "quota_tier"}
_fields = attrgetter(*(_FIELDS.get(name, name) for name in Piece._fields[1:11]))


class BookedUse(NamedTuple):
    """What a booking has of a class, in the window of its last row."""

    booking: str
    kind: Kind
    units: int
    starts: int
    ends: int
    row: str


class Spread(NamedTuple):
    """Whole GPUs and slices that a class holds: serial of the piece, column, bits, window, and
    whether it may move before it begins.

    The serials rise.
    """

    serial: Ints
    column: Ints
    bits: Masks
    starts: Ints
    ends: Ints
    may_move: Bools

    def only(self, which: Bools) -> "Spread":
        """Some of it."""
        columns: Iterable[Any] = self
        return Spread._make(each[which] for each in columns)

    def followed_by(self, more: "Spread") -> "Spread":
        """This and more with later serials."""
        pairs: Iterable[tuple[Any, Any]] = zip(self, more, strict=True)
        return Spread._make(np.concatenate(pair) for pair in pairs)


class _Booked(NamedTuple):
    """What is read of one booking. `rows` only if one of them has started. `outside` are the begins
    of rows on GPUs that the fleet does not have."""

    pieces: tuple[Piece, ...]
    uses: tuple[BookedUse, ...]
    rows: tuple[Held, ...]
    kinds: tuple[HeldKind, ...]
    outside: tuple[int, ...]


R = TypeVar("R", bound="Row")


class Row(Protocol):
    """Units of a kind in a window. `row` is the id of its first held row."""

    @property
    def row(self) -> str:
        """The id that orders it."""

    @property
    def kind(self) -> Kind:
        """Its kind."""

    @property
    def units(self) -> int:
        """Its units."""

    @property
    def starts(self) -> int:
        """Begin of its window."""

    @property
    def ends(self) -> int:
        """End of its window."""


class Series(Generic[R]):
    """Rows in the order of their ids."""

    def __init__(self) -> None:
        """No rows."""
        self.rows: list[R] = []
        self.table = Table((), *np.zeros((4, 0), dtype=np.int64))
        self._ids: list[str] = []
        self._kinds: dict[Kind, int] = {}

    def join(self, rows: Iterable[R]) -> None:
        """Use these rows instead."""
        self.rows = sorted(rows, key=lambda row: row.row)
        self._ids = [row.row for row in self.rows]
        self._kinds = {}
        self._set(self._numbers(self.rows))

    def splice(self, gone: Iterable[R], new: Iterable[R]) -> None:
        """Remove some rows and add others, which equals joining the result."""
        out = sorted(bisect_left(self._ids, row.row) for row in gone)
        for at in reversed(out):
            del self.rows[at], self._ids[at]
        more = sorted(new, key=lambda row: row.row)
        places = [bisect_left(self._ids, row.row) for row in more]
        for at, row in zip(reversed(places), reversed(more), strict=True):
            self.rows.insert(at, row)
            self._ids.insert(at, row.row)
        left = np.delete(np.stack(self.table[1:]), out, axis=1)
        numbers = np.insert(left, places, self._numbers(more), axis=1)
        if np.bincount(numbers[0], minlength=len(self._kinds)).all():
            self._set(numbers)
        else:
            # A kind has no row any more.
            self.join(self.rows)

    def is_same(self, other: "Series[R]") -> bool:
        """True when both have the same numbers, whatever the order of their kinds."""
        mine, its = self.table, other.table
        return [mine.kinds[at] for at in mine.kind] == [its.kinds[at] for at in its.kind] and all(
            np.array_equal(one, two) for one, two in zip(mine[2:], its[2:], strict=True)
        )

    def _numbers(self, rows: Sequence[R]) -> Ints:
        kinds = self._kinds
        found = [(kinds.setdefault(row.kind, len(kinds)), row.units, row.starts, row.ends) for row in rows]
        return np.array(found, dtype=np.int64).reshape(-1, 4).T

    def _set(self, numbers: Ints) -> None:
        self.table = Table(tuple(self._kinds), *numbers)


V = TypeVar("V")
_NOTHING = _Booked((), (), (), (), ())


class HeldWork:
    """All held work of a fleet."""

    def __init__(self, gpus: tuple[Gpu, ...], models: tuple[Model, ...]) -> None:
        """Nothing is held. KeyError: unknown model."""
        self._fleet = (gpus, models)
        by_slug = {model.slug: model for model in models}
        self._class_of = {gpu.id: gpu.gpu_class for gpu in gpus}
        self._model_of = {gpu.id: gpu.model for gpu in gpus}
        self._geometries: dict[str, Geometry] = {
            name: geometry_of(by_slug[name]) for name in set(self._model_of.values())
        }
        self.pools: dict[str, Pool] = {}
        """Of its fleet, for the demand of the last cycle."""
        self.fits: dict[str, tuple[list[Held], Fit | None]] = {}
        """What rows of bookings are as one fit, each with these rows. It depends on them alone."""
        self._rows: dict[str, Held] = {}
        self._booked: dict[str, _Booked] = {}
        self._started: dict[str, tuple[Held, ...]] = {}
        self._outside: dict[str, tuple[int, ...]] = {}
        self._pieces: Series[Piece] = Series()
        self._uses: Series[BookedUse] = Series()
        self._serial = 0
        self.uncommon: dict[str, dict[int, Piece]] = {}
        """By class and serial, the pieces with host resources or shares."""
        self._spreads: dict[str, Spread] = {}
        self._gone: dict[str, list[Piece]] = {}
        self._new: dict[str, list[Piece]] = {}
        self.painted: dict[tuple[str, str], Painted] = {}
        """By layer and class, calendars with held work alone, from which later cycles begin."""
        self.is_kept = False
        """True once a later cycle has begun with it."""
        self.kinds: Counter[HeldKind] = Counter()
        """How many bookings there are of each kind."""

    @property
    def pieces(self) -> list[Piece]:
        """All pieces, in the order of their first rows."""
        return self._pieces.rows

    @property
    def table(self) -> Table:
        """The pieces as arrays."""
        return self._pieces.table

    @property
    def starts(self) -> Ints:
        """The begins of all rows, on GPUs of the fleet or not."""
        outside = [each for starts in self._outside.values() for each in starts]
        return np.concatenate([self.table.starts, np.array(outside, dtype=np.int64)])

    @property
    def uses(self) -> list[BookedUse]:
        """What bookings have of each class, in the order of their first rows."""
        return self._uses.rows

    @property
    def use_table(self) -> Table:
        """The same as arrays."""
        return self._uses.table

    def is_of(self, gpus: tuple[Gpu, ...], models: tuple[Model, ...]) -> bool:
        """True when it was made for this fleet."""
        return self._fleet == (gpus, models)

    def empty(self) -> "HeldWork":
        """The same fleet with nothing held."""
        return HeldWork(*self._fleet)

    def update(self, held: Iterable[Held]) -> None:
        """Bring it up to date with all rows, which are in the order of their ids."""
        rows = {row.id: row for row in held}
        changed = self._changed(rows)
        self._rows = rows
        if not changed:
            return
        for row in rows.values():
            if row.booking in changed:
                changed[row.booking].append(row)
        before = [self._booked.pop(booking, _NOTHING) for booking in changed]
        after = [self._read(mine) for mine in changed.values()]
        for booking, booked in zip(changed, after, strict=True):
            _set(self._booked, booking, booked if changed[booking] else None)
            _set(self._started, booking, booked.rows)
            _set(self._outside, booking, booked.outside)
        self._count(before, after)
        if len(changed) < _MANY:
            self._splice(before, after)
        else:
            self._join()

    def is_same(self, other: "HeldWork") -> bool:
        """True when both have the same rows, whatever their serials."""
        mine, its = self._pieces, other._pieces
        alike = (
            one._replace(serial=0) == two._replace(serial=0)
            for one, two in zip(self.pieces, other.pieces, strict=False)
        )
        return (
            len(self.pieces) == len(other.pieces)
            and all(alike)
            and mine.is_same(its)
            and self.uses == other.uses
            and self._uses.is_same(other._uses)
        )

    @property
    def started(self) -> Iterable[tuple[Held, ...]]:
        """All rows of each booking of which something has started."""
        return self._started.values()

    def has(self, booking: str) -> bool:
        """True when something is held for the booking."""
        return booking in self._booked

    def serials_of(self, bookings: Iterable[str]) -> Ints:
        """The serials of all pieces of these bookings."""
        known = (self._booked.get(booking, _NOTHING) for booking in bookings)
        found = [piece.serial for booked in known for piece in booked.pieces]
        return np.array(found, dtype=np.int64)

    def spread(self, pool: Pool) -> Spread:
        """Where a class has whole GPUs and slices. The order of its columns follows from the
        fleet."""
        name = pool.gpu_class
        before = self._spreads.get(name)
        gone, new = self._gone.pop(name, []), self._new.pop(name, [])
        if before is None:
            new = [piece for piece in self.pieces if piece.gpu_class == name]
            new.sort(key=lambda piece: piece.serial)
            self._spreads[name] = self._spread_of(pool, new)
        elif gone or new:
            out = {piece.serial for piece in gone}
            left = np.isin(before.serial, [*out], invert=True)
            more = self._spread_of(pool, [piece for piece in new if piece.serial not in out])
            self._spreads[name] = before.only(left).followed_by(more)
        return self._spreads[name]

    def _spread_of(self, pool: Pool, pieces: Iterable[Piece]) -> Spread:
        rows = [
            (
                piece.serial,
                pool.column[place.gpu],
                self._geometry_of(place).mask_of(place),
                piece.starts,
                piece.ends,
                piece.may_move,
            )
            for piece in pieces
            for place in piece.places
            if place.share is None
        ]
        serial, column, bits, starts, ends, moves = np.array(rows, dtype=np.int64).reshape(-1, 6).T
        return Spread(serial, column, bits.astype(np.uint16), starts, ends, moves.astype(np.bool_))

    def _geometry_of(self, place: Place) -> Geometry:
        return self._geometries[self._model_of[place.gpu]]

    def _changed(self, rows: dict[str, Held]) -> dict[str, list[Held]]:
        """The bookings of which a row is new, gone or another."""
        before = self._rows
        pairs = zip(map(before.get, rows), rows.values(), strict=True)
        # Rows that are kept from turn to turn are the same objects.
        news = [(was, row) for was, row in pairs if was is not row and was != row]
        found: dict[str, list[Held]] = {row.booking: [] for pair in news for row in pair if row is not None}
        if news or len(rows) != len(before):
            found.update((row.booking, []) for key, row in before.items() if key not in rows)
        return found

    def _count(self, before: Iterable[_Booked], after: Iterable[_Booked]) -> None:
        gone = [kind for booked in before for kind in booked.kinds]
        self.kinds.update(kind for booked in after for kind in booked.kinds)
        self.kinds.subtract(gone)
        for kind in {kind for kind in gone if not self.kinds[kind]}:
            del self.kinds[kind]

    def _join(self) -> None:
        every = self._booked.values()
        self._pieces.join(piece for booked in every for piece in booked.pieces)
        self._uses.join(use for booked in every for use in booked.uses)
        self._spreads, self._gone, self._new, self.uncommon = {}, {}, {}, {}
        for piece in filter(_is_uncommon, self.pieces):
            self.uncommon.setdefault(piece.gpu_class, {})[piece.serial] = piece

    def _splice(self, before: Sequence[_Booked], after: Sequence[_Booked]) -> None:
        gone = [piece for booked in before for piece in booked.pieces]
        new = [piece for booked in after for piece in booked.pieces]
        self._pieces.splice(gone, new)
        self._uses.splice(
            (use for booked in before for use in booked.uses),
            (use for booked in after for use in booked.uses),
        )
        for piece in gone:
            self._gone.setdefault(piece.gpu_class, []).append(piece)
            self.uncommon.get(piece.gpu_class, {}).pop(piece.serial, None)
        for piece in new:
            self._new.setdefault(piece.gpu_class, []).append(piece)
            if _is_uncommon(piece):
                self.uncommon.setdefault(piece.gpu_class, {})[piece.serial] = piece

    def _read(self, rows: Sequence[Held]) -> _Booked:
        places: dict[tuple[object, ...], list[Place]] = {}
        ids: dict[tuple[object, ...], str] = {}
        uses: dict[str, BookedUse] = {}
        for row in rows:
            place = row.place
            name = self._class_of.get(place.gpu)
            if name is None:
                continue
            may_move = row.level is not None and not row.pinned
            key = (name, *_fields(row), granted_of(row), may_move)
            ids.setdefault(key, row.id)
            places.setdefault(key, []).append(place)
            kind = Kind(row.quota_owners, row.owner, row.quota_tier, name)
            before = uses.get(name)
            units = self._units(place) + (before.units if before else 0)
            first = before.row if before else row.id
            uses[name] = BookedUse(row.booking, kind, units, row.starts, row.ends, first)
        pieces = [
            Piece._make((*key, tuple(mine), sum(map(self._units, mine)), ids[key], serial))
            for serial, (key, mine) in enumerate(places.items(), self._serial)
        ]
        self._serial += len(pieces)
        is_started = any(row.started for row in rows)
        kinds = tuple(_kinds_of(rows, self._class_of))
        started = tuple(rows) if is_started else ()
        outside = tuple(row.starts for row in rows if row.place.gpu not in self._class_of)
        return _Booked(tuple(pieces), tuple(uses.values()), started, kinds, outside)

    def _units(self, place: Place) -> int:
        return self._geometry_of(place).units_taken(place)


def _set(table: dict[str, V], key: str, value: V | None) -> None:
    """Set the value of a key, or have none if it is empty."""
    table.pop(key, None)
    if value:
        table[key] = value


def _kinds_of(rows: Iterable[Held], classes: Mapping[str, str]) -> Iterator[HeldKind]:
    """Class, shape, number and cores of what a booking has of each class and shape."""
    found: dict[tuple[str, Shape], tuple[int, int]] = {}
    for row in rows:
        gpu_class = classes.get(row.place.gpu)
        if gpu_class is not None:
            count, cores = found.get((gpu_class, row.place.shape), (0, 0))
            found[gpu_class, row.place.shape] = (count + 1, cores + row.cores)
    for (gpu_class, shape), (count, cores) in found.items():
        yield gpu_class, (shape, count, cores)


def _is_uncommon(piece: Piece) -> bool:
    if piece.cores or piece.memory:
        return True
    return any(place.share is not None for place in piece.places)


def granted_of(row: Held) -> Grant:
    """The grant number of a row; rows without one are older and go by their start."""
    if row.granted is None:
        return (OLD, row.starts, 0, row.booking)
    return (NUMBERED, *row.granted, row.booking)
