"""One cycle: `solve(snapshot, policy)` in numbered steps.

Conservative backfill: every planned start is a reservation, so no booking is delayed by one that
stands behind it in the queue.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from solver.cycle.changes import Changes
from solver.cycle.extending.extensions import extensions_decide
from solver.cycle.extending.turns import ExtensionTurns
from solver.cycle.extending.withdrawals import (
    as_unneeded,
    by_dropped_rules,
    needless,
    of_no_claim,
    planned_anew,
    withdrawals,
)
from solver.cycle.idle import idle_releases
from solver.cycle.offers import offers_make, with_withdrawals
from solver.cycle.order.guaranteed_use import GuaranteedUse
from solver.cycle.order.queue import BookingQueue, Turn
from solver.cycle.order.strengths import Strengths
from solver.cycle.outcome import Outcome, plan_of
from solver.cycle.planned_starts import planned_starts_reserve
from solver.cycle.relocation_orders import relocation_orders_apply
from solver.cycle.soft_places import SoftPlaces
from solver.cycle.walk import Walk
from solver.model.inputs import Request, Snapshot
from solver.model.plan import Plan
from solver.model.policy import Policy
from solver.preemption.search import Preemption
from solver.rebinding.rebinding import Rebinding
from solver.state.cycle_state import CycleState, asked_classes
from solver.state.kept import Kept


def solve(snapshot: Snapshot, policy: Policy, kept: Kept | None = None, *, brief: bool = False) -> Plan:
    """Decide all requests, extensions and orders of a snapshot in canonical order.

    `kept` has what an earlier cycle made of held work; the plan is the same without it. A `brief`
    plan does not say why somebody waits, who borrows, and what else would work.
    """
    if snapshot.notices:
        dropped = by_dropped_rules(snapshot, policy)
        snapshot = planned_anew(snapshot, dropped) if dropped else snapshot
        snapshot = as_unneeded(snapshot, dropped | of_no_claim(snapshot))
    plan = _solve(snapshot, policy, kept, brief=brief)
    if snapshot.notices and (bookings := needless(plan, snapshot, policy)):
        # Decide again with them where they are, before anybody else is planned on their room.
        snapshot = replace(as_unneeded(snapshot, bookings), notices=())
        plan = _solve(snapshot, policy, brief=brief)
    # 8. Take idle GPUs with which somebody in the queue starts earlier, and offers without which a
    # claim inside its guarantee does.
    again = partial(_solve, policy=policy)
    plan = replace(plan, idle=idle_releases(plan, snapshot, again, policy.grid))
    return with_withdrawals(plan, snapshot, again)


def _solve(snapshot: Snapshot, policy: Policy, earlier: Kept | None = None, *, brief: bool = False) -> Plan:
    """Decide with all idle GPUs where they are."""
    others = _other_turns(snapshot)
    # 1. Load running and held work, which does not move.
    state = _state_of(snapshot, policy, earlier, asked_classes(snapshot) if brief else None)
    preemption = Preemption(state, snapshot)
    use = GuaranteedUse(state, snapshot)
    # 2. Compute the queue: all who wait, whether they have a planned start or not.
    queue = BookingQueue(state, snapshot, use.for_queue())
    strengths = Strengths(state, snapshot, use)
    turns = queue.turns((*snapshot.requests, *others), strengths.firm(snapshot.requests))
    # 3. Reserve every firm and every guaranteed start that still fits at its second.
    waiting = (turn.request for turn in turns)
    planned, kept, broken = planned_starts_reserve(
        state, preemption, strengths, waiting, ("firm", "guaranteed")
    )
    # 4. Withdraw pauses that nobody needs any more; decide extensions without a place in the queue;
    # carry out operators' orders. None of these delays a planned start.
    rebinding = Rebinding(state, snapshot)
    withdrawn = withdrawals(state, snapshot, kept, rebinding)
    extensions = extensions_decide(state, snapshot, kept)
    keys = {turn.request.booking: turn.numbers for turn in turns}
    outcome = Outcome(state, preemption, rebinding, strengths, keys, brief=brief)
    done = {*withdrawn, *outcome.record_orders(relocation_orders_apply(state, snapshot, kept))}
    rebinding.keep((each for each in planned if each.booking not in done), kept)
    # 5. Walk along the queue. A request without a start takes free room, or room that requests
    # behind it free, or room after moves or pauses that the rules allow. Planned starts stay where
    # they are if nobody ahead has taken their room, and get earlier if there is room. Paused
    # bookings resume at their own place in the queue. A booking with a change has two: one for what
    # it has, one for what it asks for. Requests that wait for an approval get soft places.
    extended = {each.booking for each in extensions if each.granted}
    changed = {
        state.class_of(row.place.gpu) or ""
        for row in (snapshot.held if extended else ())
        if row.booking in extended
    }
    rest = [turn for turn in turns if turn.request.booking not in done]
    snapshot = _with_targets_behind(snapshot, turns)
    changes = Changes.of(outcome, snapshot)
    later_ends = ExtensionTurns.of(outcome, snapshot) if others else None
    soft = SoftPlaces(outcome, queue, snapshot.pending)
    walk = Walk(outcome, queue, rest, kept, broken)
    walk.run(snapshot.running, soft, changed, changes, later_ends)
    # 6. Add who borrows, and the totals of each queue.
    extensions = later_ends.with_answers(extensions) if later_ends else extensions
    plan = plan_of(outcome, changes.applied(snapshot), extensions)
    plan = replace(plan, withdrawn=withdrawn, changes=changes.sorted(), soft=soft.answers())
    # 7. Offer what is left to the waiting list.
    return replace(plan, offers=offers_make(outcome, queue, snapshot.entries))


def _other_turns(snapshot: Snapshot) -> list[Request]:
    """What changes and later ends ask for, which have places in the queue of their own."""
    longer = (each.request for each in snapshot.extensions if each.request is not None)
    return [*(change.target for change in snapshot.changes), *longer]


def _with_targets_behind(snapshot: Snapshot, turns: Iterable[Turn]) -> Snapshot:
    """The snapshot with the targets of changes that leave headroom free."""
    behind = {turn.request.booking for turn in turns if turn.request.behind}
    if not behind or not snapshot.changes:
        return snapshot
    changes = (
        replace(each, target=replace(each.target, behind=each.target.booking in behind))
        for each in snapshot.changes
    )
    return replace(snapshot, changes=tuple(changes))


def _state_of(
    snapshot: Snapshot, policy: Policy, kept: Kept | None, asked: frozenset[str] | None
) -> CycleState:
    """The state in which a cycle begins; from time to time a fresh one proves what is kept."""
    state = CycleState(snapshot, policy, kept, asked)
    if kept is not None and kept.is_to_compare(snapshot.now):
        fresh = CycleState(snapshot, policy, asked=asked)
        if not state.begins_as(fresh):
            kept.drifted()
            return fresh
    return state
