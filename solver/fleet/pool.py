"""The GPUs of one class: the shapes that each can serve, how many fit, and what is left."""

from collections.abc import Callable, Container, Iterable, Mapping
from copy import copy
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from solver.fleet.demand_mix import EVEN_MIX, Mix, demand_tables_of
from solver.fleet.fragmentation import DEFAULT_SCORING, ILLEGAL, Ints, ScoreTables
from solver.fleet.mig_geometry import Best, Geometry, Masks, geometry_of, modes_for
from solver.model.inputs import Gpu, Mode, Model, Place, Shape, Together
from solver.model.policy import Scoring
from solver.model.sites.where import Where

LEVELS: tuple[Together, ...] = ("gpu", "domain", "node", "rack", "any")
"""The tightest first. The last one is a zone: no gang is in two."""

Bools = npt.NDArray[np.bool_]
Index = npt.NDArray[np.intp]


Counts = npt.NDArray[Any]

_NEVER = np.iinfo(np.int64).max
_FEW = 4
"""So many columns or fewer are found one by one."""

Kind = tuple[Geometry, Mode | None]


class Columns:
    """The columns of a class, ordered by zone, rack, node, domain, index, id."""

    def __init__(self, gpus: Iterable[Gpu]) -> None:
        self.gpus = tuple(sorted(gpus, key=_column_key))
        self.column = {gpu.id: column for column, gpu in enumerate(self.gpus)}
        self.in_service: Bools = np.array([gpu.usable for gpu in self.gpus], dtype=np.bool_)
        self.silent: Bools = np.array([gpu.silent for gpu in self.gpus], dtype=np.bool_)
        # Usable GPUs take new work; others in service only keep what they have.
        self.usable: Bools = self.in_service & ~self.silent
        self.flexible: Bools = np.array([gpu.mode is None for gpu in self.gpus], dtype=np.bool_)
        self.bounds: dict[Together, Index] = {level: self._bounds(level) for level in LEVELS}
        self._widest = {level: self._most_columns(level) for level in LEVELS}
        self.nodes = tuple(self.gpus[first].node for first in self.bounds["node"])
        self.zones = tuple(self.gpus[first].zone for first in self.bounds["any"])
        self.has_zones = len(self.zones) > 1
        self.has_domains = len(self.bounds["domain"]) < len(self.gpus)
        self.near_of = _near_of(self.gpus)
        """The number of each column's group by PCIe, for each depth, the loosest first; empty where no
        GPU names one."""
        self._groups: dict[Together, Index] = {}
        self.node_of = self.groups("node")
        """The number of each column's node."""
        self._within: dict[tuple[str, ...], Bools] = {}
        self._allowed: dict[Where | None, Bools] = {}

    def __len__(self) -> int:
        return len(self.gpus)

    def sums(self, level: Together, capacity: npt.NDArray[np.uint8]) -> Ints:
        """Capacity per group of the level: (…, columns) -> (…, groups)."""
        if level == "any" and not self.has_zones:
            total: Ints = np.sum(capacity, axis=-1, dtype=np.int64, keepdims=True)
            return total
        sums: Ints = np.add.reduceat(capacity, self.bounds[level], axis=-1, dtype=np.int64)
        return sums

    def has_group(self, level: Together, idle: npt.NDArray[np.uint8], count: int) -> Bools:
        """For windows × columns of ones where idle: True when some group of the level has that
        many."""
        narrow = np.uint8 if self._widest[level] < 256 else np.int64
        sums = np.add.reduceat(idle, self.bounds[level], axis=-1, dtype=narrow)
        found: Bools = np.any(sums >= count, axis=-1)
        return found

    def last_of(self, level: Together, until: Ints, count: int) -> int:
        """The latest second that so many columns of one group of the level reach; 0: no group has
        as many."""
        if count > self.widest(level):
            return 0
        if self.is_quick(level, count):
            return int(self._quick_last_of(level, until, count))
        if level == "any" and not self.has_zones:
            return int(np.sort(until)[-count])
        order = np.lexsort((-until, self.groups(level)))
        sizes = np.diff(self.bounds[level], append=len(self))
        nth = (self.bounds[level] + count - 1)[sizes >= count]
        return int(until[order[nth]].max())

    def last_of_rows(self, level: Together, until: Ints, count: int, ends: Ints) -> Ints:
        """For rows × columns, which are used up: `last_of` each row where that is quick, else a bound of
        it that is as late as the row's end if it is."""
        if self.is_quick(level, count):
            return self._quick_last_of(level, until, count)
        is_any = level == "any" and not self.has_zones
        if is_any and count <= _FEW:
            return _nth_largest(until, count)
        idle = until >= ends[:, None]
        if is_any:
            able: Bools = np.count_nonzero(idle, axis=-1) >= count
        else:
            able = self.has_group(level, idle.view(np.uint8), count)
        return np.where(able, _NEVER, ends - 1)

    def is_quick(self, level: Together, count: int) -> bool:
        """True for one column, and for all of a group."""
        return count == 1 or (level != "any" and count == self.widest(level))

    def _quick_last_of(self, level: Together, until: Ints, count: int) -> Ints:
        if count == 1:
            found: Ints = until.max(axis=-1)
            return found
        if count * len(self.bounds[level]) == len(self):
            found = _least_of(until, count).max(axis=-1)
            return found
        is_full = np.diff(self.bounds[level], append=len(self)) == count
        found = np.minimum.reduceat(until, self.bounds[level], axis=-1)[..., is_full].max(axis=-1)
        return found

    def widest(self, level: Together) -> int:
        """The size of the largest group of a level."""
        return self._widest[level]

    def members(self, level: Together, group: int) -> range:
        """Columns of a group."""
        bounds = self.bounds[level]
        last = int(bounds[group + 1]) if group + 1 < len(bounds) else len(self)
        return range(int(bounds[group]), last)

    def groups(self, level: Together) -> Index:
        """The group of each column."""
        if level not in self._groups:
            columns = np.arange(len(self))
            self._groups[level] = self.bounds[level].searchsorted(columns, side="right") - 1
        return self._groups[level]

    def together(self, level: Together, places: Iterable[Place]) -> bool:
        """True when all places are in one group of the level."""
        if level == "any" and not self.has_zones:
            return True
        groups = self.groups(level)
        return len({int(groups[self.column[place.gpu]]) for place in places}) == 1

    def within(self, pin: tuple[str, ...]) -> Bools:
        """Columns that a pin names: whole nodes, and GPUs as `node/index`."""
        if pin not in self._within:
            named = [gpu.node in pin or f"{gpu.node}/{gpu.index}" in pin for gpu in self.gpus]
            self._within[pin] = np.array(named, dtype=np.bool_)
        return self._within[pin]

    def allowed(self, pin: tuple[str, ...], where: Where | None) -> Bools:
        """Columns that a pin names and a place allows; without either, all."""
        if where not in self._allowed:
            able = [where is None or where.allows(gpu) for gpu in self.gpus]
            self._allowed[where] = np.array(able, dtype=np.bool_)
        return self._allowed[where] & self.within(pin) if pin else self._allowed[where]

    def are_allowed(self, where: Where | None, places: Iterable[Place]) -> bool:
        """True when a place allows the nodes of all of these; their GPUs are of the class."""
        return where is None or all(where.allows(self.gpus[self.column[each.gpu]]) for each in places)

    def _most_columns(self, level: Together) -> int:
        """Size of the largest group."""
        return int(np.diff(np.append(self.bounds[level], len(self))).max(initial=0))

    def _bounds(self, level: Together) -> Index:
        keys = list(map(_GROUP_KEYS[level], self.gpus))
        starts = [c for c in range(len(keys)) if c == 0 or keys[c] != keys[c - 1]]
        return np.array(starts, dtype=np.intp)


