"""Planned starts that are outside their guarantee as soon as the plan is written.

What a cycle assigns and extends counts before all planned starts from the next cycle on, also where
it only borrows. A start that no longer fits next to it is `expected`, and is stated so at once: in
the next cycle other tenants may overtake it. So is a start that only fits because other tenants
lend: what a project does not lend, others of its tenant can't use.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from solver.cycle.order.guaranteed_use import GuaranteedUse
from solver.cycle.order.held_guarantees import Whose
from solver.model.demand import demand_on
from solver.model.inputs import Held, Request, Snapshot
from solver.model.plan import Assign, Extend, Pause, Waiting
from solver.quota.limits import dates_of, guarantees_at
from solver.quota.quota import Quota
from solver.quota.use import Use
from solver.state.cycle_state import CycleState

_THIS_CYCLE = 2**62
"""A cycle number after all that granted what is held."""


def lost_guarantees(
    state: CycleState,
    use: GuaranteedUse,
    snapshot: Snapshot,
    waits: Iterable[Waiting],
    written: tuple[Collection[Assign], Collection[Extend], Collection[Pause]],
) -> set[str]:
    """Bookings with a guaranteed start that the next cycle finds outside the guarantee. `use`
    counts what the plan has, `written` is what it assigns, extends and pauses."""
    assigns, extensions, pauses = written
    extended = {each.booking: each.until for each in extensions if each.granted}
    walled = _walled(snapshot)
    if not (assigns or extended or walled):
        return set()
    requests = {request.booking: request for request in snapshot.requests}
    known = [each for each in assigns if each.booking in requests]
    grants = [row for each in known for row in _rows(requests[each.booking], each)]
    longer = [row for row in snapshot.held if row.booking in extended]
    taken = {(row.tenant, state.class_of(row.place.gpu) or "") for row in (*grants, *longer)}
    taken |= walled
    planned = list(_planned(use, taken, waits))
    if not planned:
        return set()
    ends = extended | {pause.booking: pause.at for pause in pauses}
    tenants = {tenant for tenant, _ in taken}
    held = (row for row in snapshot.held if row.tenant in tenants)
    rows = [replace(row, ends=ends.get(row.booking, row.ends)) for row in held]
    after = use.with_held((*rows, *grants))
    after.count_all((wait.booking, use.found(wait.booking)) for wait in planned)
    names = {wait.booking for wait in planned}
    lost = {name for name in names if not after.is_counted(name)} | (names & after.outgrown())
    walled_rows = [wait for wait in planned if walled & {*use.whose(wait.booking)}]
    if walled_rows:
        given = [(requests[each.booking], each) for each in known]
        lost |= _not_lent(state, use, snapshot, walled_rows, given)
    return lost


def _walled(snapshot: Snapshot) -> set[Whose]:
    """Tenants and classes of which a project or a lab does not lend all of its guarantee at some time."""
    found = _walled_at(snapshot)
    for instant in dates_of(snapshot) if snapshot.guarantees else ():
        found |= _walled_at(guarantees_at(snapshot, instant))
    return found


def _walled_at(snapshot: Snapshot) -> set[Whose]:
    labs = {
        (lab.tenant, lab.gpu_class)
        for lab in snapshot.labs
        if lab.lend is not None and lab.lend < lab.guaranteed
    }
    return labs | {
        (row.parent, row.gpu_class)
        for row in snapshot.limits
        if row.parent is not None and row.lend is not None and row.lend < row.guaranteed
    }


def _not_lent(
    state: CycleState,
    use: GuaranteedUse,
    snapshot: Snapshot,
    waits: Iterable[Waiting],
    given: Iterable[tuple[Request, Assign]],
) -> set[str]:
    """Planned starts that do not fit what their tenant's projects lend each other, next to the work
    that is held or assigned and fits."""
    quota = Quota(snapshot, state.capacity, state.grid)
    rows = [(held, window) for held, window, _ in state.held_uses.rows()]
    rows += [
        (use_of_class, (each.starts, each.ends))
        for request, each in given
        for use_of_class in state.uses(demand_on(request, each.gpu_class))
    ]
    rows = [row for row in rows if quota.tier(row[0].tier).counts]
    rows.sort(key=lambda row: -quota.tier(row[0].tier).priority)
    for held, window in rows:
        _fits(quota, held, window)
    fits = [(wait.booking, use.found(wait.booking)) for wait in waits]
    return {name for name, found in fits if not _fit(quota, state.uses(found.demand), found.window)}


def _fits(quota: Quota, use: Use, window: tuple[int, int]) -> bool:
    """Count a use if it is within its owners' guarantees in all of a window."""
    fits = quota.is_within_guarantee(use, window)
    if fits:
        quota.add(use, window)
    return fits


def _fit(quota: Quota, uses: Collection[Use], window: tuple[int, int]) -> bool:
    """`_fits` for all uses of one booking, all or none."""
    fits = all(quota.is_within_guarantee(use, window) for use in uses)
    return fits and all(_fits(quota, use, window) for use in uses)


def _planned(use: GuaranteedUse, taken: set[Whose], waits: Iterable[Waiting]) -> Iterator[Waiting]:
    """Firm and guaranteed starts of these tenants and classes, in the order in which the next cycle
    counts them."""
    found = [
        wait
        for wait in waits
        if wait.strength != "expected" and use.has(wait.booking) and taken & {*use.whose(wait.booking)}
    ]
    yield from sorted(found, key=lambda wait: (wait.strength, wait.starts, wait.booking))


def _rows(request: Request, given: Assign) -> Iterator[Held]:
    """The rows that an assignment becomes."""
    for place in given.places:
        yield Held(
            id=f"{given.booking}/{place.gpu}/{place.start}",
            booking=given.booking,
            tenant=request.tenant,
            project=request.project,
            place=place,
            starts=given.starts,
            ends=given.ends,
            started=False,
            tier=request.tier,
            granted=(_THIS_CYCLE, given.position),
            mixed=bool(request.ask.groups),
        )
