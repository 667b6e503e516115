"""Requests for a simulation: generated ones, and arrivals from job lists of real clusters.

The same seed always gives the same requests. The numbers come from SplitMix64, implemented here, so
that they are the same on every machine. Job lists are rows of columns by name.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from solver.fleet.mig_geometry import units_of
from solver.model.inputs import (
    UNITS_PER_GPU,
    Ask,
    Model,
    Request,
    Snapshot,
    Tier,
    Together,
)

T = TypeVar("T")
Weighed = Sequence[tuple[T, int]]

DAY = 86_400
HOUR = 3_600
_ALL = (1 << 64) - 1

# Most bookings are short; most of the time goes to long ones.
_HOURS: Weighed[int] = ((1, 30), (2, 25), (4, 20), (8, 13), (24, 9), (48, 3))
_GANGS: Weighed[int] = ((2, 4), (4, 3), (8, 2))
_NEAR: Weighed[Together] = (("any", 2), ("node", 1), ("domain", 1))
# Most requests come in the daytime.
_HOUR_OF_DAY: Weighed[int] = tuple((hour, 3 if 7 <= hour < 19 else 1) for hour in range(24))
_WHOLE_SHARE = 1_000


class RandomSource:
    """SplitMix64."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _ALL

    def below(self, most: int) -> int:
        """A number from 0 up to but not including `most`."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _ALL
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _ALL
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _ALL
        return ((mixed ^ (mixed >> 31)) * most) >> 64

    def pick(self, choices: Weighed[T]) -> T:
        """One of them, in proportion to its weight. ValueError: no weight at all."""
        at = self.below(sum(weight for _, weight in choices))
        for choice, weight in choices:
            at -= weight
            if at < 0:
                return choice
        raise ValueError("nothing to pick from")

    def is_lucky(self, percent: int) -> bool:
        """True in `percent` of a hundred draws."""
        return self.below(100) < percent


@dataclass(frozen=True, slots=True)
class Workload:
    """Amount and kind of requests. All but `tenants` and `days` in percent.

    `load`: of the fleet's GPU time over the days. `slices` and `gangs`: of the bookings that could
    be one. `fixed`: of all; their windows are up to a week ahead.
    """

    days: int = 7
    load: int = 90
    tenants: int = 6
    slices: int = 30
    gangs: int = 25
    fixed: int = 10


def workload_arrivals(workload: Workload, site: Snapshot, seed: int) -> tuple[Request, ...]:
    """Bookings that arrive at `submitted` within the days, as many as make up the load.

    Owners are those of the site's limits, else `t0`, `t1` … with one project each; earlier owners
    request more. Tiers are the site's. Empty for a fleet without a usable GPU.
    """
    if not any(gpu.usable for gpu in site.gpus):
        return ()
    maker = _Maker(workload, site, RandomSource(seed))
    whole = sum(gpu.usable for gpu in site.gpus) * UNITS_PER_GPU * workload.days * DAY
    missing = whole * workload.load // 100
    found: list[Request] = []
    while missing > 0:
        request, amount = maker.request(len(found))
        found.append(request)
        missing -= amount
    return tuple(sorted(found, key=lambda each: (each.submitted, each.booking)))


class _Maker:
    """Draws one booking after the other."""

    def __init__(self, workload: Workload, site: Snapshot, random_source: RandomSource) -> None:
        self._demand, self._random_source, self._now = workload, random_source, site.now
        models = {model.slug: model for model in site.models}
        fleet: dict[str, int] = {}
        self._model: dict[str, Model] = {}
        for gpu in sorted(site.gpus, key=lambda each: each.id):
            if gpu.usable:
                fleet[gpu.gpu_class] = fleet.get(gpu.gpu_class, 0) + 1
                self._model.setdefault(gpu.gpu_class, models[gpu.model])
        self._classes = tuple(sorted(fleet.items()))
        owners = sorted(_owners(site)) or [(f"t{n}", f"t{n}-p") for n in range(workload.tenants)]
        self._owners = tuple((owner, len(owners) - at) for at, owner in enumerate(owners))
        tiers = sorted(site.tiers, key=lambda each: each.slug) or [ONLY_TIER]
        self._tiers = tuple((tier, tier_weight(tier)) for tier in tiers)

    def request(self, number: int) -> tuple[Request, int]:
        """A booking, and the unit-seconds that it requests."""
        random_source, workload = self._random_source, self._demand
        gpu_class = random_source.pick(self._classes)
        ask, units = self._ask(gpu_class)
        tenant, project = random_source.pick(self._owners)
        tier = random_source.pick(self._tiers)
        at = (
            random_source.below(workload.days) * DAY
            + random_source.pick(_HOUR_OF_DAY) * HOUR
            + random_source.below(HOUR)
        )
        submitted, duration = self._now + at, random_source.pick(_HOURS) * HOUR
        # Pausable bookings have no fixed window.
        fixed = not tier.pausable and random_source.is_lucky(workload.fixed)
        ahead = (submitted // HOUR + 1 + random_source.below(7 * 24)) * HOUR
        request = Request(
            booking=f"s{number:06}",
            tenant=tenant,
            project=project,
            tier=tier.slug,
            priority=tier.priority,
            submitted=submitted,
            ask=ask,
            duration=duration,
            earliest=ahead if fixed else submitted,
            latest=None,
            fixed=fixed,
            planned=None,
            owner=project,
        )
        return request, units * duration

    def _ask(self, gpu_class: str) -> tuple[Ask, int]:
        random_source, workload, model = self._random_source, self._demand, self._model[gpu_class]
        profiles = sorted({each.profile for each in model.placements if each.size < 8})
        if profiles and random_source.is_lucky(workload.slices):
            profile = profiles[random_source.below(len(profiles))]
            ask = Ask(1, (gpu_class,), profile, "any", required=False)
            return ask, units_of(model, profile)
        if not random_source.is_lucky(workload.gangs):
            return Ask(1, (gpu_class,), None, "any", required=False), UNITS_PER_GPU
        count, together = random_source.pick(_GANGS), random_source.pick(_NEAR)
        return Ask(count, (gpu_class,), None, together, required=False), UNITS_PER_GPU * count


ONLY_TIER = Tier("standard", pausable=False, counts=True, priority=50)


def tier_weight(tier: Tier) -> int:
    """Most requests are for counted tiers, few for spot."""
    if not tier.counts:
        return 1
    return 3 if tier.pausable else 6


def _owners(site: Snapshot) -> Iterator[tuple[str, str]]:
    parents = {limit.parent for limit in site.limits if limit.parent}
    for owner, parent in dict.fromkeys((row.owner, row.parent) for row in site.limits):
        if parent is not None:
            yield parent, owner
        elif owner not in parents:
            yield owner, f"{owner}-p"


def trace_arrivals(rows: Iterable[Mapping[str, str]], site: Snapshot) -> tuple[Request, ...]:
    """Bookings of either kind of list, distinguished by its columns. ValueError: neither."""
    rows = list(rows)
    names = set(rows[0]) if rows else set()
    if {"num_gpu", "gpu_milli", "creation_time", "deletion_time"} <= names:
        return openb_arrivals(rows, site)
    if {"time", "application", "num_replicas"} <= names:
        return philly_arrivals(rows, site)
    raise ValueError("Neither an openb task list nor a Philly-like job list.")


def philly_arrivals(rows: Iterable[Mapping[str, str]], site: Snapshot, hours: int = 4) -> tuple[Request, ...]:
    """A list of training jobs: name, time (seconds), application, num_replicas, batch_size.

    Such lists have no durations: all jobs of an application take the same, `hours` on average. Each
    application is a tenant. A gang may have any class of the site.
    """
    found = []
    for number, row in enumerate(rows):
        application = row["application"]
        length = RandomSource(sum(application.encode())).below(2 * hours * HOUR - 1) + 1
        count = int(float(row["num_replicas"]))
        ask = _any_ask(site, count, None, (0, 0))
        at = int(float(row["time"]))
        found.append(_from_trace(site, f"{number:06}-{row['name']}", application, (at, length, ask)))
    return _in_time(site, found)


def openb_arrivals(rows: Iterable[Mapping[str, str]], site: Snapshot) -> tuple[Request, ...]:
    """A task list of the openb trace, without tasks that have no GPU or no time.

    GPU milli below 1,000 is a share. The service level of a task becomes its tenant, because the
    trace has no tenants. Times count from the first task. Cores and memory are requested where
    nodes have any.
    """
    found = []
    for row in rows:
        count, milli = int(row["num_gpu"] or 0), int(row["gpu_milli"] or 0)
        at, ends = int(row["creation_time"] or 0), int(row["deletion_time"] or 0)
        if count < 1 or ends <= at:
            continue
        share = milli if count == 1 and milli < _WHOLE_SHARE else None
        host_resources = (int(row["cpu_milli"]) // count, int(row["memory_mib"]) // count)
        host_resources = host_resources if site.hosts else (0, 0)
        named = tuple(filter(None, row["gpu_spec"].lower().split("|")))
        ask = _any_ask(site, count, share, host_resources, named)
        found.append(_from_trace(site, row["name"], row["qos"].lower(), (at, ends - at, ask)))
    return _in_time(site, found)


def _any_ask(
    site: Snapshot,
    count: int,
    share: int | None,
    host_resources: tuple[int, int],
    named: tuple[str, ...] = (),
) -> Ask:
    there = tuple(sorted({gpu.gpu_class for gpu in site.gpus}))
    classes = tuple(name for name in there if name in named) if named else there
    return Ask(count, classes or named, None, "any", False, share, *host_resources, any_class=True)  # noqa: FBT003  in the order of the fields


def _from_trace(site: Snapshot, name: str, tenant: str, job: tuple[int, int, Ask]) -> Request:
    at, duration, ask = job
    tier = min(site.tiers, key=lambda each: (-tier_weight(each), each.slug), default=ONLY_TIER)
    return Request(
        booking=name,
        tenant=tenant,
        project=f"{tenant}-p",
        tier=tier.slug,
        priority=tier.priority,
        submitted=at,
        ask=ask,
        duration=duration,
        earliest=at,
        latest=None,
        fixed=False,
        planned=None,
        owner=tenant,
    )


def _in_time(site: Snapshot, found: list[Request]) -> tuple[Request, ...]:
    """Shift the arrivals so that the first is at the begin of the simulation."""
    shift = site.now - min((each.submitted for each in found), default=0)
    moved = (
        replace(each, submitted=each.submitted + shift, earliest=each.earliest + shift) for each in found
    )
    return tuple(sorted(moved, key=lambda each: (each.submitted, each.booking)))
