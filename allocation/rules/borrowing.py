"""What a tenant's work in a GPU class has above its guarantee at one instant."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


@dataclass(frozen=True, slots=True)
class UnitsHeld:
    """Units of a class that a booking has. `counts`: its tier uses guarantees."""

    booking: UUID
    project: UUID
    units: int
    counts: bool
    pausable: bool
    since: datetime


def units_above(held: Iterable[UnitsHeld], guaranteed: int, kept: Mapping[UUID, int]) -> dict[UUID, int]:
    """By booking, the units above the tenant's guarantee; bookings without any are left out.

    The guarantee goes to what can't be paused first, then to what began earliest, as the solver
    gives it. Projects share it, but for what a project lends to nobody, its part of `kept`. Work in
    a tier that uses no guarantee is always above it.
    """
    used = dict.fromkeys(kept, 0)
    found: dict[UUID, int] = {}
    for row in sorted(held, key=lambda each: (each.pausable, each.since, str(each.booking))):
        above = row.units
        if row.counts:
            seen = sum(max(kept.get(owner, 0), units) for owner, units in used.items())
            mine = used.get(row.project, 0)
            left = max(0, guaranteed - seen) + max(0, kept.get(row.project, 0) - mine)
            above = min(row.units, max(0, row.units - left))
            used[row.project] = mine + row.units
        if above:
            found[row.booking] = found.get(row.booking, 0) + above
    return found
