"""What is in the way of a start: running work, the line, a limit."""

from dataclasses import replace

import numpy as np

from allocation.solver.explain import (
    GROUPS,
    Line,
    gpus,
    maintenance,
    of_host,
    reason,
    shape,
    why_quota,
)
from allocation.solver.placement import Want, fits
from allocation.solver.plan import Reason
from allocation.solver.types import Request
from allocation.solver.working import Found, Working


def why_not_at(working: Working, want: Want, starts: int, line: Line) -> tuple[Reason, ...]:
    """What is in the way of exactly this start, blockers only; empty when nothing is.

    Room that only reservations of others take is the place in line; what running and fixed work
    takes is GPUs not free together.
    """
    found = list(_why_not_beside_held(working, want, starts))
    if not found:
        at = np.array([starts], dtype=np.int64)
        if not fits(working.pools[want.gpu_class], want, *working.busy(want, at))[0]:
            found.append(_in_line(want, line))
    quota = why_quota(working, want, starts)
    return (*found, quota) if quota else tuple(found)


def why_waiting(working: Working, request: Request, found: Found, line: Line) -> tuple[Reason, ...]:
    """Why a booking does not start at once, with the planned start as the time it frees."""
    first = working.first_start(request.earliest)
    blockers = why_not_at(working, found.want, first, line)
    return _waiting(working, request, found, blockers) or (
        replace(_in_line(found.want, line), frees_at=found.starts),
    )


def why_still_waiting(
    working: Working, request: Request, kept: Found, line: Line
) -> tuple[Reason, ...]:
    """The same for a promise that is reserved where it was, and can't begin sooner.

    That is known for lack of room, so what running work does not take others have reserved.
    """
    first = working.first_start(request.earliest)
    found = _why_not_beside_held(working, kept.want, first) or (_in_line(kept.want, line),)
    quota = _why_quota_of_others(working, kept, first)
    return _waiting(working, request, kept, (*found, quota) if quota else found)


def _waiting(
    working: Working, request: Request, found: Found, blockers: tuple[Reason, ...]
) -> tuple[Reason, ...]:
    said = [
        blocker if blocker.check == "quota" else replace(blocker, frees_at=found.starts)
        for blocker in blockers
    ]
    if request.earliest > working.now:
        sentence = "You asked for it not to start earlier."
        said.append(reason("not_before", sentence, request.earliest))
    return tuple(said)


def _why_quota_of_others(working: Working, kept: Found, starts: int) -> Reason | None:
    """The limit that forbids an earlier window to what is reserved now.

    What fits beside its own reservation fits without it all the more.
    """
    if working.over(kept.want, starts) is None:
        return None
    use = working.use(kept.want)
    working.quota.add(use, kept.window, -1)
    found = why_quota(working, kept.want, starts)
    working.quota.add(use, kept.window)
    return found


def _why_not_beside_held(working: Working, want: Want, starts: int) -> tuple[Reason, ...]:
    left = working.left_by_held(want, starts)
    if left.is_enough:
        return ()
    pool = working.pools[want.gpu_class]
    found = [_host_busy(want) if left.has_gpus else _busy(want, left.together)]
    out = pool.out_of_service(want.shape)
    if out:
        sentence = f"{out} of {len(pool)} {want.gpu_class} are out of service."
        found.append(reason("hardware_out", sentence, out=out, gpus=len(pool)))
    away, back = working.upkeep.away(want.gpu_class, (starts, starts + want.duration))
    if away:
        found.append(maintenance(away, f"of {want.gpu_class}", back))
    return tuple(found)


def _busy(want: Want, most: int) -> Reason:
    if want.level == "any":
        sentence = f"{most} of {shape(want)} are free for that long; {want.count} are needed."
    else:
        sentence = f"No {GROUPS[want.level]} has {shape(want)} free for that long."
    return reason("gpus_busy", sentence, free=most, asked=want.count, group=GROUPS[want.level])


def _host_busy(want: Want) -> Reason:
    sentence = f"GPUs are free, but beside them no node has {of_host(want)} free for that long."
    return reason("host_busy", sentence, cores=want.cores, memory=want.memory)


def _in_line(want: Want, line: Line) -> Reason:
    bookings = f"{line.bookings} booking{'s' * (line.bookings != 1)}"
    sentence = f"Ahead in line for {want.gpu_class}: {bookings}, {gpus(line.units)} GPUs."
    return reason(
        "line", sentence, position=line.bookings + 1, ahead=line.bookings, ahead_units=line.units
    )
