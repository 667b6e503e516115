"""Extensions of live bookings: their room and limits, and those that are decided before the queue.

Planned starts keep their second and may change their places.
"""

from collections.abc import Iterable
from dataclasses import replace

from solver.explanation.explain import maintenance, why_quota
from solver.model.demand import Fit, demand_of_held
from solver.model.inputs import WITHIN, Extension, Held, Place, Snapshot
from solver.model.leaving import Notice
from solver.model.plan import Extend
from solver.reasons.reason import Reason, reason
from solver.state.cycle_state import CycleState


def extension_decide(
    state: CycleState, extension: Extension, held: tuple[Held, ...], kept: dict[str, Fit]
) -> Extend:
    """Grant or refuse an extension and reserve what is granted; may move the reservations in
    `kept`.

    An `until` that is not later than the present end is granted: it takes no room.
    """
    until = extension.until
    blocked = why_not_live(state, held, until) or _extend(state, held, until, kept)
    return Extend(extension.booking, until, () if blocked is None else (blocked,))


def why_not_live(state: CycleState, held: tuple[Held, ...], until: int) -> Reason | None:
    """The reason that forbids any later end: it does not run, or others get its room."""
    if not held or until <= max(state.now, *(row.starts for row in held)):
        return reason("not_live")
    return _pause_blocks(state, held)


def why_never(state: CycleState, held: tuple[Held, ...], wanted: tuple[Fit, ...]) -> Reason | None:
    """The reason that forbids these stretches whatever is planned: hardware or maintenance."""
    return _hardware_blocks(state, held) or _maintenance_blocks(state, wanted)


def why_not_longer(state: CycleState, held: tuple[Held, ...], until: int) -> Reason | None:
    """The reason that forbids a later end with no reservation moved; None: nothing does."""
    if not held:
        return reason("not_live")
    wanted = rest_of(state, held, until)
    blocked = (
        _pause_blocks(state, held)
        or _hardware_blocks(state, held)
        or _maintenance_blocks(state, wanted)
        or quota_blocks(state, wanted)
    )
    if blocked is None and not all(state.all.is_free(found) for found in wanted):
        return place_taken(state, wanted)
    return blocked


def extensions_decide(state: CycleState, snapshot: Snapshot, kept: dict[str, Fit]) -> tuple[Extend, ...]:
    """Decide those without a place in the queue, in order. An extended booking can't become a
    victim in this cycle."""
    asked = [each for each in snapshot.extensions if each.request is None]
    held = held_by(snapshot, asked)
    answers = tuple(
        extension_decide(state, extension, tuple(held[extension.booking]), kept) for extension in asked
    )
    state.running.keep(each.booking for each in answers if each.granted)
    return answers


def held_by(snapshot: Snapshot, asked: Iterable[Extension | Notice]) -> dict[str, list[Held]]:
    """The rows of the bookings of extensions or notices."""
    found: dict[str, list[Held]] = {each.booking: [] for each in asked}
    for row in snapshot.held if found else ():
        if row.booking in found:
            found[row.booking].append(row)
    return found


def _extend(state: CycleState, held: tuple[Held, ...], until: int, kept: dict[str, Fit]) -> Reason | None:
    """Reserve the missing stretches until then; or return the reason, with nothing changed."""
    wanted = rest_of(state, held, until)
    blocked = (
        _hardware_blocks(state, held)
        or _maintenance_blocks(state, wanted)
        or quota_blocks(state, wanted)
        or room_blocks(state, wanted, kept)
    )
    if blocked is None:
        for found in wanted:
            state.reserve(found)
    return blocked


def rest_of(state: CycleState, held: tuple[Held, ...], until: int) -> tuple[Fit, ...]:
    """The stretches that the extension adds; those that begin together are one fit."""
    places: dict[Fit, list[Place]] = {}
    for row in held:
        starts = state.end_of(row)
        if starts < until:
            places.setdefault(_stretch(state, row, starts, until), []).append(row.place)
    return tuple(
        replace(found, demand=replace(found.demand, count=len(rows)), places=tuple(rows))
        for found, rows in places.items()
    )


