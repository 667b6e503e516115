"""The potential that every pause must raise, so that pauses come to rest.

Of the work in place on one class, in lexicographic order: the units inside guarantees, level by
level, the own parts of projects first; then the tenants' shares of what is borrowed, level by
level, the smallest first; then the shares of spot. No set of work in place, up to its potential,
comes back before something happens from outside.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import total_ordering

from allocation.solver.preemption.in_place import PARTS, Level, Part, Standing


@total_ordering
@dataclass(frozen=True, slots=True)
class Share:
    """Borrowed units by weight, compared exactly. Without a weight it is above any other; those
    are ordered by their units."""

    units: int
    weight: int

    def __lt__(self, other: "Share") -> bool:
        """Whether this share is smaller."""
        if not self.units or not other.units:
            return self.units < other.units
        if not self.weight or not other.weight:
            return (not self.weight, self.units) < (not other.weight, other.units)
        return self.units * other.weight < other.units * self.weight

    def __eq__(self, other: object) -> bool:
        """Whether neither is smaller."""
        return isinstance(other, Share) and not (self < other or other < self)

    def __hash__(self) -> int:
        """Refuse to hash: equal shares have different fields."""
        raise TypeError


@dataclass(frozen=True, slots=True)
class Change:
    """A tenant's standing on the class before and after a pause, and the weight of its row (None:
    it has no row)."""

    before: Standing
    after: Standing
    weight: int | None


def rises(changes: Iterable[Change]) -> bool:
    """True when the potential is strictly greater afterwards. Other tenants stay as they are: what
    is equal on both sides decides no lexicographic comparison of sorted values."""
    rows = list(changes)
    levels = sorted(
        {
            block.level
            for row in rows
            for block in (*row.before.blocks, *row.after.blocks)
            if block.counts
        },
        reverse=True,
    )
    for level in levels:
        for part in PARTS:
            more = sum(_inside(r.after, level, part) for r in rows)
            more -= sum(_inside(r.before, level, part) for r in rows)
            if more:
                return more > 0
    weighed = [row for row in rows if row.weight is not None]
    for level in levels:
        before = sorted(Share(r.before.borrowed(level), r.weight or 0) for r in weighed)
        after = sorted(Share(r.after.borrowed(level), r.weight or 0) for r in weighed)
        if before != after:
            return before < after
    return sorted(Share(r.before.spot(), r.weight or 0) for r in weighed) < sorted(
        Share(r.after.spot(), r.weight or 0) for r in weighed
    )


def _inside(standing: Standing, level: Level, part: Part) -> int:
    return sum(
        standing.blocks[at].use.units
        for at, its in standing.inside.items()
        if its == part and standing.blocks[at].level == level
    )
