"""Proposals to move running work so that a waiting booking starts sooner.

The solver never acts on a proposal. A proposal names the bookings to pause, where each resumes, the
work that is lost and the time that is won; an operator decides (see `relocation_orders`). Only
pausable bookings past their protected time and with one place are considered. Shares and bookings
with host cores or memory are left out, because only GPUs are compared here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from solver.fleet.mig_geometry import WHOLE_MASK, Masks
from solver.fleet.pool import Pool
from solver.model.demand import Demand, Fit, demand_on
from solver.model.inputs import Held, Place, Request, Snapshot
from solver.model.plan import Assign, Plan, Waiting
from solver.model.policy import Policy
from solver.placement.rearrange import Movable, Neighbourhood, Rearranged, Window, rearrange
from solver.state.cycle_state import CycleState

RESUME_SECONDS = 120
"""Seconds that a pause and a resume take even when no work is lost."""
_WIDTH = 8
_ASKS = 12


@dataclass(frozen=True, slots=True)
class Moved:
    """A running booking to pause and resume elsewhere; `cost` in GPU-seconds."""

    booking: str
    source: Place
    target: Place
    cost: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """Moves after which `beneficiary` starts `notice` seconds from now, `sooner` seconds before its
    plan.

    `cost` is the GPU-seconds of work that the moves discard. `proven`: no cheaper set of moves
    exists on the GPUs that were examined.
    """

    beneficiary: str
    gpu_class: str
    places: tuple[Place, ...]
    notice: int
    sooner: int
    moves: tuple[Moved, ...]
    cost: int
    proven: bool


def propose(snapshot: Snapshot, plan: Plan, policy: Policy) -> tuple[Proposal, ...]:
    """Proposals, best first: GPU-seconds won per GPU-second lost, then booking id.

    `plan` is the result of `solve` for the same snapshot. Proposals are independent alternatives:
    after one is carried out, the others must be computed again.
    """
    requests = {request.booking: request for request in snapshot.requests}
    late = [
        wait
        for wait in plan.waits
        if wait.booking in requests and _could_start(snapshot, requests[wait.booking], wait)
    ]
    late.sort(key=lambda wait: (-requests[wait.booking].priority, wait.starts, wait.booking))
    found = [
        proposal
        for wait in late[:_ASKS]
        if (proposal := _proposal(snapshot, plan, policy, requests[wait.booking], wait)) is not None
    ]

    def gain(proposal: Proposal) -> int:
        return proposal.sooner * len(proposal.places) * 1_000 // (proposal.cost + 1)

    return tuple(sorted(found, key=lambda each: (-gain(each), each.beneficiary)))


def _could_start(snapshot: Snapshot, request: Request, wait: Waiting) -> bool:
    """True when only room delays the booking, and by long enough to be worth a move."""
    is_near = wait.starts > snapshot.now + RESUME_SECONDS
    ask = request.ask
    is_gpu = not (ask.share or ask.cores or ask.memory or ask.pin or ask.groups)
    can_wait = not request.fixed and not request.paused
    return is_gpu and is_near and request.earliest <= snapshot.now and can_wait


def _proposal(
    snapshot: Snapshot, plan: Plan, policy: Policy, request: Request, wait: Waiting
) -> Proposal | None:
    state = _after(snapshot, plan, policy, wait.booking)
    demand = demand_on(request, wait.gpu_class)
    notified = {pause.booking for pause in plan.pauses}
    movable = [
        each for each in _movable(snapshot, state, demand.gpu_class) if each[0].booking not in notified
    ]
    notices = {held.place: state.running[held.booking].tier.grace for held, _ in movable}
    # Any subset may move, so all windows begin within the longest of the notices.
    longest = max(notices.values(), default=0)
    whole = replace(demand, duration=demand.duration + longest)
    if state.over(whole, state.now) is not None:
        return None
    pool = state.pools[demand.gpu_class]
    calendar, now = state.all.gpus[demand.gpu_class], state.now
    busy = calendar.busy(np.array([now], dtype=np.int64), whole.duration)[0]
    for held, _ in movable:
        calendar.remove((held.place,), now, state.end_of(held))

    def is_free(place: Place, window: Window) -> bool:
        since, until = window[0], window[1] + longest
        has_mode = state.all.modes.is_free(pool, (place,), (since, until))
        return has_mode and calendar.is_free((place,), since, until)

    best: Rearranged | None = None
    for group in _groups(pool, demand):
        columns = _neighbourhood(pool, demand, busy, movable, group)
        here = [item for _, item in movable if pool.column[item.place.gpu] in columns]
        found = rearrange(Neighbourhood(pool, tuple(columns), is_free), demand, now, here)
        if found is not None and (best is None or found.cost < best.cost):
            best = found
    if best is None or not best.moves:
        return None
    notice = max(notices[source] for source, _ in best.moves)
    if wait.starts <= now + notice + RESUME_SECONDS:
        return None
    return _said(request, wait, best, movable, (now, notice))


def _after(snapshot: Snapshot, plan: Plan, policy: Policy, booking: str) -> CycleState:
    """The state after the plan, without the reservation of one booking."""
    state = CycleState(snapshot, policy)
    requests = {request.booking: request for request in (*snapshot.running, *snapshot.requests)}
    granted = {each.booking for each in plan.changes if each.granted}
    changes = (each for each in snapshot.changes if each.booking in granted)
    requests |= {change.booking: change.target for change in changes}
    answers: list[Assign | Waiting] = [*plan.assigns, *plan.waits]
    for answer in answers:
        if answer.booking == booking or not answer.places:
            continue
        demand = demand_on(requests[answer.booking], answer.gpu_class)
        demand = replace(demand, duration=answer.ends - answer.starts)
        found = Fit(demand, answer.places, answer.starts)
        if all(
            state.all.gpus[part.demand.gpu_class].is_free(part.places, *part.window)
            for part in state.parts(found)
        ):
            state.reserve(found)
    return state


def _movable(snapshot: Snapshot, state: CycleState, gpu_class: str) -> list[tuple[Held, Movable]]:
    """Pausable running bookings with one place, and what a pause of each would lose."""
    found = []
    # A suspended booking resumes only on its original GPUs.
    stays = {request.booking for request in snapshot.running if request.home}
    for held in snapshot.held:
        if held.booking not in state.running or held.booking in stays:
            continue
        runner = state.running[held.booking]
        is_safe = runner.protected > state.now or runner.is_mixed
        is_one = len(runner.places) == 1 and not any(runner.host_resources) and not held.pinned
        if is_safe or not is_one or runner.use.gpu_class != gpu_class:
            continue
        lost = state.now - max(runner.since, held.saved or 0)
        window = (state.now, held.ends)
        cost = max(0, lost) + RESUME_SECONDS
        found.append((held, Movable(held.place, cost, window, held.booking, where=held.where)))
    return found


def _groups(pool: Pool, demand: Demand) -> Iterable[range]:
    """The groups that can hold the whole demand, by its level."""
    for number in range(len(pool.bounds[demand.level])):
        yield pool.members(demand.level, number)


def _neighbourhood(
    pool: Pool, demand: Demand, busy: Masks, movable: Sequence[tuple[Held, Movable]], group: range
) -> list[int]:
    """A few columns of a group: the cheapest to clear for the demand, the emptiest for moves."""
    cost = dict.fromkeys(group, 0)
    fixed = {column: int(busy[column]) & WHOLE_MASK for column in group}
    for _, item in movable:
        column = pool.column[item.place.gpu]
        if column in cost:
            cost[column] += item.cost
            fixed[column] &= ~pool.mask_of(item.place)
    able = [column for column in group if pool.eligible(demand.profile)[column]]
    clear = sorted(able, key=lambda c: (fixed[c].bit_count(), cost[c], c))[: _WIDTH // 2]
    roomy = sorted(group, key=lambda c: (int(busy[c] & WHOLE_MASK).bit_count(), c))
    wide = max(_WIDTH, demand.count + _WIDTH // 2)
    return sorted(list(dict.fromkeys([*clear, *roomy]))[:wide])


def _said(
    request: Request,
    wait: Waiting,
    best: Rearranged,
    movable: Sequence[tuple[Held, Movable]],
    when: tuple[int, int],
) -> Proposal:
    now, notice = when
    known = {item.place: (held.booking, item.cost) for held, item in movable}
    moves = tuple(Moved(known[source][0], source, target, known[source][1]) for source, target in best.moves)
    return Proposal(
        request.booking,
        wait.gpu_class,
        best.places,
        notice,
        wait.starts - now - notice,
        moves,
        best.cost,
        best.proven,
    )