class Pool(Columns):
    """One GPU class with the capacity and the score of its GPUs."""

    def __init__(
        self,
        gpu_class: str,
        gpus: Iterable[Gpu],
        models: Mapping[str, Model],
        mix: Mix = EVEN_MIX,
        scoring: Scoring = DEFAULT_SCORING,
    ) -> None:
        """Order the columns; KeyError: a GPU names an unknown model.

        `mix` is the recent demand for the class.
        """
        super().__init__(gpus)
        self.gpu_class = gpu_class
        self.models = models
        self.mix = mix
        geometries = {name: geometry_of(models[name]) for name in {g.model for g in self.gpus}}
        self.geometries = tuple(geometries[gpu.model] for gpu in self.gpus)
        self.of_hosts = any(geometry.model.host for geometry in geometries.values())
        self.kinds = _columns_by_geometry(self.geometries)
        self.kind: Index = np.zeros(len(self.gpus), dtype=np.intp)
        for number, (_, columns) in enumerate(self.kinds):
            self.kind[columns] = number
        # A GPU fixed to a mode is a kind of its own: slices there cost nobody a whole GPU.
        pairs = [(g, gpu.mode) for g, gpu in zip(self.geometries, self.gpus, strict=True)]
        self._valued = tuple(dict.fromkeys(pairs))
        self.value_kind: Index = np.array([self._valued.index(p) for p in pairs], dtype=np.intp)
        self.scoring = scoring
        self._scores: ScoreTables | None = None
        self.masks: Ints = np.array([g.masks for g in self.geometries], dtype=np.int64)
        """The number of masks of each column; states of a shared GPU follow them."""
        self.units_left = _padded([geometry.units_left for geometry, _ in self._valued])
        """Units that are not taken: (kinds × states)."""
        self.is_all_usable = bool(self.usable.all())
        self._best: dict[str, Best] = {}
        self._eligible: dict[Shape, Bools] = {}
        self._suits: dict[Shape, Bools] = {}
        self._supports: dict[Shape, Bools] = {}
        self._units: dict[Shape, int] = {}
        self._serves: dict[Shape, bool] = {}
        self._missing: dict[Shape, tuple[int, int]] = {}
        self._most: dict[tuple[Shape, Together], int] = {}

    def with_mix(self, mix: Mix) -> "Pool":
        """The same columns for other future demand."""
        return self.scored(mix, self.scoring)

    def scored(self, mix: Mix, scoring: Scoring) -> "Pool":
        """The same columns for this future demand, with scores by these constants."""
        twin = copy(self)
        twin.mix, twin.scoring = mix, scoring
        twin._best, twin._scores = {}, None
        return twin

    @property
    def scores(self) -> ScoreTables:
        """The scores of its GPUs, made when they are first asked for: many cycles place nothing."""
        if self._scores is None:
            self._scores = _scores_of(self._valued, self.mix, self.scoring)
        return self._scores

    def geometry(self, gpu: str) -> Geometry:
        """Geometry of one of its GPUs. KeyError: not in this class."""
        return self.geometries[self.column[gpu]]

    def mask_of(self, place: Place) -> int:
        """Bits that a place takes of its GPU."""
        return self.geometry(place.gpu).mask_of(place)

    def serves(self, shape: Shape) -> bool:
        """True when some GPU of the class, in service or not, can serve the shape."""
        if shape not in self._serves:
            self._serves[shape] = bool(self.suits(shape).any())
        return self._serves[shape]

    def units(self, shape: Shape) -> int:
        """Quota units of one of them, the most any model of the class takes; 0: not served."""
        if shape not in self._units:
            able = (g.units(shape) for g, _ in self.kinds if g.serves(shape))
            self._units[shape] = max(able, default=0)
        return self._units[shape]

    def suits(self, shape: Shape) -> Bools:
        """Columns whose model, fixed mode and agent allow the shape."""
        if shape not in self._suits:
            supports, modes = self.supports(shape), modes_for(shape)
            has_mode = np.array([gpu.mode in modes for gpu in self.gpus], dtype=np.bool_)
            self._suits[shape] = has_mode & supports
        return self._suits[shape]

    def supports(self, shape: Shape) -> Bools:
        """The same, whatever mode they are fixed to."""
        if shape not in self._supports:
            able = [
                (gpu.shares or not isinstance(shape, int)) and geometry.serves(shape)
                for gpu, geometry in zip(self.gpus, self.geometries, strict=True)
            ]
            self._supports[shape] = np.array(able, dtype=np.bool_)
        return self._supports[shape]

    def capacity(self, shape: Shape, busy: Masks) -> npt.NDArray[np.uint8]:
        """How many more of the shape fit into `busy` (…, columns), on usable GPUs only."""
        return self.capacity_on(shape, busy, self.eligible(shape))

    def most(self, shape: Shape, level: Together) -> int:
        """The most of a shape in one group of the level, all in service and nothing taken."""
        key = (shape, level)
        if key not in self._most:
            self._most[key] = self.most_of(self.suits(shape), shape, level)
        return self._most[key]

    def most_of(self, columns: Bools, shape: Shape, level: Together) -> int:
        """The most pieces of a shape that one group of the level has room for in these columns."""
        empty = np.zeros(len(self), dtype=np.uint16)
        return int(self.sums(level, self.capacity_on(shape, empty, columns)).max())

    def most_in_all(self, shape: Shape) -> int:
        """The most of a shape in all zones together, all in service and nothing taken."""
        empty = np.zeros(len(self), dtype=np.uint16)
        return int(self.capacity_on(shape, empty, self.suits(shape)).sum(dtype=np.int64))

    def missing(self, shape: Shape) -> tuple[int, int]:
        """Suitable GPUs that are out of service, and those on nodes that do not answer."""
        if shape not in self._missing:
            there = self.suits(shape) & self.in_service
            out = int(self.suits(shape).sum() - there.sum())
            self._missing[shape] = (out, int((there & ~self.usable).sum()))
        return self._missing[shape]

    def best_tables(self, profile: str) -> Best:
        """Best places of a profile by `value_kind` and busy mask: tables of (kinds × masks)."""
        if profile not in self._best:
            self._best[profile] = _best_of(self._valued, self.mix, self.scoring, profile)
        return self._best[profile]

    def idle_until(self, taken: Ints, pin: tuple[str, ...] = (), where: Where | None = None) -> Ints:
        """For rows × columns of the next use: until when each takes whole GPUs of new work, which
        may be pinned, or only for some places; 0: it takes none."""
        is_anywhere = not pin and where is None
        able = self.eligible(None) if is_anywhere else self.eligible(None) & self.allowed(pin, where)
        return taken if able.all() else np.where(able, taken, 0)

    def eligible(self, shape: Shape) -> Bools:
        """Columns that suit the shape and take new work."""
        if shape not in self._eligible:
            self._eligible[shape] = self.suits(shape) & self.usable
        return self._eligible[shape]

    def capacity_on(self, shape: Shape, busy: Masks, eligible: Bools) -> npt.NDArray[np.uint8]:
        """The same on these columns."""
        if shape is None:
            idle: npt.NDArray[np.uint8] = ((busy == 0) & eligible).view(np.uint8)
            return idle
        if len(self.kinds) == 1 and self.kinds[0][0].serves(shape):
            alike: npt.NDArray[np.uint8] = self.kinds[0][0].capacity(shape)[busy] * eligible
            return alike
        found = np.zeros(busy.shape, dtype=np.uint8)
        for geometry, columns in self.kinds:
            if geometry.serves(shape):
                found[..., columns] = geometry.capacity(shape)[busy[..., columns]]
        fits: npt.NDArray[np.uint8] = found * eligible
        return fits


