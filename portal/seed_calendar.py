"""Where demo bookings fit: free places and free quota, from what is already there."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from allocation.models import Allocation, Gpu
from allocation.services.snapshot import models_read
from allocation.services.snapshot_quota import limits_read, tiers_read
from allocation.solver import UNITS_PER_GPU, Placement, Snapshot, Use, units_of
from allocation.solver import Quota as SolverQuota
from tenants.models import Quota

SLICED_FROM_INDEX = 6


@dataclass(frozen=True, slots=True)
class Spot:
    """A place on a GPU: all of it (`profile` None) or one legal placement."""

    gpu: Gpu
    profile: str | None
    start: int
    size: int
    units: int


@dataclass(frozen=True, slots=True)
class Window:
    """Who wants room, and when: [starts, ends)."""

    tenant_id: UUID
    project_id: UUID
    tier: str
    starts: datetime
    ends: datetime


@dataclass(frozen=True, slots=True)
class Taken:
    """A spot that is given to a window."""

    spot: Spot
    window: Window


class Calendar:
    """All allocations that hold or held a place, and the limits on them."""

    def __init__(self) -> None:
        self._models = {model.slug: model for model in models_read()}
        self._gpus = list(Gpu.objects.select_related("node", "model").order_by("number"))
        by_id = {gpu.id: gpu for gpu in self._gpus}
        rows = Allocation.objects.exclude(state=Allocation.State.SUPERSEDED)
        self._quota = _quota(Counter(gpu.gpu_class_id for gpu in self._gpus))
        self._taken = [
            Taken(
                Spot(by_id[row.gpu_id], row.profile, row.start, row.size, row.units),
                Window(
                    row.tenant_id,
                    row.project_id,
                    row.booking.tier_id,
                    row.period.lower,
                    row.period.upper,
                ),
            )
            for row in rows.select_related("booking")
        ]
        for taken in self._taken:
            self._quota.add(_use(taken.window, [taken.spot]), _seconds(taken.window))
        self._open = set(
            Quota.objects.exclude(project=None).values_list("project_id", "gpu_class_id")
        )

    def take(
        self, window: Window, gpu_class: str, count: int, profile: str | None
    ) -> list[Spot] | None:
        """Places for `count` shapes on one node, now taken, or None where it does not fit."""
        spots: list[Spot] = []
        for gpu in self._gpus:
            if gpu.gpu_class_id != gpu_class or self._is_for_slices(gpu) != bool(profile):
                continue
            spots += self._free(gpu, profile, window, spots)[: count - len(spots)]
            if len(spots) == count:
                break
        if len(spots) < count or (window.project_id, gpu_class) not in self._open:
            return None
        use = _use(window, spots)
        if self._quota.over(use, _seconds(window)) is not None:
            return None
        self._quota.add(use, _seconds(window))
        self._taken += [Taken(spot, window) for spot in spots]
        return spots

    def _is_for_slices(self, gpu: Gpu) -> bool:
        if gpu.model.mode_switch == "reset":
            return gpu.mode == Gpu.Mode.SLICED
        return bool(self._models[gpu.model_id].placements) and gpu.index >= SLICED_FROM_INDEX

    def _free(
        self, gpu: Gpu, profile: str | None, window: Window, chosen: Iterable[Spot]
    ) -> list[Spot]:
        busy = [
            taken.spot
            for taken in self._taken
            if taken.spot.gpu.id == gpu.id and _overlap(taken.window, window)
        ]
        model = self._models[gpu.model_id]
        if profile is None:
            return [] if busy else [Spot(gpu, None, 0, 8, units_of(model, None))]
        busy += [spot for spot in chosen if spot.gpu.id == gpu.id]
        found: list[Spot] = []
        for place in model.placements:
            if place.profile == profile and _is_clear(place, [*busy, *found]):
                units = units_of(model, profile)
                found.append(Spot(gpu, profile, place.start, place.size, units))
        return found


def _quota(gpus: Mapping[str, int]) -> SolverQuota:
    """The solver's own, with nothing in use since the beginning of time."""
    site = Snapshot(0, (), (), (), (), (), limits_read(), tiers_read())
    return SolverQuota(site, {name: count * UNITS_PER_GPU for name, count in gpus.items()})


def _use(window: Window, spots: Sequence[Spot]) -> Use:
    owners = (str(window.tenant_id), str(window.project_id))
    units = sum(spot.units for spot in spots)
    return Use(owners, window.tier, spots[0].gpu.gpu_class_id, units)


def _seconds(window: Window) -> tuple[int, int]:
    return int(window.starts.timestamp()), int(window.ends.timestamp())


def _is_clear(place: Placement, busy: Iterable[Spot]) -> bool:
    return all(
        spot.profile is not None
        and (spot.start + spot.size <= place.start or place.start + place.size <= spot.start)
        for spot in busy
    )


def _overlap(one: Window, other: Window) -> bool:
    return one.starts < other.ends and other.starts < one.ends
