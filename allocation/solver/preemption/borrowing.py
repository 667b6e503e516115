"""Which bookings borrow, and from when their borrowed GPUs are at risk.

Borrowed GPUs are at risk as soon as another tenant's booking within its guarantee waits for room.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from allocation.reasons.reason import Reason, reason
from allocation.solver.model.demand import demand_on
from allocation.solver.model.inputs import Request, Snapshot
from allocation.solver.model.plan import Assign, Borrow, Claim, Waiting
from allocation.solver.quota.quota import Quota, Use
from allocation.solver.state.cycle_state import CycleState

Answer = TypeVar("Answer", Assign, Waiting)

_FEW = 16
"""From so many rows on, all are added to the quota at once."""


@dataclass(frozen=True, slots=True)
class Row:
    """Units of a class that a booking has or is planned to have."""

    booking: str
    use: Use
    window: tuple[int, int]


def borrows_of(
    state: CycleState,
    snapshot: Snapshot,
    given: Iterable[Assign | Waiting],
    awaiting_pauses: Container[str] = (),
) -> tuple[tuple[Borrow, ...], tuple[Claim, ...]]:
    """What held and planned bookings borrow, and the claims against it.

    The guarantee goes to what can't be paused first, then to the earliest start. Bookings in
    `awaiting_pauses` have planned victims and claim from their start on.
    """
    if not any(tier.pausable or not tier.counts for tier in snapshot.tiers):
        # Only these borrow; an unknown tier counts and can't be paused.
        return (), ()
    answers = list(given)
    rows = [*held_rows(state, snapshot), *_given_rows(state, snapshot, answers)]
    touched = {_whose(row) for row in rows if _may_borrow(state.quota, row.use)}
    instants: dict[str, list[int]] = {}
    for row in rows:
        instants.setdefault(row.use.gpu_class, []).extend(row.window)
    total, fresh = Quota(snapshot, state.capacity), Quota(snapshot, state.capacity)
    for quota in (total, fresh):
        quota.preallocate(instants)
    borrowed = units_borrowed((row for row in rows if _whose(row) in touched), total, fresh)
    if not borrowed:
        return (), ()
    waits = [answer for answer in answers if isinstance(answer, Waiting)]
    claims = _claims(state, snapshot.requests, waits, awaiting_pauses)
    found = [
        Borrow(row.booking, row.use.units - above, above, at_risk_from(row.use, row.window, claims))
        for row, above in borrowed
    ]
    return tuple(sorted(found, key=lambda each: each.booking)), claims


def units_borrowed(rows: Iterable[Row], total: Quota, fresh: Quota) -> list[tuple[Row, int]]:
    """The rows that borrow, and how many units. Both quotas are the same, with nothing in use.

    What is within all guarantees when everything is counted was so in its turn, too: less was in
    use. So only the other rows are examined one by one.
    """
    rows = sorted(rows, key=lambda each: guarantee_order(total, each))
    total.add_all((row.use, row.window) for row in rows)
    found: list[tuple[Row, int]] = []
    passed: list[Row] = []
    for row in rows:
        if total.may_borrow(row.use, row.window):
            _add(fresh, passed)
            passed = []
            above = fresh.borrowed(row.use, row.window)
            found += [(row, above)] if above else []
        passed.append(row)
    return found


def _add(quota: Quota, rows: Sequence[Row]) -> None:
    """Count rows: one by one where they are few, which is cheaper then."""
    if len(rows) < _FEW:
        for row in rows:
            quota.add(row.use, row.window)
    else:
        quota.add_all((row.use, row.window) for row in rows)


def at_risk_from(use: Use, window: tuple[int, int], claims: Iterable[Claim]) -> int | None:
    """The first second of [starts, ends) at which another tenant waits for units of the class."""
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
    """The answer with a reason that states what is borrowed."""
    borrow = borrows.get(answer.booking)
    if borrow is None:
        return answer
    return replace(answer, reasons=(*answer.reasons, _reason(borrow)))


def _may_borrow(quota: Quota, use: Use) -> bool:
    tier = quota.tier(use.tier)
    return (tier.pausable or not tier.counts) and quota.has_limit(use)


def guarantee_order(quota: Quota, row: Row) -> tuple[bool, bool, int, str]:
    """Order in which a guarantee is used up: not pausable first, then the earliest start."""
    tier = quota.tier(row.use.tier)
    return (not tier.counts, tier.pausable, row.window[0], row.booking)


def _whose(row: Row) -> tuple[str, str]:
    return (row.use.owners[0], row.use.gpu_class)


def _claims(
    state: CycleState,
    requests: Iterable[Request],
    waits: Iterable[Waiting],
    awaiting_pauses: Container[str],
) -> tuple[Claim, ...]:
    """Claims of waiting bookings that quota would allow to start as requested."""
    requests_by_booking = {request.booking: request for request in requests}
    claims = []
    for wait in waits:
        request = requests_by_booking[wait.booking]
        first = state.first_start(request.earliest)
        if wait.starts <= first and wait.booking not in awaiting_pauses:
            continue
        demand = demand_on(request, wait.gpu_class)
        uses, window, quota = state.uses(demand), (first, first + demand.duration), state.quota
        for use in uses:
            quota.add(use, (wait.starts, wait.ends), -1)
        if all(quota.is_within_guarantee(u, window) and not quota.over(u, window) for u in uses):
            # Count from the requested start, not from now: the plan must not change with time
            # alone.
            since, names = min(first, request.earliest), [use.gpu_class for use in uses]
            claims += [Claim(request.booking, request.tenant, n, since, window[1]) for n in names]
        for use in uses:
            quota.add(use, (wait.starts, wait.ends))
    return tuple(sorted(claims, key=lambda each: each.booking))


def held_rows(state: CycleState, snapshot: Snapshot) -> list[Row]:
    """One row for each booking and class: all places of a gang have one window."""
    found: dict[tuple[str, str], Row] = {}
    for held in snapshot.held:
        name = state.class_of(held.place.gpu)
        if name is None:
            continue
        units = state.units(name, (held.place,))
        key = (held.booking, name)
        have = found[key].use.units if key in found else 0
        owners = state.quota.owners(held.quota_owners, held.owner)
        use = Use(owners, held.tier, name, have + units)
        found[key] = Row(held.booking, use, (held.starts, state.end_of(held)))
    return list(found.values())


def _given_rows(
    state: CycleState, snapshot: Snapshot, given: Iterable[Assign | Waiting]
) -> list[Row]:
    requests_by_booking = {request.booking: request for request in snapshot.requests}
    rows = []
    for answer in given:
        request = requests_by_booking[answer.booking]
        demand = demand_on(request, answer.gpu_class)
        window = (answer.starts, answer.ends)
        rows += [Row(answer.booking, use, window) for use in state.uses(demand)]
    return rows


def _reason(borrow: Borrow) -> Reason:
    """What a booking has of its own and what it borrows: `8 own + 2 borrowed`."""
    facts = {"own": borrow.own, "borrowed": borrow.borrowed, "at_risk_from": borrow.at_risk_from}
    return reason("borrowed", **facts)