def pools_of(
    gpus: Iterable[Gpu],
    models: Iterable[Model],
    mixes: Mapping[str, Mix] | None = None,
    scoring: Mapping[str, Scoring] = MappingProxyType({}),
    known: Mapping[str, Pool] | None = None,
    asked: Container[str] | None = None,
) -> dict[str, Pool]:
    """The pools of a fleet by class, in the order of their names; `mixes` and `scoring` by class.
    `known` are pools of the same fleet for earlier demand, which stay as they are in classes that are not
    `asked` for (None: all are)."""
    mixes = mixes or {}
    if known:
        return {
            name: each.scored(mixes.get(name, EVEN_MIX), scoring.get(name, DEFAULT_SCORING))
            if asked is None or name in asked
            else each
            for name, each in known.items()
        }
    by_slug = {model.slug: model for model in models}
    members: dict[str, list[Gpu]] = {}
    for gpu in gpus:
        members.setdefault(gpu.gpu_class, []).append(gpu)
    return {
        name: Pool(
            name, members[name], by_slug, mixes.get(name, EVEN_MIX), scoring.get(name, DEFAULT_SCORING)
        )
        for name in sorted(members)
    }


def _least_of(numbers: Ints, size: int) -> Ints:
    """The smallest of each so many numbers, halves at once while there are halves."""
    while size % 2 == 0:
        numbers, size = np.minimum(numbers[..., 0::2], numbers[..., 1::2]), size // 2
    if size == 1:
        return numbers
    found: Ints = np.minimum.reduceat(numbers, np.arange(0, numbers.shape[-1], size), axis=-1)
    return found


