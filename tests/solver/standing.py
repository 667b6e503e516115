"""Who is inside a guarantee and what a set of bookings in place is worth, by counting one by one.

Written from the definitions of docs/decisions/preemption.md alone, without the solver's code.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from solver import Limit, Model, Place, TierPart

UNITS = 56_000
Level = tuple[int, bool]


@dataclass(frozen=True)
class Block:
    """A booking in place: its units of a class, its level and when it was granted."""

    name: str
    tenant: str
    project: str
    gpu_class: str
    units: int
    level: Level
    granted: object
    counts: bool
    tier: str = ""


def units_of(model: Model, place: Place) -> int:
    """Units of quota that a place takes: of a slice the larger of its compute and memory."""
    if place.profile is None:
        return UNITS * (place.share or 1_000) // 1_000
    row = next(each for each in model.placements if each.profile == place.profile)
    return max(row.compute * UNITS // model.compute_slices, row.size * UNITS // model.memory_slots)


def inside_of(
    blocks: Iterable[Block], limits: Iterable[Limit], last: str = "", parts_of: Iterable[TierPart] = ()
) -> dict[str, bool]:
    """Those inside their tenant's guarantee, by name; whether on their own project's part.

    With `last`, that booking comes after its equals: where it is inside even so, it is inside
    whatever the order of the decisions of one cycle was. `parts_of` guarantees are for some tiers: those
    of other tiers have together no more than is left above the part.
    """
    only = {(row.owner, row.gpu_class): row for row in parts_of}
    guaranteed = {(row.owner, row.gpu_class): row.guaranteed for row in limits}
    inside: dict[str, bool] = {}
    counted = [block for block in blocks if block.counts]
    for tenant, gpu_class in sorted({(b.tenant, b.gpu_class) for b in counted}):
        mine = [b for b in counted if (b.tenant, b.gpu_class) == (tenant, gpu_class)]
        mine.sort(key=lambda b: (b.name == last, b.granted))
        room = guaranteed.get((tenant, gpu_class), 0)
        part_of = only.get((tenant, gpu_class))
        free = {b.name: part_of is None or b.tier in part_of.tiers for b in mine}
        rest = room - (0 if part_of is None else part_of.units)
        parts = {b.project: guaranteed.get((b.project, gpu_class), 0) for b in mine}
        for level in sorted({b.level for b in mine}, reverse=True):
            for is_own in (True, False):
                for block in mine:
                    part = parts[block.project] if is_own else room
                    is_new = block.level == level and block.name not in inside
                    most = room if free[block.name] else min(room, rest)
                    if is_new and block.units <= min(most, part):
                        inside[block.name] = is_own
                        room -= block.units
                        rest -= 0 if free[block.name] else block.units
                        parts[block.project] -= block.units if is_own else 0
    return inside


def potential_of(
    blocks: Iterable[Block],
    limits: Iterable[Limit],
    levels: Iterable[Level],
    gpu_class: str,
    parts_of: Iterable[TierPart] = (),
) -> tuple[object, ...]:
    """What every pause must raise, to be compared as a tuple: units inside by level, then shares of
    what is borrowed by level, the poorest first, then spot."""
    here = [block for block in blocks if block.gpu_class == gpu_class]
    limits = [row for row in limits if row.gpu_class == gpu_class]
    inside = inside_of(here, limits, parts_of=parts_of)
    rows = [row for row in limits if row.parent is None]
    order = sorted(set(levels), reverse=True)
    units = [
        sum(b.units for b in here if b.level == level and inside.get(b.name) is is_own)
        for level in order
        for is_own in (True, False)
    ]
    shares = [
        sorted(_share(row, [b for b in here if b.counts and b.level >= level], inside) for row in rows)
        for level in order
    ]
    spot = sorted(_share(row, [b for b in here if not b.counts], inside) for row in rows)
    return (units, shares, spot)


def _share(row: Limit, blocks: list[Block], inside: dict[str, bool]) -> Fraction:
    """What a tenant has above its guarantee, by its weight; without a weight it is the most."""
    borrowed = sum(b.units for b in blocks if b.tenant == row.owner and b.name not in inside)
    return Fraction(borrowed, row.weight) if row.weight else Fraction(borrowed * 10**9)
