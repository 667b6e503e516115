"""Extensions: a live booking asks to end later. Promises keep their start, not their place."""

from collections.abc import Iterable
from dataclasses import replace

from allocation.reasons.reason import Reason, reason
from allocation.solver.model.demand import demand_of_held
from allocation.solver.model.inputs import Extension, Held, Place, Snapshot
from allocation.solver.model.plan import Extend
from allocation.solver.reasons.explain import maintenance, why_quota
from allocation.solver.state.working import Fit, Working


def extension_decide(
    working: Working, extension: Extension, held: tuple[Held, ...], kept: dict[str, Fit]
) -> Extend:
    """Grant or refuse; what is granted is reserved. `kept` promises may change their places.

    An end that is not later than now's is granted as it takes no room.
    """
    until = extension.until
    if not held or until <= max(working.now, *(row.starts for row in held)):
        return Extend(extension.booking, until, (reason("not_live"),))
    blocked = _pause_blocks(working, held) or _extend(working, held, until, kept)
    return Extend(extension.booking, until, () if blocked is None else (blocked,))


def why_not_longer(working: Working, held: tuple[Held, ...], until: int) -> Reason | None:
    """What forbids a later end as things lie, with nothing moved and nothing changed."""
    if not held:
        return reason("not_live")
    wanted = _rest(working, held, until)
    blocked = (
        _pause_blocks(working, held)
        or _hardware_blocks(working, held)
        or _maintenance_blocks(working, wanted)
        or _quota_blocks(working, wanted)
    )
    if blocked is None and not all(working.is_free(found) for found in wanted):
        return _place_taken(working, wanted)
    return blocked


def extensions_decide(
    working: Working, snapshot: Snapshot, kept: dict[str, Fit]
) -> tuple[Extend, ...]:
    """All of them in order; nothing new may stand on what was just given more."""
    held = _held_by(snapshot, snapshot.extensions)
    answers = tuple(
        extension_decide(working, extension, tuple(held[extension.booking]), kept)
        for extension in snapshot.extensions
    )
    working.running.keep(each.booking for each in answers if each.granted)
    return answers


def withdrawals(working: Working, snapshot: Snapshot, kept: dict[str, Fit]) -> tuple[str, ...]:
    """Who was told to leave for what needs it no more, and can keep all of its room to its end.

    Its own promise to go on goes with the pause. Everything else that was given or promised since
    stands, and where that is in the way the pause does too.
    """
    held = _held_by(snapshot, snapshot.unneeded)
    found = []
    for each in snapshot.unneeded:
        own = kept.pop(each.booking, None)
        if own is not None:
            working.free(own)
        rows = tuple(held[each.booking])
        if rows and _extend(working, rows, each.until, kept) is None:
            found.append(each.booking)
        elif own is not None:
            working.reserve(own)
            kept[each.booking] = own
    return tuple(found)


def _held_by(snapshot: Snapshot, asked: Iterable[Extension]) -> dict[str, list[Held]]:
    found: dict[str, list[Held]] = {each.booking: [] for each in asked}
    for row in snapshot.held if found else ():
        if row.booking in found:
            found[row.booking].append(row)
    return found


def _extend(
    working: Working, held: tuple[Held, ...], until: int, kept: dict[str, Fit]
) -> Reason | None:
    """Reserves what is missing until then; else why not, with nothing changed."""
    wanted = _rest(working, held, until)
    blocked = (
        _hardware_blocks(working, held)
        or _maintenance_blocks(working, wanted)
        or _quota_blocks(working, wanted)
        or _room_blocks(working, wanted, kept)
    )
    if blocked is None:
        for found in wanted:
            working.reserve(found)
    return blocked


def _rest(working: Working, held: tuple[Held, ...], until: int) -> tuple[Fit, ...]:
    """The stretches that the extension adds, those that begin together as one."""
    places: dict[Fit, list[Place]] = {}
    for row in held:
        starts = working.end_of(row)
        if starts < until:
            places.setdefault(_stretch(working, row, starts, until), []).append(row.place)
    return tuple(
        replace(found, demand=replace(found.demand, count=len(rows)), places=tuple(rows))
        for found, rows in places.items()
    )


