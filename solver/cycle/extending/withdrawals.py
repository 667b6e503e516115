"""Notices that are withdrawn, because nobody needs the room any more."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from solver.cycle.extending.extensions import (
    held_by,
    quota_blocks,
    rest_of,
    room_blocks,
)
from solver.model.demand import Fit, demand_of_held
from solver.model.inputs import BEGUN, WITHIN, Extension, Held, Snapshot
from solver.model.leaving import Notice
from solver.model.plan import Plan, Waiting
from solver.model.policy import Policy
from solver.reasons.catalogue import BY_CODE, UNPROVEN
from solver.reasons.reason import Reason
from solver.rebinding.rebinding import Rebinding
from solver.state.cycle_state import CycleState

_PAUSING = {BY_CODE[code].id: code for code in ("taken_back", "higher_tier", "fairer_share")}
"""The reasons of pauses by a rule of the policy, by their ids."""


def of_no_claim(snapshot: Snapshot) -> set[str]:
    """The bookings with notice whose claim neither waits nor has a place: it is stopped, unplanned
    or handed in for an approval."""
    there = {request.booking for request in snapshot.requests}
    there |= {row.booking for row in snapshot.held}
    return {each.booking for each in snapshot.notices if each.beneficiary not in there}


def by_dropped_rules(snapshot: Snapshot, policy: Policy) -> set[str]:
    """The bookings with notice by a rule that the policy does not have any more."""
    ruled = [each for each in snapshot.notices if each.rule in _PAUSING]
    if not ruled:
        return set()
    claims = {each.booking: each.tenant for each in snapshot.requests}
    claims |= {row.booking: row.tenant for row in snapshot.held}
    classes = {gpu.id: gpu.gpu_class for gpu in snapshot.gpus}
    rows = held_by(snapshot, ruled)
    return {
        each.booking
        for each in ruled
        for row in rows[each.booking]
        if _rule_of(each, claims.get(each.beneficiary) == row.tenant)
        not in policy.of(classes.get(row.place.gpu), row.tenant).victim_rules
    }


def _rule_of(notice: Notice, is_own: bool) -> str:  # noqa: FBT001 (of one thing)
    """The rule of the policy: one organisation's part and guarantee have the same reason."""
    code = _PAUSING[notice.rule]
    return "own_part" if is_own and code == "taken_back" else code


def planned_anew(snapshot: Snapshot, bookings: Iterable[str]) -> Snapshot:
    """The snapshot without the planned starts of the claims for which these have notice."""
    gone = set(bookings)
    claims = {each.beneficiary for each in snapshot.notices if each.booking in gone}
    requests = (replace(each, planned=None) if each.booking in claims else each for each in snapshot.requests)
    return replace(snapshot, requests=tuple(requests))


def as_unneeded(snapshot: Snapshot, bookings: Iterable[str]) -> Snapshot:
    """The snapshot with the notices of these bookings as unneeded."""
    gone = set(bookings)
    more = (Extension(n.booking, n.until) for n in snapshot.notices if n.booking in gone)
    rest = tuple(each for each in snapshot.notices if each.booking not in gone)
    return replace(snapshot, unneeded=(*snapshot.unneeded, *more), notices=rest)


def needless(plan: Plan, snapshot: Snapshot, policy: Policy) -> set[str]:
    """The bookings whose notice turned out as needless: they can stay next to the start of their
    claim, or it starts so much later that a new notice would be early enough."""
    starts = {each.booking: each.starts for each in plan.assigns}
    starts |= {each.booking: each.starts for each in plan.waits if _is_proven(each)}
    waiting = {request.booking for request in snapshot.requests}
    rows = held_by(snapshot, snapshot.notices)
    graces = {tier.slug: tier.grace for tier in snapshot.tiers}
    found = {each.booking for each in snapshot.notices if each.booking in plan.withdrawn}
    for each in snapshot.notices:
        held = rows[each.booking]
        if not held or each.beneficiary not in waiting:
            continue
        anew = snapshot.now + graces.get(held[0].tier, 0) + policy.notice_margin
        latest = max(held[0].ends, anew)
        if starts.get(each.beneficiary, latest + 1) > latest:
            found.add(each.booking)
    return found


def _is_proven(wait: Waiting) -> bool:
    return bool(wait.places) and all(why.code not in UNPROVEN for why in wait.reasons[:1])


