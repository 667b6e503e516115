"""What a mix of asks wants of one GPU, as the fragmentation measure sees it.

The states of a GPU are its busy masks, and after them the hundredths that are taken when shared.
"""

import numpy as np

from allocation.solver.fleet.demand_mix import Mix
from allocation.solver.fleet.fragmentation import ILLEGAL, DemandTable, Ints
from allocation.solver.fleet.mig_geometry import (
    PER_STATE,
    SHARE_STATES,
    UNITS_PER_SHARE,
    WHOLE_MASK,
    Geometry,
    modes_for,
)
from allocation.solver.model.inputs import SLOTS_PER_GPU, UNITS_PER_GPU, Mode, Shape

_SHARED: Ints = np.arange(SHARE_STATES + 1, dtype=np.int64)
"""Hundredths taken of a shared GPU."""


def demand_tables_of(geometry: Geometry, mix: Mix, mode: Mode | None = None) -> list[DemandTable]:
    """What the mix asks of one GPU of the model, which may be fixed to a mode.

    Each shape counts once more than it was asked for: what was not, may still be.
    """
    shapes = (None, *geometry.common_profiles)
    weights: dict[tuple[Shape, int, int], int] = {
        (shape, 1, 0): 1 for shape in shapes if mode in modes_for(shape)
    }
    for shape, count, cores, weight in mix.lines:
        if mode not in modes_for(shape) or not geometry.serves(shape):
            continue
        # Slices of a gang lie anywhere, so they are as many single ones.
        many = count if isinstance(shape, str) else 1
        line = (shape, count // many, cores // many)
        weights[line] = weights.get(line, 0) + weight * many
    return [
        _offer(geometry, line, weights[line])
        for line in sorted(weights, key=lambda line: (str(line[0] or ""), *line[1:]))
    ]


def units_left(geometry: Geometry) -> Ints:
    """Table by state: units that are not taken."""
    slots = np.array([(mask & WHOLE_MASK).bit_count() for mask in range(geometry.masks)])
    masks = (SLOTS_PER_GPU - slots) * (UNITS_PER_GPU // SLOTS_PER_GPU)
    return np.concatenate([masks, (SHARE_STATES - _SHARED) * PER_STATE * UNITS_PER_SHARE])


def _offer(geometry: Geometry, line: tuple[Shape, int, int], weight: int) -> DemandTable:
    shape, count, cores = line
    units = geometry.units(shape)
    # What others leave of a shared GPU is of use to somebody, whatever this one needs of it.
    shared = 0 * _SHARED if isinstance(shape, str) else units_left(geometry)[geometry.masks :]
    if isinstance(shape, int):
        after = _after_share(geometry.masks, shape)
        masks = np.where(np.arange(geometry.masks) == 0, UNITS_PER_GPU, 0)
    else:
        after = _after_mask(geometry.masks, geometry.masks_of(shape))
        masks = geometry.capacity_beside(shape) * units
    return DemandTable(weight, count, cores, units, after, np.append(masks, shared))


def _after_mask(masks: int, places: tuple[int, ...]) -> Ints:
    """Each place beside other slots, never on a shared GPU."""
    busy, never = np.arange(masks, dtype=np.int64), np.full(len(_SHARED), ILLEGAL)
    rows = [np.where((busy & place) == 0, busy | place, ILLEGAL) for place in places]
    return np.array([np.append(row, never) for row in rows])


def _after_share(masks: int, share: int) -> Ints:
    """One place: an idle GPU is shared then, a shared one is shared more."""
    more = -(-share // PER_STATE)
    after = np.full(masks + len(_SHARED), ILLEGAL, dtype=np.int64)
    after[0] = masks + more
    after[masks:] = np.where(_SHARED + more <= SHARE_STATES, masks + _SHARED + more, ILLEGAL)
    return after[None, :]
