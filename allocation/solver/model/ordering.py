"""Every order in the solver, each total: the last key is the id, so input order never matters."""

from collections.abc import Iterable
from dataclasses import replace
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
    Request,
    Snapshot,
    Tier,
    Used,
)

T = TypeVar("T", Gpu, Held, Host, Request, Extension, Model, Order, Tier)


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