def _stretch(state: CycleState, row: Held, starts: int, until: int) -> Fit:
    """The stretch that the extension adds to one allocation, without its place. What is never
    paused borrows for a bounded window, so a later end than that stays within the guarantee."""
    gpu_class = state.class_of(row.place.gpu) or ""
    demand = demand_of_held(row, gpu_class, until - starts)
    longest = state.quota.tier(demand.tier).borrow
    if longest and until - row.starts > longest:
        demand = replace(demand, tier=demand.tier.removesuffix(WITHIN) + WITHIN)
    return Fit(demand, (), starts)


def _pause_blocks(state: CycleState, held: tuple[Held, ...]) -> Reason | None:
    """Refuse a booking that has notice, or whose room is planned for a preemptor."""
    if any(row.pausing or state.running.has_preemptor(row.booking) for row in held):
        return reason("room_promised")
    return None


def _hardware_blocks(state: CycleState, held: tuple[Held, ...]) -> Reason | None:
    """Refuse on GPUs out of service: they finish what they have and take no more."""
    lost = sorted({row.place.gpu for row in held if not state.is_in_service(row.place.gpu)})
    return reason("hardware_out", out=len(lost)) if lost else None


def _maintenance_blocks(state: CycleState, wanted: tuple[Fit, ...]) -> Reason | None:
    """Refuse when maintenance overlaps the added stretches."""
    for found in wanted:
        gpus = [place.gpu for place in found.places]
        away, back = state.maintenance.away(found.demand.gpu_class, found.window, gpus)
        if away:
            return maintenance(away, "booking", back)
    return None


def quota_blocks(state: CycleState, wanted: tuple[Fit, ...]) -> Reason | None:
    """The limit that the added stretches exceed together; they differ only in their start."""
    for gpu_class in sorted({found.demand.gpu_class for found in wanted}):
        rows = [found for found in wanted if found.demand.gpu_class == gpu_class]
        first = min(rows, key=lambda found: found.starts)
        demand = replace(first.demand, count=sum(found.demand.count for found in rows))
        blocked = why_quota(state, demand, first.starts)
        if blocked is not None:
            return blocked
    return None


def room_blocks(state: CycleState, wanted: tuple[Fit, ...], kept: dict[str, Fit]) -> Reason | None:
    """None when the room is free, if need be after moving reservations to other places."""
    if all(state.all.is_free(found) for found in wanted):
        return None
    moved = {booking: found for booking, found in kept.items() if overlaps(found, wanted)}
    for found in moved.values():
        state.free(found)
    again = _reserve_again(state, wanted, moved)
    if again is not None:
        kept.update(again)
        return None
    for found in moved.values():
        state.reserve(found)
    return place_taken(state, wanted)


def place_taken(state: CycleState, wanted: tuple[Fit, ...]) -> Reason:
    """The reason of a later end whose room others have."""
    return reason("extension_busy", possible_until=_free_until(state, wanted))


def _reserve_again(
    state: CycleState, wanted: tuple[Fit, ...], moved: dict[str, Fit]
) -> dict[str, Fit] | None:
    """Other places for the reservations in the way; None, with nothing changed: there are none."""
    if not all(state.all.is_free(found) for found in wanted):
        return None
    for found in wanted:
        state.reserve(found)
    again: dict[str, Fit] = {}
    for booking, found in moved.items():
        other = state.at(found.demand, found.starts)
        if other is None:
            break
        state.reserve(other)
        again[booking] = other
    for found in wanted:
        state.free(found)
    if len(again) == len(moved):
        return again
    for found in again.values():
        state.free(found)
    return None


def overlaps(found: Fit, wanted: tuple[Fit, ...]) -> bool:
    """True when a fit has some of the stretches' room at some time."""
    return any(
        found.starts < other.ends and other.starts < found.ends and _share(found.places, other.places)
        for other in wanted
    )


def _share(ones: tuple[Place, ...], others: tuple[Place, ...]) -> bool:
    return any(
        one.gpu == other.gpu and one.start < other.start + other.size and other.start < one.start + one.size
        for one in ones
        for other in others
    )


def _free_until(state: CycleState, wanted: tuple[Fit, ...]) -> int:
    """The latest end, in Unix seconds, that all of them could have."""
    return min(
        state.all.free_until(found.demand.gpu_class, place, found.window)
        for found in wanted
        for place in found.places
    )
