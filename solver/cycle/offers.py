"""Offers of free room to the waiting list, and open offers that are withdrawn.

Offers come after the whole queue, in its order, on what it has left: nobody is paused or moved for
one. An offer is not a booking yet, so it needs time to be answered before its start is frozen.

An open offer is withdrawn if a claim inside its guarantee has no other room. The cycle is decided
with all offers where they are, then again without them, as for idle bookings. Who would be paused
or borrows takes no offer from anybody.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from solver.cycle.order.queue import INSIDE, BookingQueue
from solver.cycle.outcome import Outcome
from solver.explanation.explain import possible_demands
from solver.model.demand import Demand, Fit, demands_of
from solver.model.inputs import Entry, Request, Snapshot
from solver.model.plan import Assign, Offered, Plan, Waiting

SHORTEST, LONGEST = 300, 1_800
"""How long an offer is open, in seconds: a tenth of the time until its start, between these."""
_MOST_TRIED = 50
"""Starts in one window that are tried."""
MOST = 6
"""Offers that are considered in a cycle."""
NEVER = 2**62

Solve = Callable[[Snapshot], Plan]


def offers_make(outcome: Outcome, queue: BookingQueue, entries: Iterable[Entry]) -> tuple[Offered, ...]:
    """Reserve a place for each entry that has room in one of its windows.

    Entries whose offers had no answer come after the others. A person gets one offer in a class.
    """
    ranked = sorted(entries, key=lambda each: (each.expired, queue.turn(_request_of(each)).key, each.booking))
    crowded = _crowded(outcome) if ranked else frozenset[str]()
    given: set[tuple[str, str]] = set()
    offers = []
    for entry in ranked:
        owner = entry.request.owner
        without = crowded | {*entry.barred} | {name for who, name in given if who == owner}
        found = _found(outcome, entry, without)
        if found is None:
            continue
        outcome.state.reserve(found)
        name = found.demand.gpu_class
        given.update((owner, each.gpu_class) for each in found.demand.parts)
        until = _until(outcome, found)
        offers.append(Offered(entry.booking, name, found.places, *found.window, until))
    return tuple(sorted(offers, key=lambda each: each.booking))


def _request_of(entry: Entry) -> Request:
    """Its request at the first of its windows."""
    return replace(entry.request, earliest=min(since for since, _ in entry.windows), fixed=True)


def _crowded(outcome: Outcome) -> frozenset[str]:
    """Classes for which somebody in the queue has not been placed, because of its depth: what looks
    free there is theirs."""
    return frozenset(
        wait.gpu_class
        for wait in outcome.waits
        if any(reason.code == "behind_the_plan" for reason in wait.reasons)
    )


def _found(outcome: Outcome, entry: Entry, without: frozenset[str]) -> Fit | None:
    """The earliest free place in its windows that leaves the time to answer."""
    state = outcome.state
    # Whoever waits for an offer leaves headroom free.
    demands, _ = possible_demands(state, demands_of(replace(entry.request, behind=True)))
    best: Fit | None = None
    for demand in demands:
        if any(each.gpu_class in without for each in demand.parts):
            continue
        soonest = state.frozen_for(demand) + SHORTEST
        for since, until in sorted(entry.windows):
            first, last = max(since, soonest), until - demand.duration
            if best is not None:
                last = min(last, best.starts - 1)
            found = _earliest(outcome, demand, first, last)
            if found is not None:
                best = found
                break
    return best


def _earliest(outcome: Outcome, demand: Demand, first: int, last: int) -> Fit | None:
    """The earliest fit that leaves others their quota.

    Work that counts may take the quota of spot and borrowed work, even if it has a planned start;
    an offer may not.
    """
    state = outcome.state
    for _ in range(_MOST_TRIED):
        if first > last or first > state.now + state.policy.horizon:
            return None
        if first == last:
            found = state.first_at((demand,), first)
        else:
            found = state.earliest((demand,), first, last)
        uses = state.uses(demand)
        if found is None or not any(state.quota.takes_back(use, found.window) for use in uses):
            return found
        later = [state.quota.next_change(use.gpu_class, found.starts) for use in uses]
        if not any(later):
            return None
        first = state.first_start(min(filter(None, later)))
    return None


def _until(outcome: Outcome, found: Fit) -> int:
    """The second from which the offer can't be accepted any more."""
    state = outcome.state
    lead = found.starts - state.now
    frozen = state.frozen_for(found.demand) - state.now
    return min(state.now + min(max(lead // 10, SHORTEST), LONGEST), found.starts - frozen)


def with_withdrawals(plan: Plan, snapshot: Snapshot, solve: Solve) -> Plan:
    """The plan of a snapshot with the bookings whose open offers are withdrawn, as few as
    possible. A window for which they are is not refused: the next cycle gives it the place."""
    late = _late(plan, snapshot)
    chosen = _offered(snapshot, late)
    if not chosen:
        return plan
    after = _starts(solve(_without(snapshot, chosen)))
    earlier = {who: after[who] for who in late if who in after and after[who] < late[who]}
    if not earlier:
        return plan
    for each in reversed(chosen):
        fewer = [other for other in chosen if other != each]
        if not fewer:
            break
        found = _starts(solve(_without(snapshot, fewer)))
        if all(found.get(who, NEVER) <= starts for who, starts in earlier.items()):
            chosen = fewer
    refusals = tuple(each for each in plan.refusals if each.booking not in earlier)
    return replace(plan, refusals=refusals, offers_withdrawn=tuple(chosen))


def _late(plan: Plan, snapshot: Snapshot) -> dict[str, int]:
    """Claims inside their guarantee that don't start as requested, with their starts. A refused
    window is one if its tier is never paused: it can't be outside."""
    requests = {request.booking: request for request in snapshot.requests}
    sure = {tier.slug for tier in snapshot.tiers if tier.counts and not tier.pausable}
    found = {
        wait.booking: wait.starts
        for wait in plan.waits
        if wait.key[:1] == (INSIDE,)
        and wait.booking in requests
        and wait.starts > max(requests[wait.booking].earliest, snapshot.now)
    }
    refused = (each.booking for each in plan.refusals if each.booking in requests)
    return found | {who: NEVER for who in refused if requests[who].tier in sure}


def _offered(snapshot: Snapshot, late: Mapping[str, int]) -> list[str]:
    """Bookings with an open offer in a class for which one of these claims waits."""
    offered = [row for row in snapshot.held if row.offered] if late else []
    if not offered:
        return []
    asked = (request.ask.classes for request in snapshot.requests if request.booking in late)
    wanted = {name for classes in asked for name in classes}
    class_of = {gpu.id: gpu.gpu_class for gpu in snapshot.gpus}
    rows = (row for row in offered if class_of[row.place.gpu] in wanted)
    return sorted({row.booking for row in rows})[:MOST]


def _starts(plan: Plan) -> dict[str, int]:
    planned: tuple[Assign | Waiting, ...] = (*plan.assigns, *plan.waits)
    return {each.booking: each.starts for each in planned if each.places}


def _without(snapshot: Snapshot, chosen: Collection[str]) -> Snapshot:
    held = tuple(row for row in snapshot.held if row.booking not in chosen)
    return replace(snapshot, held=held, entries=())