def _nth_largest(rows: Ints, count: int) -> Ints:
    """The largest number of each row but for `count` - 1 others. Rows, of positive numbers, are used up."""
    every = np.arange(len(rows))
    for _ in range(count - 1):
        rows[every, rows.argmax(axis=-1)] = 0
    found: Ints = rows.max(axis=-1)
    return found


@lru_cache(maxsize=512)
def _scores_of(kinds: tuple[Kind, ...], mix: Mix, scoring: Scoring) -> ScoreTables:
    """Scores of each kind: a model and the mode that it is fixed to."""
    offers = [demand_tables_of(geometry, mix, mode) for geometry, mode in kinds]
    demand = max(sum(offer.weight for offer in each) for each in offers)
    return ScoreTables(offers, max(demand, mix.total), scoring)


@lru_cache(maxsize=512)
def _best_of(kinds: tuple[Kind, ...], mix: Mix, scoring: Scoring, profile: str) -> Best:
    """The tables of each kind stacked; models without the profile have no place for it."""
    scores = _scores_of(kinds, mix, scoring)
    shape = scores.long_run.shape
    number = np.full(shape, ILLEGAL, dtype=np.int64)
    long_run, immediate = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    for row, (geometry, _) in enumerate(kinds):
        if geometry.serves(profile):
            masks = geometry.masks
            best = geometry.best_of(
                profile,
                scores.long_run[row, :masks],
                scores.immediate[row, :masks],
                scoring.long_run_weight,
            )
            number[row, :masks] = best.number
            long_run[row, :masks], immediate[row, :masks] = best.long_run, best.immediate
    return Best(number, long_run, immediate)


