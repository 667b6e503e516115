"""The criterion by which one booking goes before another in the queue."""

from collections.abc import Sequence
from typing import Literal

from solver.cycle.order.queue import AGED, Turn

Criterion = Literal["guarantee", "tier", "part", "share", "age", "firm"]
_CRITERIA: dict[str, Criterion] = {
    "tier": "tier",
    "part": "part",
    "tenant": "share",
    "project": "share",
    "person": "share",
    "age": "age",
}


def criterion(order: Sequence[str], ahead: Turn, behind: Turn) -> Criterion:
    """The criterion of the policy's order by which one goes before the other.

    Of one owner's bookings the later has the larger share, because the earlier counts in it: that
    share is no criterion between them.
    """
    one, other = ahead.request, behind.request
    same = {
        "tenant": one.tenant == other.tenant,
        "project": one.project == other.project,
        "part": one.project == other.project,
        "person": (one.tenant, one.owner) == (other.tenant, other.owner),
    }
    pairs = enumerate(zip(ahead.numbers, behind.numbers, strict=True))
    differing = (
        at for at, (a, b) in pairs if a != b and not (0 < at <= len(order) and same.get(order[at - 1]))
    )
    return criterion_at(
        order, next(differing, None), ahead.key[0], is_fixed=one.fixed, is_inside=ahead.inside
    )


def criterion_at(
    order: Sequence[str], at: int | None, band: int, *, is_fixed: bool, is_inside: bool
) -> Criterion:
    """The same if the keys first differ at this index. `band` is of the booking that is ahead;
    `is_inside`: it is inside its guarantee."""
    if is_fixed:
        return "firm"
    if at == 0:
        if is_inside:
            return "guarantee"
        return "age" if band == AGED else "tier"
    return _CRITERIA[order[at - 1]] if at is not None and at <= len(order) else "age"
