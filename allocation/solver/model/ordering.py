"""Every order in the solver, each total: the last key is the id, so input order never matters."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter
from typing import TypeVar

from allocation.solver.model.inputs import (
    Cap,
    Extension,
    Gpu,
    Held,
    Host,
    Limit,
    Maintenance,
    Model,
    Order,
    Place,
    Placement,
    PlannedStart,
    Policy,
    Request,
    Snapshot,
    Tier,
    Used,
)

T = TypeVar("T", Gpu, Held, Host, Request, Extension, Model, Order, Tier)


def has_planned_start(request: Request) -> bool:
    """True for a booking with a planned start; a fixed window has one while others must leave."""
    return request.promise is not None


def planned_start_order(request: Request) -> tuple[int, int, int, str]:
    """Promised bookings: promised start, higher priority, submitted earlier, id."""
    starts = request.promise.starts if request.promise else 0
    return (starts, -request.priority, request.submitted, request.booking)


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """Where a booking without a promise stands in line. Shares in steps of the policy's.

    `borrowing`: it would not be within guarantee; `over_share`: its tenant or project would then
    have more than its part of what is split by weight.
    """

    request: Request
    borrowing: bool
    over_share: bool
    tenant_share: int
    project_share: int
    policy: Policy


Key = tuple[int, bool, bool, int, int, int, int, str]


def queue_order(standing: QueuePosition) -> Key:
    """Bookings without a promise, the first placed first:

    1. the tier's priority, higher first;
    2. within guarantee before borrowing;
    3. of those that borrow, who is under the part that weight gives before who is over it;
    4. the tenant's dominant share of late, lower first; then the project's;
    5. ageing: waiting for more whole steps first;
    6. submitted earlier;
    7. id.
    """
    request = standing.request
    shares = (standing.tenant_share, standing.project_share)
    rest = age_order(request, standing.policy)
    return (-request.priority, standing.borrowing, standing.over_share, *shares, *rest)


def age_order(request: Request, policy: Policy) -> tuple[int, int, str]:
    """Bookings of one project and priority: the last three criteria of the line.

    Age begins when it was submitted or could first start, whichever is later; as all have the
    same present, the earlier step is the older.
    """
    since = max(request.submitted, request.earliest)
    return (since // policy.age_step, request.submitted, request.booking)


def place_order(place: Place) -> tuple[str, int, int, str]:
    """Places of one gang: GPU id, start slot."""
    return (place.gpu, place.start, place.size, place.profile or "")


def placement_order(placement: Placement) -> tuple[int, str, int]:
    """Legal placements of a model: hardware's profile id, then start slot."""
    return (placement.profile_id, placement.profile, placement.start)


def limit_order(limit: Limit) -> tuple[str, str]:
    """Quota rows: owner, class."""
    return (limit.owner, limit.gpu_class)


def cap_order(cap: Cap) -> tuple[str, str, int, int, int]:
    """GPU-hour caps: owner, class, days in a row or the begin of the period, amount."""
    return (cap.owner, cap.gpu_class, cap.rolling_days or 0, cap.starts, cap.most)


def used_order(used: Used) -> tuple[str, str, int, str]:
    """History: project, class, day, tenant."""
    return (used.project, used.gpu_class, used.day, used.tenant)


def blackout_order(blackout: Maintenance) -> tuple[str, int, int]:
    """Maintenance: GPU, start, end."""
    return (blackout.gpu, blackout.starts, blackout.ends)


def in_order(snapshot: Snapshot) -> Snapshot:
    """The same snapshot with every set sorted. ValueError when an id is there twice."""
    return replace(
        snapshot,
        models=tuple(
            replace(model, placements=tuple(sorted(model.placements, key=placement_order)))
            for model in _once(snapshot.models, "slug")
        ),
        gpus=_once(snapshot.gpus, "id"),
        held=_once(snapshot.held, "id"),
        requests=tuple(map(_request_in_order, _once(snapshot.requests, "booking"))),
        extensions=_once(snapshot.extensions, "booking"),
        limits=_once_limits(snapshot.limits),
        tiers=_once(snapshot.tiers, "slug"),
        caps=tuple(sorted(snapshot.caps, key=cap_order)),
        used=tuple(sorted(snapshot.used, key=used_order)),
        running=tuple(map(_request_in_order, _once(snapshot.running, "booking"))),
        hosts=_once(snapshot.hosts, "id"),
        blackouts=tuple(sorted(snapshot.blackouts, key=blackout_order)),
        unneeded=_once(snapshot.unneeded, "booking"),
        orders=_once(snapshot.orders, "id"),
    )


def planned_start_sorted(promise: PlannedStart) -> PlannedStart:
    """The same promise with its places sorted."""
    places = tuple(sorted(promise.places, key=place_order))
    return PlannedStart(promise.starts, promise.ends, places)


def _request_in_order(request: Request) -> Request:
    if request.promise is None or len(request.promise.places) < 2:
        return request
    promise = planned_start_sorted(request.promise)
    # Most have been ordered before, and to look is cheaper than to write them anew.
    return request if promise == request.promise else replace(request, promise=promise)


def _once(rows: Iterable[T], name: str) -> tuple[T, ...]:
    ordered = tuple(sorted(rows, key=attrgetter(name)))
    names = list(map(attrgetter(name), ordered))
    for row, one, other in zip(ordered, names, names[1:], strict=False):
        if one == other:
            raise ValueError(f"{type(row).__name__} {one} is there twice")
    return ordered


def _once_limits(rows: Iterable[Limit]) -> tuple[Limit, ...]:
    ordered = tuple(sorted(rows, key=limit_order))
    for one, other in pairwise(ordered):
        if limit_order(one) == limit_order(other):
            raise ValueError(f"limit of {one.owner} for {one.gpu_class} is there twice")
    return ordered
