"""Who borrows what, and from when on a lender asks for it back.

Borrowed GPUs are at risk as soon as somebody else's booking that is within guarantee wants to run
and waits for room.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from allocation.solver.explain import borrowed_reason
from allocation.solver.placement import wants_of
from allocation.solver.plan import Assign, Borrow, Waiting
from allocation.solver.quota import Quota, Use
from allocation.solver.types import Request, Snapshot
from allocation.solver.working import Working

Answer = TypeVar("Answer", Assign, Waiting)


@dataclass(frozen=True, slots=True)
class Claim:
    """A booking within guarantee that would be running in [starts, ends) if there were room."""

    tenant: str
    gpu_class: str
    starts: int
    ends: int


@dataclass(frozen=True, slots=True)
class _Row:
    """What a booking has of a class, held or planned."""

    booking: str
    use: Use
    window: tuple[int, int]


def claims_of(
    working: Working, requests: Iterable[Request], waits: Iterable[Waiting]
) -> list[Claim]:
    """The claims of those who wait although quota would let them start at their wish."""
    wishes = {request.booking: request for request in requests}
    claims = []
    for wait in waits:
        request = wishes[wait.booking]
        first = working.first_start(request.earliest)
        want = next(want for want in wants_of(request) if want.gpu_class == wait.gpu_class)
        use, window = working.use(want), (first, first + want.duration)
        if wait.starts <= first:
            continue
        working.quota.add(use, (wait.starts, wait.ends), -1)
        if working.quota.is_sure(use, window) and working.quota.over(use, window) is None:
            claims.append(Claim(request.tenant, want.gpu_class, *window))
        working.quota.add(use, (wait.starts, wait.ends))
    return claims


def borrows_of(
    working: Working, snapshot: Snapshot, given: Iterable[Assign | Waiting]
) -> tuple[Borrow, ...]:
    """Everything held, given or promised that lies above guarantees, by booking.

    The guarantee goes to what can't be paused first, then to who has it earliest.
    """
    answers = list(given)
    rows = [*_held_rows(working, snapshot), *_given_rows(working, snapshot, answers)]
    pausable = [row for row in rows if _may_borrow(working.quota, row.use)]
    if not pausable:
        return ()
    touched = {(row.use.owners[0], row.use.gpu_class) for row in pausable}
    rows = [row for row in rows if (row.use.owners[0], row.use.gpu_class) in touched]
    fresh = Quota(snapshot, working.capacity)
    waits = [answer for answer in answers if isinstance(answer, Waiting)]
    claims: list[Claim] | None = None
    found: dict[str, Borrow] = {}
    for row in sorted(rows, key=lambda each: _rank(working.quota, each)):
        borrowed = fresh.borrowed(row.use, row.window)
        fresh.add(row.use, row.window)
        if borrowed:
            if claims is None:
                claims = claims_of(working, snapshot.requests, waits)
            risk = _risk(row, claims)
            found[row.booking] = Borrow(row.booking, row.use.units - borrowed, borrowed, risk)
    return tuple(found[booking] for booking in sorted(found))


def said(answer: Answer, borrows: dict[str, Borrow]) -> Answer:
    """The answer, saying what of it is borrowed."""
    borrow = borrows.get(answer.booking)
    if borrow is None:
        return answer
    return replace(answer, reasons=(*answer.reasons, borrowed_reason(borrow)))


def _may_borrow(quota: Quota, use: Use) -> bool:
    tier = quota.tier(use.tier)
    return (tier.pausable or not tier.counts) and quota.follows(use)


def _rank(quota: Quota, row: _Row) -> tuple[bool, bool, int, str]:
    tier = quota.tier(row.use.tier)
    return (not tier.counts, tier.pausable, row.window[0], row.booking)


def _risk(row: _Row, claims: Iterable[Claim]) -> int | None:
    starts, ends = row.window
    return min(
        (
            max(starts, claim.starts)
            for claim in claims
            if claim.gpu_class == row.use.gpu_class
            and claim.tenant != row.use.owners[0]
            and claim.starts < ends
            and starts < claim.ends
        ),
        default=None,
    )


def _held_rows(working: Working, snapshot: Snapshot) -> list[_Row]:
    """One row per booking and class: the places of a gang have one window."""
    found: dict[tuple[str, str], _Row] = {}
    for held in snapshot.held:
        name = working.class_of(held.place.gpu)
        if name is None:
            continue
        units = working.units(name, (held.place,))
        key = (held.booking, name)
        have = found[key].use.units if key in found else 0
        use = Use((held.tenant, held.project), held.tier, name, have + units)
        found[key] = _Row(held.booking, use, (held.starts, working.end_of(held)))
    return list(found.values())


def _given_rows(
    working: Working, snapshot: Snapshot, given: Iterable[Assign | Waiting]
) -> list[_Row]:
    wishes = {request.booking: request for request in snapshot.requests}
    rows = []
    for answer in given:
        request = wishes[answer.booking]
        want = next(want for want in wants_of(request) if want.gpu_class == answer.gpu_class)
        rows.append(_Row(answer.booking, working.use(want), (answer.starts, answer.ends)))
    return rows
