"""Every order in the solver, each total: the last key is the id, so input order never matters."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

from allocation.solver.types import (
    Extension,
    Gpu,
    Held,
    Limit,
    Model,
    Place,
    Placement,
    Promise,
    Request,
    Snapshot,
)

T = TypeVar("T", Gpu, Held, Request, Extension, Limit, Model)


def has_promise(request: Request) -> bool:
    """True for a flexible booking with a planned start; a fixed window is its own promise."""
    return request.promise is not None and not request.fixed


def promise_order(request: Request) -> tuple[int, int, int, str]:
    """Promised bookings: promised start, then as without a promise."""
    starts = request.promise.starts if request.promise else 0
    return (starts, *line_order(request))


def line_order(request: Request) -> tuple[int, int, str]:
    """Bookings without a promise: higher priority, submitted earlier, id."""
    return (-request.priority, request.submitted, request.booking)


def place_order(place: Place) -> tuple[str, int, int, str]:
    """Places of one gang: GPU id, start slot."""
    return (place.gpu, place.start, place.size, place.profile or "")


def placement_order(placement: Placement) -> tuple[int, str, int]:
    """Legal placements of a model: hardware's profile id, then start slot."""
    return (placement.profile_id, placement.profile, placement.start)


def limit_order(limit: Limit) -> tuple[str, str]:
    """Quota rows: owner, class."""
    return (limit.owner, limit.gpu_class)


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
    )


def promise_in_order(promise: Promise) -> Promise:
    """The same promise with its places sorted."""
    return replace(promise, places=tuple(sorted(promise.places, key=place_order)))


def _request_in_order(request: Request) -> Request:
    if request.promise is None or len(request.promise.places) < 2:
        return request
    return replace(request, promise=promise_in_order(request.promise))


def _once(rows: Iterable[T], name: str) -> tuple[T, ...]:
    ordered = tuple(sorted(rows, key=lambda row: str(getattr(row, name))))
    for one, other in pairwise(ordered):
        if getattr(one, name) == getattr(other, name):
            raise ValueError(f"{type(one).__name__} {getattr(one, name)} is there twice")
    return ordered


def _once_limits(rows: Iterable[Limit]) -> tuple[Limit, ...]:
    ordered = tuple(sorted(rows, key=limit_order))
    for one, other in pairwise(ordered):
        if limit_order(one) == limit_order(other):
            raise ValueError(f"limit of {one.owner} for {one.gpu_class} is there twice")
    return ordered
