"""Place one gang beside what is taken: all of it or nothing, the tightest group first."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from allocation.solver.fragmentation import ILLEGAL, Beside, Ints
from allocation.solver.geometry import Masks
from allocation.solver.ordering import place_order
from allocation.solver.topology import LEVELS, Bools, Index, Pool, levels_within
from allocation.solver.types import Ask, Place, Request, Together

Counts = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Want:
    """An ask brought down to one class. `level` is what `required` demands, else "any".

    `owners` are those whose quota it uses: tenant, project; `tier` says how far they may go.
    """

    gpu_class: str
    profile: str | None
    count: int
    level: Together
    duration: int
    owners: tuple[str, ...]
    tier: str = ""


def want_of(
    ask: Ask, gpu_class: str, duration: int, owners: tuple[str, ...], tier: str = ""
) -> Want:
    """The ask on one of its classes."""
    level = ask.together if ask.required and ask.count > 1 else "any"
    return Want(gpu_class, ask.profile, ask.count, level, duration, owners, tier)


def wants_of(request: Request) -> tuple[Want, ...]:
    """The booking on each of its classes, in order of taste."""
    owners = (request.tenant, request.project)
    return tuple(
        want_of(request.ask, gpu_class, request.length_on(gpu_class), owners, request.tier)
        for gpu_class in dict.fromkeys(request.ask.classes)
    )


def fits(pool: Pool, want: Want, busy: Masks) -> Bools:
    """For each row of busy masks (windows × columns): does the whole gang fit?"""
    capacity = pool.capacity(want.profile, busy)
    found: Bools = np.any(pool.sums(want.level, capacity) >= want.count, axis=-1)
    return found


def most_together(pool: Pool, want: Want, busy: Masks) -> int:
    """How many of the shape fit in the best group that the ask accepts."""
    return int(pool.sums(want.level, pool.capacity(want.profile, busy)).max())


def place(pool: Pool, want: Want, busy: Masks) -> tuple[Place, ...] | None:
    """Places for the gang beside one row of busy masks; None when it does not fit whole."""
    capacity = pool.capacity(want.profile, busy)
    chosen = _tightest(pool, want, capacity)
    if chosen is None:
        return None
    if want.profile is None:
        columns = _whole_columns(pool, chosen, want.count, capacity)
        places = [Place(pool.gpus[column].id, None, 0, 8) for column in columns]
    else:
        places = _slices(pool, chosen, want, busy)
    return tuple(sorted(places, key=place_order))


def _tightest(pool: Pool, want: Want, capacity: Counts) -> tuple[Together, int] | None:
    """The tightest level with a group that holds the gang, and its fullest such group."""
    if want.profile is not None and want.count == 1:
        return ("any", 0) if capacity.any() else None
    for level in levels_within(want.level):
        if level == ("gpu" if want.profile is None else "domain"):
            # Whole GPUs begin at the domain even one by one, to break the fewest idle groups;
            # slices know no NVLink.
            continue
        sums = pool.sums(level, capacity)
        if (sums >= want.count).any():
            return level, _fullest(pool, level, sums, capacity, want.count)
    return None


def _fullest(pool: Pool, level: Together, sums: Ints, capacity: Counts, count: int) -> int:
    """Among groups that fit, the one with least room left, then in the fullest surroundings."""
    candidates = np.flatnonzero(sums >= count)
    if len(candidates) == 1:
        return int(candidates[0])
    first = pool.bounds[level][candidates]
    keys: list[Ints] = [candidates]
    for outer in reversed(LEVELS[LEVELS.index(level) + 1 : -1]):
        groups = pool.bounds[outer].searchsorted(first, side="right") - 1
        keys.append(pool.sums(outer, capacity)[groups])
    keys.append(sums[candidates])
    return int(candidates[np.lexsort(keys)[0]])


def _whole_columns(
    pool: Pool, chosen: tuple[Together, int], count: int, capacity: Counts
) -> list[int]:
    """`count` free columns of a group out of the fewest subgroups, the rest best fit."""
    level, group = chosen
    members = pool.members(level, group)
    free = (np.flatnonzero(capacity[members.start : members.stop]) + members.start).tolist()
    finer = LEVELS[LEVELS.index(level) - 1]
    if len(free) == count or finer == "gpu":
        # A GPU fixed to whole serves nobody else; one that may be sliced is kept for slices.
        return sorted(free, key=lambda column: (bool(pool.flexible[column]), column))[:count]
    by_group: dict[int, int] = {}
    for column in free:
        subgroup = pool.group_of(finer, column)
        by_group[subgroup] = by_group.get(subgroup, 0) + 1
    taken: list[int] = []
    while len(taken) < count:
        need = count - len(taken)
        room = sorted((n, g) for g, n in by_group.items() if n >= need)
        size, best = room[0] if room else max((n, -g) for g, n in by_group.items())
        best = best if room else -best
        del by_group[best]
        taken += _whole_columns(pool, (finer, best), min(need, size), capacity)
    return taken


def _slices(pool: Pool, chosen: tuple[Together, int], want: Want, busy: Masks) -> list[Place]:
    """`count` slices in a group, each where it takes least worth from later asks."""
    run = pool.members(*chosen)
    members = np.arange(run.start, run.stop)
    spots = _Spots(pool, want.profile or "", members[pool.eligible(want.profile)[members]])
    now = busy.astype(np.int64)
    places: list[Place] = []
    for _ in range(want.count):
        place = spots.best(now)
        if place is None:
            raise ValueError(f"capacity of {chosen} promised more {want.profile} than fit")
        now[pool.column[place.gpu]] |= pool.mask_of(place)
        places.append(place)
    return places


class _Spots:
    """Where one more slice of a profile would go among some columns."""

    def __init__(self, pool: Pool, profile: str, columns: Index) -> None:
        self._pool, self._profile, self._columns = pool, profile, columns
        self._tables = pool.best_tables(profile)
        self._kinds = pool.value_kind[columns]
        self._nodes = pool.bounds["node"].searchsorted(columns, side="right") - 1
        self._counted = pool.eligible(None)

    def best(self, now: Ints) -> Place | None:
        """The place that costs least beside what is taken now; None when there is none."""
        pool, tables = self._pool, self._tables
        states = now[self._columns]
        at = np.flatnonzero(tables.number[self._kinds, states] != ILLEGAL)
        if not len(at):
            return None
        kinds, states = self._kinds[at], states[at]
        idle = np.add.reduceat((now == 0) & self._counted, pool.bounds["node"], dtype=np.int64)
        before = Beside(
            kinds, pool.values.useful[kinds, states], idle[self._nodes[at]], np.zeros_like(kinds)
        )
        breaks = (states == 0) & self._counted[self._columns[at]]
        after = before.less(tables.useful[kinds, states], breaks, 0)
        loss = pool.values.loss(tables.sale[kinds, states], before, after)
        chosen = int(at[loss.argmin()])
        column = int(self._columns[chosen])
        number = int(tables.number[self._kinds[chosen], now[column]])
        spot = pool.geometries[column].place(self._profile, number)
        return Place(pool.gpus[column].id, self._profile, spot.start, spot.size)
