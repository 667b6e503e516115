"""Which bookings borrow, and from when their borrowed GPUs are at risk.

Borrowed GPUs are at risk as soon as another tenant's booking within its guarantee waits for room.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple, TypeVar

import numpy as np

from solver.fleet.fragmentation import Ints
from solver.fleet.pool import Index
from solver.model.demand import demand_on
from solver.model.inputs import Request, Snapshot
from solver.model.plan import Assign, Borrow, Claim, Waiting
from solver.quota.quota import Quota
from solver.quota.tree import Tree
from solver.quota.use import Guarantees, Use, UseTable
from solver.reasons.reason import Reason, reason
from solver.state.cycle_state import CycleState
from solver.state.held_work import BookedUse

_FEW = 16
"""From so many rows on, all are added to the quota at once."""


class Pour:
    """Guarantees of an empty quota, taken up by rows in turn. Rows are named by their numbers."""

    def __init__(self, quota: Quota, rows: Sequence[tuple[Use, tuple[int, int]]]) -> None:
        """Nothing is taken up yet."""
        self._quota, self._rows = quota, rows
        kinds = {use[:3]: use for use, _ in rows}
        known = {kind: quota.guarantees(use) for kind, use in kinds.items()}
        self._of = [known[use[:3]] for use, _ in rows]
        self._slices = self._slices_of(filter(None, known.values()))

    def _slices_of(self, known: Iterable[Guarantees]) -> dict[int, dict[int, slice]]:
        """By tree and row, the rows of the tree in its window."""
        trees: dict[int, Tree] = {}
        for each in known:
            trees |= {id(tree): tree for tree in (each.tree, *each.written)}
        numbers: dict[int, list[int]] = {name: [] for name in trees}
        for number, own in enumerate(self._of):
            for name in {id(own.tree), *map(id, own.written)} if own is not None else ():
                numbers[name].append(number)
        found = {}
        for name, tree in trees.items():
            windows = np.array([self._rows[n][1] for n in numbers[name]], dtype=np.int64)
            windows = windows.reshape(-1, 2)
            slices = tree.slices(windows[:, 0], windows[:, 1])
            found[name] = dict(zip(numbers[name], slices, strict=True))
        return found

    def borrowed(self, number: int) -> int:
        """How many units of a row are above the guarantees that are left."""
        own, use = self._of[number], self._rows[number][0]
        if own is None:
            return use.units if self._quota.has_limit(use) else 0
        room = own.tree.room_in(own.path, self._slices[id(own.tree)][number])
        return max(0, use.units - room)

    def add(self, numbers: Sequence[int]) -> None:
        """Take up what these rows have: one by one where they are few, which is cheaper then."""
        if len(numbers) >= _FEW:
            self._quota.add_all(self._rows[number] for number in numbers)
            return
        for number in numbers:
            own, units = self._of[number], self._rows[number][0].units
            if own is not None:
                for tree in own.written:
                    tree.add_in(own.path, units, self._slices[id(tree)][number])


Answer = TypeVar("Answer", Assign, Waiting)


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
    tiers = (state.quota.tier(tier.slug) for tier in snapshot.tiers)
    if not any(tier.pausable or not tier.counts or tier.borrow for tier in tiers):
        # Only these borrow; an unknown tier counts and can't be paused.
        return (), ()
    answers = list(given)
    held = _HeldUses.of(state, snapshot)
    more = _given_rows(state, snapshot, answers)
    touched = {_whose(use) for use in held.table.kinds if _may_borrow(state.quota, use)}
    touched |= {_whose(row.use) for row in more if _may_borrow(state.quota, row.use)}
    held, more = held.only(touched), [row for row in more if _whose(row.use) in touched]
    instants = _instants(held.table, more)
    total = Quota(snapshot, state.capacity, instants=instants)
    total.add_table(held.table)
    total.add_all((row.use, row.window) for row in more)
    # What is within all guarantees when everything is counted was so in its turn, too: less was in
    # use.
    if not held.may_borrow(total) and not any(_may_borrow_each(total, more)):
        return (), ()
    fresh = Quota(snapshot, state.capacity, instants=instants)
    borrowed = units_borrowed([*held.rows(), *more], total, fresh)
    if not borrowed:
        return (), ()
    waits = [answer for answer in answers if isinstance(answer, Waiting)]
    claims = _claims(state, snapshot.requests, waits, awaiting_pauses)
    return tuple(_together(state.quota, borrowed, claims)), claims


def _together(quota: Quota, borrowed: Iterable[tuple[Row, int]], claims: Sequence[Claim]) -> Iterator[Borrow]:
    """By booking; of a mixed one, all that it borrows in one window. What is never paused is at no
    risk."""
    rows = sorted(borrowed, key=lambda each: each[0].booking)
    by_class: dict[str, list[Claim]] = {}
    for claim in claims:
        by_class.setdefault(claim.gpu_class, []).append(claim)
    for (booking, window), of in groupby(rows, key=lambda each: (each[0].booking, each[0].window)):
        mine = list(of)
        units, above = sum(row.use.units for row, _ in mine), sum(more for _, more in mine)
        lasts = _lasts(quota, mine[0][0].use)
        pausable = () if lasts else (row.use for row, _ in mine)
        risks = (at_risk_from(use, window, by_class.get(use.gpu_class, ())) for use in pausable)
        risk = min((each for each in risks if each is not None), default=None)
        yield Borrow(booking, units - above, above, risk, int(lasts))


class _HeldUses(NamedTuple):
    """What bookings hold, one row for each booking and class: all of a gang have one window."""

    every: Sequence[BookedUse]
    at: Index
    table: UseTable

    @classmethod
    def of(cls, state: CycleState, snapshot: Snapshot) -> "_HeldUses":
        """All that is held."""
        work = state.work_of(snapshot.held)
        ends = state.grid.ends(state.free_from_all(work.use_table.ends))
        at = np.arange(len(work.uses), dtype=np.intp)
        return cls(work.uses, at, state.quota.uses_of(work.use_table, ends))

    def only(self, whose: Container[tuple[str, str]]) -> "_HeldUses":
        """The rows of these tenants and classes."""
        table = self.table
        mine = np.array([_whose(use) in whose for use in table.kinds], dtype=np.bool_)
        at = np.flatnonzero(mine[table.kind]) if len(mine) else table.kind
        numbers = (each[at] for each in table[1:])
        return _HeldUses(self.every, self.at[at], UseTable(table.kinds, *numbers))

    def may_borrow(self, total: Quota) -> bool:
        """False when certainly none of them borrows, with everything counted."""
        table = self.table
        for kind in np.unique(table.kind).tolist():
            at = np.flatnonzero(table.kind == kind)
            if total.may_borrow(table.kinds[kind], table.starts[at], table.ends[at]).any():
                return True
        return False

    def rows(self) -> list[Row]:
        """The rows by themselves."""
        table = self.table
        bookings = [self.every[each].booking for each in self.at.tolist()]
        numbers = zip(*(each.tolist() for each in table[1:]), strict=True)
        return [
            Row(booking, table.kinds[kind]._replace(units=units), (starts, ends))
            for booking, (kind, units, starts, ends) in zip(bookings, numbers, strict=True)
        ]


def _instants(held: UseTable, given: Iterable[Row]) -> dict[str, Ints]:
    """The seconds at which something begins or ends, by class."""
    edges: dict[str, list[Ints]] = {}
    for kind, use in enumerate(held.kinds):
        mine = held.kind == kind
        edges.setdefault(use.gpu_class, []).extend((held.starts[mine], held.ends[mine]))
    for row in given:
        window = np.array(row.window, dtype=np.int64)
        edges.setdefault(row.use.gpu_class, []).append(window)
    return {name: np.concatenate(each) for name, each in edges.items()}


def units_borrowed(rows: Iterable[Row], total: Quota, fresh: Quota) -> list[tuple[Row, int]]:
    """The rows that borrow, and how many units. `total` has all of them in use, `fresh` nothing.

    What is within all guarantees when everything is counted was so in its turn, too: less was in
    use. So only the other rows are examined one by one.
    """
    rows = sorted(rows, key=lambda each: guarantee_order(total, each))
    pour = Pour(fresh, [(row.use, row.window) for row in rows])
    found: list[tuple[Row, int]] = []
    passed: list[int] = []
    for number, may_borrow in enumerate(_may_borrow_each(total, rows)):
        if may_borrow:
            pour.add(passed)
            passed = []
            above = pour.borrowed(number)
            found += [(rows[number], above)] if above else []
        passed.append(number)
    return found


def _may_borrow_each(total: Quota, rows: Sequence[Row]) -> list[bool]:
    """False for each row that certainly borrows nothing."""
    kinds: dict[tuple[object, ...], list[int]] = {}
    for number, row in enumerate(rows):
        kinds.setdefault(row.use[:3], []).append(number)
    found = [False] * len(rows)
    for numbers in kinds.values():
        windows = np.array([rows[number].window for number in numbers], dtype=np.int64)
        flags = total.may_borrow(rows[numbers[0]].use, windows[:, 0], windows[:, 1])
        for number, flag in zip(numbers, flags.tolist(), strict=True):
            found[number] = flag
    return found


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
    borrows = tier.pausable or not tier.counts or tier.borrow > 0
    return borrows and quota.has_limit(use)


def _lasts(quota: Quota, use: Use) -> bool:
    """True when nobody can have a booking of its tier paused."""
    tier = quota.tier(use.tier)
    return tier.counts and not tier.pausable


def guarantee_order(quota: Quota, row: Row) -> tuple[bool, bool, int, str]:
    """Order in which a guarantee is used up: not pausable first, then the earliest start."""
    tier = quota.tier(row.use.tier)
    return (not tier.counts, tier.pausable, row.window[0], row.booking)


def _whose(use: Use) -> tuple[str, str]:
    return (use.owners[0], use.gpu_class)


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
        uses, window = state.uses(demand), (first, first + demand.duration)
        if _may_start_inside(state, uses, window, (wait.starts, wait.ends)):
            # Count from the requested start, not from now: the plan must not change with time
            # alone.
            since, names = min(first, request.earliest), [use.gpu_class for use in uses]
            claims += [Claim(request.booking, request.tenant, n, since, window[1]) for n in names]
    return tuple(sorted(claims, key=lambda each: each.booking))


def _may_start_inside(
    state: CycleState, uses: Sequence[Use], window: tuple[int, int], planned: tuple[int, int]
) -> bool:
    """True when a booking would be allowed in a window, and inside its guarantee, if it did not
    have its planned one."""
    quota = state.quota
    if len(uses) == 1:
        # What fits next to its own planned window fits without that, too.
        if _is_allowed_inside(quota, uses, window):
            return True
        if not quota.has_hours and state.grid.end(planned[0]) == planned[0]:
            # Before it begins its own planned window takes nothing.
            before = (window[0], min(window[1], planned[0]))
            if state.grid.end(window[1]) <= planned[0] or quota.over(uses[0], before) is not None:
                return False
    for use in uses:
        quota.add(use, planned, -1)
    found = _is_allowed_inside(quota, uses, window)
    for use in uses:
        quota.add(use, planned)
    return found


def _is_allowed_inside(quota: Quota, uses: Iterable[Use], window: tuple[int, int]) -> bool:
    return all(quota.is_within_guarantee(u, window) and not quota.over(u, window) for u in uses)


def _given_rows(state: CycleState, snapshot: Snapshot, given: Iterable[Assign | Waiting]) -> list[Row]:
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
    return reason("borrowed", **facts, lasts=borrow.lasts or None)
