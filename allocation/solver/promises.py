"""Promised starts: kept while their certificate holds, made earlier when possible, never later."""

from collections.abc import Iterable
from dataclasses import replace

from allocation.solver.explain import maintenance, possible_wants, reason, why_quota
from allocation.solver.matching import not_dearer
from allocation.solver.placement import Want, want_of, wants_of
from allocation.solver.plan import Reason
from allocation.solver.preemption import Preemption
from allocation.solver.resume import length_from
from allocation.solver.types import Place, Promise, Request
from allocation.solver.working import Found, Working

_DAY = 86_400


def promises_lay(
    working: Working, preemption: Preemption, requests: Iterable[Request]
) -> tuple[dict[str, Found], dict[str, Reason]]:
    """Reserve each promise whose certificate still holds; say of the others what broke it.

    A promise may stand on the room of running work that can still be paused for it. `requests` in
    promise order, all with a promise. Both answers are keyed by booking.
    """
    kept: dict[str, Found] = {}
    broken: dict[str, Reason] = {}
    for request in requests:
        if request.promise is None:
            continue
        found, why = _certificate(working, request, request.promise)
        if found is not None and why is not None:
            standing = preemption.on_the_same_places(request, found)
            found, why = (standing, None) if standing else (found, why)
        if found is None or why is not None:
            broken[request.booking] = why or reason("overrun", "Its place is taken.")
            continue
        working.reserve(found)
        kept[request.booking] = found
    return kept, broken


def promise_improve(
    working: Working, preemption: Preemption, request: Request, kept: Found
) -> Found:
    """The same booking at the earliest start that is not later than the promised one, nor its end.

    `kept` is reserved when called; the answer is not.
    """
    working.free(kept)
    first = kept.starts if request.fixed else working.first_start(request.earliest)
    if kept.starts <= first and not kept.over:
        return kept
    wants, _ = possible_wants(working, wants_of(request))
    wants = not_dearer(request, wants, kept)
    if request.durations and not request.fixed:
        request = replace(request, latest=kept.ends)
    return preemption.earlier(request, wants, first, kept) or kept


def _certificate(
    working: Working, request: Request, promise: Promise
) -> tuple[Found | None, Reason | None]:
    """The promise as a window from now on, if it is one at all, and what broke it."""
    hardware = _hardware_broken(working, promise)
    if hardware is not None:
        return None, hardware
    gpu_class = working.class_of(promise.places[0].gpu) or ""
    owners = (request.tenant, request.project)
    starts = max(promise.starts, working.now, request.earliest)
    length = length_from(request, gpu_class, starts)
    want = want_of(request.ask, gpu_class, length, owners, request.tier, request.owner)
    found = Found(want, promise.places, starts)
    if length <= 0 or not _matches(working, request, found):
        return None, reason("ask_changed", "What the booking asks for has changed.")
    gpus = [place.gpu for place in promise.places]
    away, back = working.upkeep.away(gpu_class, found.window, gpus)
    if away:
        return None, maintenance(away, "it was planned on", back)
    if not working.is_free(found):
        return found, reason("overrun", "Something in its place ends later than planned.")
    if working.over(want, starts) is not None:
        quota = why_quota(working, want, starts)
        sentence = (
            f"A limit is lower than when the start was promised. {quota.sentence}" if quota else ""
        )
        return found, reason("quota_cut", sentence, quota.frees_at if quota else None)
    return found, None


def _hardware_broken(working: Working, promise: Promise) -> Reason | None:
    lost = sorted({p.gpu for p in promise.places if not is_usable(working, p)})
    if not promise.places or lost:
        sentence = "GPUs it was planned on are out of service."
        return reason("hardware_lost", sentence, lost=len(lost))
    return None


def is_usable(working: Working, place: Place) -> bool:
    """Whether new work may be laid there: the GPU is in service, and the place legal on it."""
    gpu_class = working.class_of(place.gpu)
    if gpu_class is None:
        return False
    pool = working.pools[gpu_class]
    column = pool.column[place.gpu]
    suits = pool.usable[column] and pool.suits(place.shape)[column]
    return bool(suits) and pool.geometry(place.gpu).is_legal(place)


def _matches(working: Working, request: Request, found: Found) -> bool:
    """The certificate still answers the ask: class, shape, count, nearness, deadline."""
    ask, want = request.ask, found.want
    pool = working.pools[want.gpu_class]
    return (
        want.gpu_class in ask.classes
        and len(found.places) == ask.count
        and all(place.gpu in pool.column and place.shape == ask.shape for place in found.places)
        and pool.together(want.level, found.places)
        and (request.latest is None or found.ends <= request.latest)
    )


def nowhere(working: Working, request: Request, want: Want) -> Found:
    """A start that nothing proves, far ahead, and moved seldom so that nobody is told each cycle.

    The places stay the broken ones: when their GPUs come back, the next cycle begins from them.
    """
    promise, horizon = request.promise, working.policy.horizon
    places = promise.places if promise else ()
    if promise and promise.starts >= working.now + horizon // 2:
        return Found(want, places, promise.starts)
    days = -(-(working.now + horizon) // _DAY)
    starts = days * _DAY
    if request.latest is not None:
        least = 1 if request.paused else request.duration
        starts = min(starts, request.latest - least)
    return Found(
        replace(want, duration=length_from(request, want.gpu_class, starts)), places, starts
    )
