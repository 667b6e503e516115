"""MIG geometry of one GPU model as bit masks, from data: no profile name occurs in code.

Bit i of a mask is memory slot i. Legal placements with disjoint slots are exactly the hardware's
rule, except for profiles of which a GPU carries fewer than its slots allow (`+me`: one media
engine). Those take one more bit above the slots, so that the mask alone still decides what fits. A
shared GPU has the topmost bit set, and below it the thousandths that are taken.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from solver.fleet.fragmentation import ILLEGAL, Ints
from solver.model.inputs import (
    SLOTS_PER_GPU,
    UNITS_PER_GPU,
    Mode,
    Model,
    Place,
    Placement,
    Shape,
)

Masks = npt.NDArray[np.uint16]

WHOLE_MASK = (1 << SLOTS_PER_GPU) - 1
SHARED = 1 << 15
"""Bit of a mask that marks a shared GPU; the rest is thousandths."""
THOUSANDTHS = SHARED - 1
WHOLE_SHARE = 1_000
SHARE_STATES = 100
"""Scores of a shared GPU distinguish hundredths."""
UNITS_PER_SHARE = UNITS_PER_GPU // WHOLE_SHARE
PER_STATE = WHOLE_SHARE // SHARE_STATES
_MASKS = 1 << 16
_UNFIT = 1 << 40


@dataclass(frozen=True, slots=True)
class Best:
    """By busy mask, for one profile: number of the place that costs later demand least (ILLEGAL:
    none), and the `long_run` and `immediate` score that it takes."""

    number: Ints
    long_run: Ints
    immediate: Ints


def units_of(model: Model, shape: Shape) -> int:
    """Quota units of one whole GPU, slice or share. KeyError: not a profile of the model."""
    if shape is None:
        return UNITS_PER_GPU
    if isinstance(shape, int):
        return shape * UNITS_PER_SHARE
    for placement in model.placements:
        if placement.profile == shape:
            return _units(model, placement)
    raise KeyError(shape)


def _units(model: Model, placement: Placement) -> int:
    compute = -(-placement.compute * UNITS_PER_GPU // model.compute_slices)
    memory = -(-placement.size * UNITS_PER_GPU // model.memory_slots)
    return max(compute, memory)


class Geometry:
    """What fits on a GPU of one model, for every busy mask, as tables of 2**bits entries."""

    def __init__(self, model: Model) -> None:
        """Build all tables of the model; ValueError: a count limit can't be expressed."""
        self.model = model
        self._places: dict[str, tuple[Placement, ...]] = _by_profile(model.placements)
        self._legal = {(p.profile, p.start, p.size) for p in model.placements}
        self._token = _tokens(model.slug, self._places)
        self.bits = SLOTS_PER_GPU + len(self._token)
        self._all = np.arange(1 << self.bits, dtype=np.int64)
        self._capacity: dict[str | None, npt.NDArray[np.uint8]] = {
            profile: self._capacity_table(profile) for profile in (None, *self._places)
        }
        self.units_left = self._units_left_table()
        """Table by state: units that are not taken. States of a shared GPU follow the masks."""
        self._padded: dict[Shape, npt.NDArray[np.uint8]] = {}
        self._taken: dict[tuple[Shape, int], int] = {}

    @property
    def profiles(self) -> tuple[str, ...]:
        """Profiles of the model, the largest first."""
        return tuple(sorted(self._places, key=lambda p: (-self.units(p), self._places[p][0].profile_id)))

    @property
    def common_profiles(self) -> tuple[str, ...]:
        """The same without those of which a GPU carries fewer than its slots allow."""
        return tuple(profile for profile in self.profiles if profile not in self._token)

    @property
    def masks(self) -> int:
        """Number of masks of slots and tokens; states of a shared GPU follow them."""
        return 1 << self.bits

    def units(self, shape: Shape) -> int:
        """Quota units of one of them. KeyError: not a profile of this model."""
        if isinstance(shape, str):
            return _units(self.model, self._places[shape][0])
        return units_of(self.model, shape)

    def units_taken(self, place: Place) -> int:
        """Units of a place; a profile that the model no longer has counts by its memory slots."""
        key = (place.shape, place.size)
        if key not in self._taken:
            by_slots = -(-place.size * UNITS_PER_GPU // self.model.memory_slots)
            self._taken[key] = self.units(key[0]) if self.serves(key[0]) else by_slots
        return self._taken[key]

    def profile_with_id(self, profile_id: int) -> str | None:
        """The name of the profile with the hardware's id (names differ by memory); None: there is
        none."""
        for profile, placements in self._places.items():
            if placements[0].profile_id == profile_id:
                return profile
        return None

    def profile_id(self, profile: str) -> int:
        """The hardware's id. KeyError: not a profile of this model."""
        return self._places[profile][0].profile_id

    def serves(self, shape: Shape) -> bool:
        """True when the model has the profile (every model serves whole GPUs and shares)."""
        return isinstance(shape, int) or shape in self._capacity

    def mask_of(self, place: Place) -> int:
        """Bits that a place takes; it need not be legal, because running work is what it is."""
        if place.profile is None:
            return WHOLE_MASK
        slots = ((1 << place.size) - 1) << place.start
        return slots | self._token.get(place.profile, 0)

    def is_legal(self, place: Place) -> bool:
        """True when the hardware could make this place on an empty GPU."""
        if place.profile is None:
            part = WHOLE_SHARE - 1 if place.share is None else place.share
            return place.start == 0 and place.size == SLOTS_PER_GPU and 0 < part < WHOLE_SHARE
        return (place.profile, place.start, place.size) in self._legal

    def capacity_beside(self, profile: str | None) -> Ints:
        """Table: mask of slots and tokens -> how many more of the profile fit."""
        found: Ints = self._capacity[profile].astype(np.int64)
        return found

    def capacity(self, shape: Shape) -> npt.NDArray[np.uint8]:
        """Table: any busy mask -> how many more of the shape fit."""
        if shape not in self._padded:
            table = np.zeros(_MASKS, dtype=np.uint8)
            if isinstance(shape, int):
                shared = np.arange(WHOLE_SHARE + 1)
                fitting = np.minimum((WHOLE_SHARE - shared) // shape, np.iinfo(np.uint8).max)
                table[SHARED : SHARED + len(shared)] = fitting
                table[0] = fitting[0]
            else:
                table[: self.masks] = self._capacity[shape]
            self._padded[shape] = table
        return self._padded[shape]

    def best_of(self, profile: str, long_run: Ints, immediate: Ints, long_run_weight: int) -> Best:
        """The best places of a profile under the score of every busy mask.

        A place counts only if the other members of the gang still fit: capacity falls by exactly
        one.
        """
        capacity = self.capacity_beside(profile)
        masks = np.array(self.masks_of(profile), dtype=np.int64)
        number = np.full(len(capacity), ILLEGAL, dtype=np.int64)
        least = np.full(len(capacity), _UNFIT, dtype=np.int64)
        score = long_run_weight * long_run + immediate
        for each, mask in enumerate(masks.tolist()):
            after = self._all | mask
            fits = ((self._all & mask) == 0) & (capacity[after] == capacity - 1)
            cost = np.where(fits, score - score[after], _UNFIT)
            number[cost < least] = each
            least = np.minimum(cost, least)
        then = np.where(number == ILLEGAL, self._all, self._all | masks[number])
        return Best(number, long_run - long_run[then], immediate - immediate[then])

    def places(self, profile: str) -> tuple[Place, ...]:
        """All legal places of a profile, their `gpu` empty. KeyError: not a profile of it."""
        return tuple(Place("", profile, p.start, p.size) for p in self._places[profile])

    def place(self, profile: str, number: int) -> Place:
        """A place of a profile by its number, its `gpu` empty."""
        chosen = self._places[profile][number]
        return Place("", profile, chosen.start, chosen.size)

    def masks_of(self, profile: str | None) -> tuple[int, ...]:
        """Bits of each legal place of a profile, or of the whole GPU. KeyError: not one of it."""
        if profile is None:
            return (WHOLE_MASK,)
        token = self._token.get(profile, 0)
        return tuple(_slots(p) | token for p in self._places[profile])

    def _units_left_table(self) -> Ints:
        slots = np.array([(mask & WHOLE_MASK).bit_count() for mask in range(self.masks)])
        masks = (SLOTS_PER_GPU - slots) * (UNITS_PER_GPU // SLOTS_PER_GPU)
        shares = np.arange(SHARE_STATES, -1, -1, dtype=np.int64)
        return np.concatenate([masks, shares * PER_STATE * UNITS_PER_SHARE])

    def _capacity_table(self, profile: str | None) -> npt.NDArray[np.uint8]:
        # Longest chain of disjoint places, relaxed until nothing grows; chains are at most 8 long.
        table = np.zeros(1 << self.bits, dtype=np.uint8)
        masks = self.masks_of(profile)
        for _ in range(SLOTS_PER_GPU):
            grown = table
            for mask in masks:
                free = (self._all & mask) == 0
                grown = np.maximum(grown, np.where(free, table[self._all | mask] + 1, 0))
            grown = grown.astype(np.uint8)
            if (grown == table).all():
                break
            table = grown
        return table


def is_expressible(placements: Iterable[Placement]) -> bool:
    """True when masks can express which profiles fit together."""
    try:
        _tokens("model", _by_profile(placements))
    except ValueError:
        return False
    return True


def modes_for(shape: Shape) -> tuple[Mode | None, ...]:
    """The modes to which a GPU may be fixed to serve the shape."""
    if isinstance(shape, str):
        return (None, "sliced")
    return (None, "whole") if shape is None else (None, "whole", "shared")


def share_states(busy: Masks) -> Masks:
    """Hundredths taken of a shared GPU by its mask, rounded up."""
    taken = (busy & np.uint16(THOUSANDTHS)) + np.uint16(PER_STATE - 1)
    found: Masks = taken // np.uint16(PER_STATE)
    return found


@lru_cache(maxsize=64)
def geometry_of(model: Model) -> Geometry:
    """The tables of a model, cached: they depend only on the model's data."""
    return Geometry(model)


def _slots(placement: Placement) -> int:
    return ((1 << placement.size) - 1) << placement.start


def _by_profile(placements: Iterable[Placement]) -> dict[str, tuple[Placement, ...]]:
    found: dict[str, list[Placement]] = {}
    for placement in sorted(placements, key=lambda p: (p.profile_id, p.profile, p.start)):
        found.setdefault(placement.profile, []).append(placement)
    return {profile: tuple(rows) for profile, rows in found.items()}


def _tokens(slug: str, places: Mapping[str, Sequence[Placement]]) -> dict[str, int]:
    """The further bit of each profile that needs one. Raises ValueError."""
    tokens: dict[str, int] = {}
    for profile, placements in places.items():
        disjoint = _most_disjoint([_slots(p) for p in placements])
        limit = placements[0].limit
        if limit >= disjoint:
            continue
        if limit != 1:
            raise ValueError(f"{slug} {profile}: limit {limit} of {disjoint} places")
        tokens[profile] = 1 << (SLOTS_PER_GPU + len(tokens))
    if len(tokens) > 15 - SLOTS_PER_GPU:
        raise ValueError(f"{slug}: {len(tokens)} profiles limited to one")
    return tokens


def _most_disjoint(masks: list[int]) -> int:
    """Most pairwise disjoint masks; earliest end first is exact for runs of slots."""
    taken, count = 0, 0
    for mask in sorted(masks, key=lambda m: m.bit_length()):
        if not taken & mask:
            taken |= mask
            count += 1
    return count
