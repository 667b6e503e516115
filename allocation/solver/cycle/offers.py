"""Offers of free room to the waiting list.

They come after the whole queue, in its order, on what it has left: nobody is paused or moved for an
offer. An offer is not a booking yet, so it needs time to be answered before its start is frozen.
"""

from collections.abc import Iterable
from dataclasses import replace

from allocation.solver.cycle.order.queue import BookingQueue
from allocation.solver.cycle.outcome import Outcome
from allocation.solver.model.demand import Demand, Fit, demands_of
from allocation.solver.model.inputs import Entry, Request
from allocation.solver.model.plan import Offered
from allocation.solver.reasons.explain import possible_demands

SHORTEST, LONGEST = 300, 1_800
"""How long an offer is open, in seconds: a tenth of the time until its start, between these."""
_MOST_TRIED = 50
"""Starts in one window that are tried."""


def offers_make(
    outcome: Outcome, queue: BookingQueue, entries: Iterable[Entry]
) -> tuple[Offered, ...]:
    """Reserve a place for each entry that has room in one of its windows.

    Entries whose offers had no answer come after the others. A person gets one offer in a class.
    """
    ranked = sorted(
        entries, key=lambda each: (each.expired, queue.turn(_asked(each)).key, each.booking)
    )
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


def _asked(entry: Entry) -> Request:
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
    demands, _ = possible_demands(state, demands_of(entry.request))
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