def withdrawals(
    state: CycleState, snapshot: Snapshot, kept: dict[str, Fit], rebinding: Rebinding
) -> tuple[str, ...]:
    """Bookings whose notice is withdrawn, because nobody needs their room and they can keep it.

    The planned resume of such a booking is dropped. What was reserved since on their places moves
    to other ones at its own second; a pause stays when there are none. Where the claim still has
    its start, that is reserved and in the way too, unless it has room elsewhere.
    """
    asked = (*snapshot.unneeded, *_of_standing_claims(snapshot, kept))
    held = held_by(snapshot, asked)
    found = []
    for each in asked:
        own = kept.pop(each.booking, None)
        if own is not None:
            state.free(own)
        rows = tuple(held[each.booking])
        if rows and _can_stay(state, snapshot, rows, each.until, kept, rebinding):
            found.append(each.booking)
        elif own is not None:
            state.reserve(own)
            kept[each.booking] = own
    return tuple(sorted(found))


def _of_standing_claims(snapshot: Snapshot, kept: dict[str, Fit]) -> Iterator[Extension]:
    """Those with notice for a claim whose start is reserved. Of a claim that has lost it nobody
    knows yet whose room it needs."""
    written = {row.booking for row in snapshot.held if snapshot.notices and not row.pausing}
    for each in snapshot.notices:
        if each.beneficiary in kept or each.beneficiary in written:
            yield Extension(each.booking, each.until)


def _can_stay(
    state: CycleState,
    snapshot: Snapshot,
    held: tuple[Held, ...],
    until: int,
    kept: dict[str, Fit],
    rebinding: Rebinding,
) -> bool:
    """Reserve what they had until then, if nobody was given it since; False: nothing has changed.

    They get nothing new, so neither hardware that is closed to new work nor maintenance forbids it,
    nor a limit that was cut below what runs.
    """
    wanted = tuple(map(_as_begun, rest_of(state, held, until)))
    outside = tuple(part for found in wanted for part in _outside_maintenance(state, found))
    if _why_over(state, snapshot, wanted, kept) or not _has_room(state, outside, kept, rebinding):
        return False
    for found in wanted:
        # Maintenance has taken its room, too, so it is not free.
        state.take(found)
        for use in state.uses(found.demand):
            state.quota.add(use, found.window)
    return True


def _as_begun(found: Fit) -> Fit:
    """The rest of what was admitted: it may borrow, whatever its tier allows by now."""
    tier = found.demand.tier.removesuffix(WITHIN) + BEGUN
    return replace(found, demand=replace(found.demand, tier=tier))


def _has_room(state: CycleState, wanted: tuple[Fit, ...], kept: dict[str, Fit], rebinding: Rebinding) -> bool:
    """Whether the room is free, if need be after moves of planned starts and of written rows."""
    if room_blocks(state, wanted, kept) is None:
        return True
    written: dict[str, Fit] = {}
    for found in wanted:
        written |= rebinding.near(found.demand.gpu_class, found.window)
    reserved = kept | written
    if not written or room_blocks(state, wanted, reserved):
        return False
    kept.update((booking, reserved[booking]) for booking in kept if booking not in written)
    for booking, before in sorted(written.items()):
        if reserved[booking] is not before:
            rebinding.movable.move(before.demand.gpu_class, {booking: reserved[booking]})
    return True


def _outside_maintenance(state: CycleState, found: Fit) -> Iterator[Fit]:
    """The stretches without maintenance of its places: in maintenance nobody else is planned."""
    blackouts = state.maintenance.by_class.get(found.demand.gpu_class, ())
    away = [each for each in blackouts if each.gpu in {place.gpu for place in found.places}]
    if not away:
        yield found
        return
    for place in found.places:
        windows = [found.window]
        for blackout in away:
            if blackout.gpu == place.gpu:
                windows = [
                    (begins, ends)
                    for first, last in windows
                    for begins, ends in (
                        (first, min(last, blackout.starts)),
                        (max(first, blackout.ends), last),
                    )
                    if begins < ends
                ]
        for begins, ends in windows:
            yield Fit(replace(found.demand, count=1, duration=ends - begins), (place,), begins)


def _why_over(
    state: CycleState, snapshot: Snapshot, wanted: tuple[Fit, ...], kept: dict[str, Fit]
) -> Reason | None:
    """The limit that others use up by what was planned; None: without them it would be the same."""
    blocked = quota_blocks(state, wanted)
    if blocked is None:
        return None
    planned = [(use, found.window) for found in kept.values() for use in state.uses(found.demand)]
    for row in snapshot.held:
        gpu_class = state.class_of(row.place.gpu)
        if not row.started and gpu_class is not None:
            demand = demand_of_held(row, gpu_class, row.ends - row.starts)
            planned.append((state.use(demand), (row.starts, row.ends)))
    for use, window in planned:
        state.quota.add(use, window, -1)
    alone = quota_blocks(state, wanted)
    for use, window in planned:
        state.quota.add(use, window)
    return None if alone else blocked
