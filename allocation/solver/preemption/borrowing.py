"""Who borrows what, and from when on a lender asks for it back.

Borrowed GPUs are at risk as soon as somebody else's booking that is within guarantee wants to run
and waits for room.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from allocation.reasons.reason import Reason, reason
from allocation.solver.model.inputs import Request, Snapshot
from allocation.solver.model.plan import Assign, Borrow, Claim, Waiting
from allocation.solver.placement.gang import demands_of
from allocation.solver.quota.quota import Quota, Use
from allocation.solver.state.working import Working

Answer = TypeVar("Answer", Assign, Waiting)


@dataclass(frozen=True, slots=True)
class Row:
    """What a booking has of a class, held or planned."""

    booking: str
    use: Use
    window: tuple[int, int]


def borrows_of(
    working: Working,
    snapshot: Snapshot,
    given: Iterable[Assign | Waiting],
    standing: Container[str] = (),
) -> tuple[tuple[Borrow, ...], tuple[Claim, ...]]:
    """Everything held, given or promised that lies above guarantees, and who claims it back.

    The guarantee goes to what can't be paused first, then to who has it earliest. What is
    `standing` has its start on the room of running work, and claims it from then on.
    """
    if not any(tier.pausable or not tier.counts for tier in snapshot.tiers):
        # Only these borrow, and a tier that nobody described is none of them.
        return (), ()
    answers = list(given)
    rows = [*held_rows(working, snapshot), *_given_rows(working, snapshot, answers)]
    touched = {_whose(row) for row in rows if _may_borrow(working.quota, row.use)}
    fresh = Quota(snapshot, working.capacity)
    instants: dict[str, list[int]] = {}
    for row in rows:
        instants.setdefault(row.use.gpu_class, []).extend(row.window)
    fresh.preallocate(instants)
    borrowed: list[tuple[Row, int]] = []
    for row in sorted(rows, key=lambda each: guarantee_order(working.quota, each)):
        if _whose(row) in touched:
            above = fresh.borrowed(row.use, row.window)
            fresh.add(row.use, row.window)
            borrowed += [(row, above)] if above else []
    if not borrowed:
        return (), ()
    waits = [answer for answer in answers if isinstance(answer, Waiting)]
    claims = _claims(working, snapshot.requests, waits, standing)
    found = [
        Borrow(row.booking, row.use.units - above, above, at_risk_from(row.use, row.window, claims))
        for row, above in borrowed
    ]
    return tuple(sorted(found, key=lambda each: each.booking)), claims


def at_risk_from(use: Use, window: tuple[int, int], claims: Iterable[Claim]) -> int | None:
    """When in [starts, ends) another tenant begins to wait for what is borrowed of the class."""
    starts, ends = window
    return min(
        (
            max(starts, claim.starts)
            for claim in claims
            if claim.gpu_class == use.gpu_class
            and claim.tenant != use.owners[0]
            and claim.starts < ends
            and starts < claim.ends
        ),
        default=None,
    )


def with_borrowed_reason(answer: Answer, borrows: dict[str, Borrow]) -> Answer:
    """The answer, saying what of it is borrowed."""
    borrow = borrows.get(answer.booking)
    if borrow is None:
        return answer
    return replace(answer, reasons=(*answer.reasons, _reason(borrow)))


def _may_borrow(quota: Quota, use: Use) -> bool:
    tier = quota.tier(use.tier)
    return (tier.pausable or not tier.counts) and quota.has_limit(use)


def guarantee_order(quota: Quota, row: Row) -> tuple[bool, bool, int, str]:
    """Whom the guarantee goes to first: what can't be paused, then who has it earliest."""
    tier = quota.tier(row.use.tier)
    return (not tier.counts, tier.pausable, row.window[0], row.booking)


def _whose(row: Row) -> tuple[str, str]:
    return (row.use.owners[0], row.use.gpu_class)


def _claims(
    working: Working,
    requests: Iterable[Request],
    waits: Iterable[Waiting],
    standing: Container[str],
) -> tuple[Claim, ...]:
    """The claims of those who wait although quota would let them start at their wish."""
    wishes = {request.booking: request for request in requests}
    claims = []
    for wait in waits:
        request = wishes[wait.booking]
        first = working.first_start(request.earliest)
        if wait.starts <= first and wait.booking not in standing:
            continue
        demand = next(
            demand for demand in demands_of(request) if demand.gpu_class == wait.gpu_class
        )
        use, window = working.use(demand), (first, first + demand.duration)
        working.quota.add(use, (wait.starts, wait.ends), -1)
        if (
            working.quota.is_within_guarantee(use, window)
            and working.quota.over(use, window) is None
        ):
            # Since its own wish, not since now: what is known must not change with each look.
            since = min(first, request.earliest)
            claims.append(
                Claim(request.booking, request.tenant, demand.gpu_class, since, window[1])
            )
        working.quota.add(use, (wait.starts, wait.ends))
    return tuple(sorted(claims, key=lambda each: each.booking))


def held_rows(working: Working, snapshot: Snapshot) -> list[Row]:
    """One row per booking and class: the places of a gang have one window."""
    found: dict[tuple[str, str], Row] = {}
    for held in snapshot.held:
        name = working.class_of(held.place.gpu)
        if name is None:
            continue
        units = working.units(name, (held.place,))
        key = (held.booking, name)
        have = found[key].use.units if key in found else 0
        use = Use((held.tenant, held.project), held.tier, name, have + units)
        found[key] = Row(held.booking, use, (held.starts, working.end_of(held)))
    return list(found.values())


def _given_rows(
    working: Working, snapshot: Snapshot, given: Iterable[Assign | Waiting]
) -> list[Row]:
    wishes = {request.booking: request for request in snapshot.requests}
    rows = []
    for answer in given:
        request = wishes[answer.booking]
        demand = next(
            demand for demand in demands_of(request) if demand.gpu_class == answer.gpu_class
        )
        rows.append(Row(answer.booking, working.use(demand), (answer.starts, answer.ends)))
    return rows


def _reason(borrow: Borrow) -> Reason:
    """What of a booking is borrowed: `8 own + 2 borrowed`."""
    facts = {"own": borrow.own, "borrowed": borrow.borrowed, "at_risk_from": borrow.at_risk_from}
    return reason("borrowed", **facts)
