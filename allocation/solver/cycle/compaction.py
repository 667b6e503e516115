"""Proposals to move running work together so that a waiting booking starts sooner.

Nothing of it is ever done by itself: a proposal says who would be paused and resumed where, what
that costs, and what is won, and an operator decides (`carrying`). Only work that may be paused at
all, that is past its protected time and lies in one place is thought of; no shares, and nothing
that was promised cores or memory of its host, because only GPUs are looked at here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from allocation.solver.fleet.mig_geometry import WHOLE_MASK, Masks
from allocation.solver.fleet.pool import Pool
from allocation.solver.model.inputs import Held, Place, Policy, Request, Snapshot
from allocation.solver.model.plan import Assign, Plan, Waiting
from allocation.solver.placement.cp_sat import Movable, Neighbourhood, Rearranged, Window, rearrange
from allocation.solver.placement.gang import Demand, demands_of
from allocation.solver.state.working import Fit, Working

RESUME_SECONDS = 120
"""What a pause and a resume take even when nothing is lost."""
_WIDTH = 8
_ASKS = 12


@dataclass(frozen=True, slots=True)
class Moved:
    """A running booking that would be paused and resumed elsewhere; `cost` in GPU-seconds."""

    booking: str
    source: Place
    target: Place
    cost: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """After these moves, `notice` seconds from now, `beneficiary` could start, `sooner` seconds
    before its plan.

    `cost` are the GPU-seconds of work that the moves throw away; `proven`: no cheaper way exists
    on the GPUs that were looked at.
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
    """What is worth a move, the best first: GPU-seconds won per GPU-second lost, then booking.

    `plan` is what `solve` made of the same snapshot. Each proposal stands for itself: after one is
    carried out the others must be asked for anew.
    """
    wishes = {request.booking: request for request in snapshot.requests}
    late = [
        wait
        for wait in plan.waits
        if wait.booking in wishes and _could_start(snapshot, wishes[wait.booking], wait)
    ]
    late.sort(key=lambda wait: (-wishes[wait.booking].priority, wait.starts, wait.booking))
    found = [
        proposal
        for wait in late[:_ASKS]
        if (proposal := _proposal(snapshot, plan, policy, wishes[wait.booking], wait)) is not None
    ]
    return tuple(sorted(found, key=lambda each: (-_gain(each), each.beneficiary)))


def _gain(proposal: Proposal) -> int:
    return proposal.sooner * len(proposal.places) * 1_000 // (proposal.cost + 1)


def _could_start(snapshot: Snapshot, request: Request, wait: Waiting) -> bool:
    """It is only room that it waits for, and long enough to be worth a word."""
    is_near = wait.starts > snapshot.now + RESUME_SECONDS
    ask = request.ask
    is_gpu = ask.share is None and not ask.cores and not ask.memory and not ask.pin
    can_wait = not request.fixed and not request.paused
    return is_gpu and is_near and request.earliest <= snapshot.now and can_wait


def _proposal(
    snapshot: Snapshot, plan: Plan, policy: Policy, request: Request, wait: Waiting
) -> Proposal | None:
    working = _after(snapshot, plan, policy, wait.booking)
    demand = next(demand for demand in demands_of(request) if demand.gpu_class == wait.gpu_class)
    notified = {pause.booking for pause in plan.pauses}
    movable = [
        each
        for each in _movable(snapshot, working, demand.gpu_class)
        if each[0].booking not in notified
    ]
    notices = {held.place: working.running[held.booking].tier.grace for held, _ in movable}
    # Whichever of them move: all of it begins within the longest of their notices.
    longest = max(notices.values(), default=0)
    whole = replace(demand, duration=demand.duration + longest)
    if working.over(whole, working.now) is not None:
        return None
    pool = working.pools[demand.gpu_class]
    calendar, now = working.calendars[demand.gpu_class], working.now
    busy = calendar.busy(np.array([now], dtype=np.int64), whole.duration)[0]
    for held, _ in movable:
        calendar.remove((held.place,), now, working.end_of(held))

    def is_free(place: Place, window: Window) -> bool:
        since, until = window[0], window[1] + longest
        is_cut_so = working.modes.is_free(pool, (place,), (since, until))
        return is_cut_so and calendar.is_free((place,), since, until)

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


def _after(snapshot: Snapshot, plan: Plan, policy: Policy, booking: str) -> Working:
    """The calendar with everything that was given or promised, but for the one booking."""
    working = Working(snapshot, policy)
    wishes = {request.booking: request for request in (*snapshot.running, *snapshot.requests)}
    answers: list[Assign | Waiting] = [*plan.assigns, *plan.waits]
    for answer in answers:
        if answer.booking == booking or not answer.places:
            continue
        demand = next(
            demand
            for demand in demands_of(wishes[answer.booking])
            if demand.gpu_class == answer.gpu_class
        )
        demand = replace(demand, duration=answer.ends - answer.starts)
        found = Fit(demand, answer.places, answer.starts)
        if working.calendars[demand.gpu_class].is_free(found.places, *found.window):
            working.reserve(found)
    return working


def _movable(snapshot: Snapshot, working: Working, gpu_class: str) -> list[tuple[Held, Movable]]:
    """Running work that may be paused and lies in one place, with what a pause would lose."""
    found = []
    # What would be suspended goes on only where it was.
    stays = {wish.booking for wish in snapshot.running if wish.home}
    for held in snapshot.held:
        if held.booking not in working.running or held.booking in stays:
            continue
        runner = working.running[held.booking]
        is_safe = runner.out - runner.tier.grace > working.now
        is_one = len(runner.places) == 1 and not any(runner.of_host) and not held.pinned
        if is_safe or not is_one or runner.use.gpu_class != gpu_class:
            continue
        lost = working.now - max(runner.since, held.saved or 0)
        window = (working.now, held.ends)
        cost = max(0, lost) + RESUME_SECONDS
        found.append((held, Movable(held.place, cost, window, held.booking)))
    return found


def _groups(pool: Pool, demand: Demand) -> Iterable[range]:
    """Where all of the ask has to lie: each group of its level."""
    for number in range(len(pool.bounds[demand.level])):
        yield pool.members(demand.level, number)


def _neighbourhood(
    pool: Pool,
    demand: Demand,
    busy: Masks,
    movable: Sequence[tuple[Held, Movable]],
    group: range,
) -> list[int]:
    """Few columns of a group: the cheapest to clear for the ask, the emptiest for what goes."""
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
    moves = tuple(
        Moved(known[source][0], source, target, known[source][1]) for source, target in best.moves
    )
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
