"""Recent demand as a mix by class, which weights the fragmentation score."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from solver.fleet.fragmentation import ILLEGAL, DemandTable, Ints
from solver.fleet.mig_geometry import (
    PER_STATE,
    SHARE_STATES,
    Geometry,
    modes_for,
)
from solver.model.inputs import (
    UNITS_PER_GPU,
    Ask,
    Mode,
    Request,
    Shape,
)

_PARTS = 1_024
"""Weights are parts of this."""
_BITS = 4
"""Weights are rounded to this many leading bits: one more booking rarely needs new tables."""


DemandKind = tuple[Shape, int, int]
HeldKind = tuple[str, DemandKind]
"""Class and kind of something held."""


@dataclass(frozen=True, slots=True)
class Mix:
    """(shape, how many in one request, host cores of the request in thousandths, weight), sorted.

    `total` is the weight of all requests for this class or an equivalent one; 0: only for this.
    """

    lines: tuple[tuple[Shape, int, int, int], ...] = ()
    total: int = 0


EVEN_MIX = Mix()
"""No recent demand: every shape is equally likely."""


def mixes_of(held: Mapping[HeldKind, int], requests: Iterable[Request]) -> dict[str, Mix]:
    """The mix of each class, of waiting and held bookings, one each. `held` is how many bookings
    there are of each kind."""
    asked: defaultdict[str, Counter[DemandKind]] = defaultdict(Counter)
    asks: Counter[tuple[frozenset[str], bool]] = Counter()
    every = (ask for request in requests for ask in (request.ask, *request.ask.groups))
    for (names, is_any, line), weight in Counter(map(_kind_of, every)).items():
        for gpu_class in names:
            asked[gpu_class][line] += weight
        asks[frozenset(names), is_any] += weight
    for (gpu_class, line), weight in held.items():
        asked[gpu_class][line] += weight
        asks[frozenset([gpu_class]), False] += weight
    markets = _markets(names for names, is_any in asks if is_any)
    return {name: _mix(lines, _total(asks, markets.get(name))) for name, lines in asked.items()}


def _kind_of(ask: Ask) -> tuple[tuple[str, ...], bool, DemandKind]:
    return ask.classes, ask.any_class, (ask.shape, ask.count, ask.count * ask.cores)


def _markets(asks: Iterable[frozenset[str]]) -> dict[str, frozenset[str]]:
    """By class, the classes that are equivalent to it, directly or through a third."""
    found: dict[str, frozenset[str]] = {}
    for names in asks:
        market = names.union(*(found.get(name, frozenset()) for name in names))
        found |= dict.fromkeys(market, market)
    return found


def _total(asks: Counter[tuple[frozenset[str], bool]], market: frozenset[str] | None) -> int:
    """Number of requests for the market; 0: the class has no equivalent."""
    if market is None:
        return 0
    return sum(weight for (names, _), weight in asks.items() if names & market)


def _mix(lines: Counter[DemandKind], of_all: int) -> Mix:
    total = of_all or sum(lines.values())
    rows = ((*line, _rounded(-(-weight * _PARTS // total))) for line, weight in lines.items())
    ordered = sorted(rows, key=lambda row: (str(row[0] or ""), *row[1:]))
    return Mix(tuple(ordered), _PARTS if of_all else 0)


def _rounded(part: int) -> int:
    step = 1 << max(0, part.bit_length() - _BITS)
    return (part + step // 2) // step * step


_SHARED: Ints = np.arange(SHARE_STATES + 1, dtype=np.int64)
"""Hundredths taken of a shared GPU."""


def demand_tables_of(geometry: Geometry, mix: Mix, mode: Mode | None = None) -> list[DemandTable]:
    """The demand of the mix on one GPU of the model, which may be fixed to a mode.

    Each shape counts once more than it was requested, so that none has weight zero.
    """
    shapes = (None, *geometry.common_profiles)
    weights: dict[tuple[Shape, int, int], int] = {
        (shape, 1, 0): 1 for shape in shapes if mode in modes_for(shape)
    }
    for shape, count, cores, weight in mix.lines:
        if mode not in modes_for(shape) or not geometry.serves(shape):
            continue
        # Slices of a gang have no level here: they count as single ones.
        many = count if isinstance(shape, str) else 1
        line = (shape, count // many, cores // many)
        weights[line] = weights.get(line, 0) + weight * many
    return [
        _offer(geometry, line, weights[line])
        for line in sorted(weights, key=lambda line: (str(line[0] or ""), *line[1:]))
    ]


def _offer(geometry: Geometry, line: tuple[Shape, int, int], weight: int) -> DemandTable:
    shape, count, cores = line
    units = geometry.units(shape)
    # The rest of a shared GPU is of use to other shares, whatever this shape needs.
    shared = 0 * _SHARED if isinstance(shape, str) else geometry.units_left[geometry.masks :]
    if isinstance(shape, int):
        after = _after_share(geometry.masks, shape)
        masks = np.where(np.arange(geometry.masks) == 0, UNITS_PER_GPU, 0)
    else:
        after = _after_mask(geometry.masks, geometry.masks_of(shape))
        masks = geometry.capacity_beside(shape) * units
    return DemandTable(weight, count, cores, units, after, np.append(masks, shared))


def _after_mask(masks: int, places: tuple[int, ...]) -> Ints:
    """Each place next to other slots, never on a shared GPU."""
    busy, never = np.arange(masks, dtype=np.int64), np.full(len(_SHARED), ILLEGAL)
    rows = [np.where((busy & place) == 0, busy | place, ILLEGAL) for place in places]
    return np.array([np.append(row, never) for row in rows])


def _after_share(masks: int, share: int) -> Ints:
    """One place: an idle GPU becomes shared, a shared one gets one more share."""
    more = -(-share // PER_STATE)
    after = np.full(masks + len(_SHARED), ILLEGAL, dtype=np.int64)
    after[0] = masks + more
    after[masks:] = np.where(_SHARED + more <= SHARE_STATES, masks + _SHARED + more, ILLEGAL)
    return after[None, :]