def _padded(tables: list[Ints]) -> Ints:
    """Tables stacked, padded with zeros."""
    width = max(map(len, tables))
    return np.array([np.pad(table, (0, width - len(table))) for table in tables])


def _columns_by_geometry(geometries: tuple[Geometry, ...]) -> tuple[tuple[Geometry, Index], ...]:
    columns: dict[str, list[int]] = {}
    first: dict[str, Geometry] = {}
    for column, geometry in enumerate(geometries):
        columns.setdefault(geometry.model.slug, []).append(column)
        first.setdefault(geometry.model.slug, geometry)
    return tuple((first[slug], np.array(columns[slug], dtype=np.intp)) for slug in columns)


def _column_key(gpu: Gpu) -> tuple[str, str, str, bool, int, int, str]:
    return (gpu.zone, gpu.rack, gpu.node, gpu.domain is None, gpu.domain or 0, gpu.index, gpu.id)


def _near_of(gpus: Iterable[Gpu]) -> tuple[Index, ...]:
    paths = [(gpu.node, *gpu.near) for gpu in gpus]
    found = []
    for depth in range(2, max(map(len, paths), default=1) + 1):
        number: dict[tuple[object, ...], int] = {}
        found.append([number.setdefault(path[:depth], len(number)) for path in paths])
    return tuple(np.array(each, dtype=np.intp) for each in found)


def _domain_key(gpu: Gpu) -> object:
    return gpu.id if gpu.domain is None else (gpu.rack, gpu.node, gpu.domain)


_GROUP_KEYS: dict[Together, Callable[[Gpu], object]] = {
    "gpu": attrgetter("id"),
    "domain": _domain_key,
    "node": attrgetter("rack", "node"),
    "rack": attrgetter("zone", "rack"),
    "any": attrgetter("zone"),
}