def _stretch(working: Working, row: Held, starts: int, until: int) -> Fit:
    """What the extension adds to one allocation, its place left out."""
    gpu_class = working.class_of(row.place.gpu) or ""
    return Fit(demand_of_held(row, gpu_class, until - starts), (), starts)


def _pause_blocks(working: Working, held: tuple[Held, ...]) -> Reason | None:
    """Whose room somebody else has been promised gives it back, when it is told to."""
    if any(row.pausing or working.running.has_preemptor(row.booking) for row in held):
        return reason("room_promised")
    return None


def _hardware_blocks(working: Working, held: tuple[Held, ...]) -> Reason | None:
    """GPUs out of service finish what they have and take no more."""
    lost = sorted({row.place.gpu for row in held if not working.is_in_service(row.place.gpu)})
    return reason("hardware_out", out=len(lost)) if lost else None


def _maintenance_blocks(working: Working, wanted: tuple[Fit, ...]) -> Reason | None:
    """Maintenance that the added stretches would reach into."""
    for found in wanted:
        gpus = [place.gpu for place in found.places]
        away, back = working.maintenance.away(found.demand.gpu_class, found.window, gpus)
        if away:
            return maintenance(away, "booking", back)
    return None


def _quota_blocks(working: Working, wanted: tuple[Fit, ...]) -> Reason | None:
    """The limit that the added stretches break together; they differ only by their begin."""
    for gpu_class in sorted({found.demand.gpu_class for found in wanted}):
        rows = [found for found in wanted if found.demand.gpu_class == gpu_class]
        first = min(rows, key=lambda found: found.starts)
        demand = replace(first.demand, count=sum(found.demand.count for found in rows))
        blocked = why_quota(working, demand, first.starts)
        if blocked is not None:
            return blocked
    return None


def _room_blocks(working: Working, wanted: tuple[Fit, ...], kept: dict[str, Fit]) -> Reason | None:
    """None when the room is free, after moving promises to other places at their same start."""
    if all(working.is_free(found) for found in wanted):
        return None
    moved = {booking: found for booking, found in kept.items() if _overlaps(found, wanted)}
    for found in moved.values():
        working.free(found)
    again = _reserve_again(working, wanted, moved)
    if again is not None:
        kept.update(again)
        return None
    for found in moved.values():
        working.reserve(found)
    return _place_taken(working, wanted)


def _place_taken(working: Working, wanted: tuple[Fit, ...]) -> Reason:
    return reason("extension_busy", possible_until=_free_until(working, wanted))


def _reserve_again(
    working: Working, wanted: tuple[Fit, ...], moved: dict[str, Fit]
) -> dict[str, Fit] | None:
    """New places for the promises beside the extension, or None with nothing changed."""
    if not all(working.is_free(found) for found in wanted):
        return None
    for found in wanted:
        working.reserve(found)
    again: dict[str, Fit] = {}
    for booking, found in moved.items():
        other = working.at(found.demand, found.starts)
        if other is None:
            break
        working.reserve(other)
        again[booking] = other
    for found in wanted:
        working.free(found)
    if len(again) == len(moved):
        return again
    for found in again.values():
        working.free(found)
    return None


def _overlaps(found: Fit, wanted: tuple[Fit, ...]) -> bool:
    return any(
        found.starts < other.ends
        and other.starts < found.ends
        and _share(found.places, other.places)
        for other in wanted
    )


def _share(ones: tuple[Place, ...], others: tuple[Place, ...]) -> bool:
    return any(
        one.gpu == other.gpu
        and one.start < other.start + other.size
        and other.start < one.start + one.size
        for one in ones
        for other in others
    )


def _free_until(working: Working, wanted: tuple[Fit, ...]) -> int:
    """The latest end, Unix seconds, that all of them could have had."""
    return min(
        working.free_until(found.demand.gpu_class, place, found.window)
        for found in wanted
        for place in found.places
    )
