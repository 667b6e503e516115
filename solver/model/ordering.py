"""Canonical order of a snapshot's sets, so that their input order has no effect."""

from collections.abc import Iterable
from dataclasses import replace
from operator import attrgetter
from typing import TypeVar

from solver.model.inputs import Model, Place, Request, Snapshot
from solver.model.limits import Cap

T = TypeVar("T")


def place_order(place: Place) -> tuple[str, int, int, str]:
    """Order of the places of one gang: GPU id, start slot."""
    return (place.gpu, place.start, place.size, place.profile or "")


def in_order(snapshot: Snapshot) -> Snapshot:
    """The same snapshot with every set sorted. ValueError: an id occurs twice."""
    return replace(
        snapshot,
        models=tuple(map(model_in_order, _unique(snapshot.models, "slug"))),
        gpus=_unique(snapshot.gpus, "id"),
        held=_unique(snapshot.held, "id"),
        requests=tuple(map(request_in_order, _unique(snapshot.requests, "booking"))),
        extensions=_unique(snapshot.extensions, "booking"),
        limits=_unique(snapshot.limits, "owner", "gpu_class"),
        tiers=_unique(snapshot.tiers, "slug"),
        caps=tuple(sorted(snapshot.caps, key=_cap_order)),
        used=_sorted(snapshot.used, "project", "gpu_class", "day", "tenant", "owner"),
        running=tuple(map(request_in_order, _unique(snapshot.running, "booking"))),
        hosts=_unique(snapshot.hosts, "id"),
        blackouts=_sorted(snapshot.blackouts, "gpu", "starts", "ends"),
        unneeded=_unique(snapshot.unneeded, "booking"),
        notices=_unique(snapshot.notices, "booking"),
        orders=_unique(snapshot.orders, "id"),
        changes=_unique(snapshot.changes, "booking"),
        pending=tuple(map(request_in_order, _unique(snapshot.pending, "booking"))),
        overrides=_unique(snapshot.overrides, "id"),
        entries=_unique(snapshot.entries, "booking"),
        idle=_unique(snapshot.idle, "booking"),
        labs=_unique(snapshot.labs, "owner", "gpu_class"),
        persons=_unique(snapshot.persons, "scope", "person", "gpu_class"),
        cooling=_unique(snapshot.cooling, "tenant", "owner", "gpu_class"),
        peaks=_unique(snapshot.peaks, "gpu_class", "starts"),
        energy=_unique(snapshot.energy, "zone"),
        caches=_unique(snapshot.caches, "node"),
        guarantees=_unique(snapshot.guarantees, "owner", "gpu_class", "starts"),
    )


def model_in_order(model: Model) -> Model:
    """The model with its placements sorted."""
    placements = attrgetter("profile_id", "profile", "start")
    return replace(model, placements=tuple(sorted(model.placements, key=placements)))


def request_in_order(request: Request) -> Request:
    """The request with the places of its planned start sorted."""
    planned = request.planned
    if planned is None or len(planned.places) < 2:
        return request
    places = tuple(sorted(planned.places, key=place_order))
    # Most are sorted already, and a comparison is cheaper than a copy.
    if places == planned.places:
        return request
    return replace(request, planned=replace(planned, places=places))


def _cap_order(cap: Cap) -> tuple[str, str, int, int, int]:
    return (cap.owner, cap.gpu_class, cap.rolling_days or 0, cap.starts, cap.most)


def _sorted(rows: Iterable[T], *names: str) -> tuple[T, ...]:
    return tuple(sorted(rows, key=attrgetter(*names)))


def _unique(rows: Iterable[T], *names: str) -> tuple[T, ...]:
    ordered = _sorted(rows, *names)
    keys = list(map(attrgetter(*names), ordered))
    for row, one, other in zip(ordered, keys, keys[1:], strict=False):
        if one == other:
            raise ValueError(f"{type(row).__name__} {one} occurs twice")
    return ordered
