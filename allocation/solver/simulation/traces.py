"""Arrivals from job lists of real clusters, as rows of columns by name."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from allocation.solver.model.inputs import Ask, Request, Snapshot
from allocation.solver.simulation.workload import HOUR, ONLY_TIER, RandomSource, tier_weight

_WHOLE_SHARE = 1_000


def trace_arrivals(rows: Iterable[Mapping[str, str]], site: Snapshot) -> tuple[Request, ...]:
    """Bookings of either kind of list, distinguished by its columns. ValueError: neither."""
    rows = list(rows)
    names = set(rows[0]) if rows else set()
    if {"num_gpu", "gpu_milli", "creation_time", "deletion_time"} <= names:
        return openb_arrivals(rows, site)
    if {"time", "application", "num_replicas"} <= names:
        return philly_arrivals(rows, site)
    raise ValueError("Neither an openb task list nor a Philly-like job list.")


def philly_arrivals(
    rows: Iterable[Mapping[str, str]], site: Snapshot, hours: int = 4
) -> tuple[Request, ...]:
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
        found.append(
            _from_trace(site, f"{number:06}-{row['name']}", application, (at, length, ask))
        )
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
        promise=None,
        owner=tenant,
    )


def _in_time(site: Snapshot, found: list[Request]) -> tuple[Request, ...]:
    """Shift the arrivals so that the first is at the begin of the simulation."""
    shift = site.now - min((each.submitted for each in found), default=0)
    moved = (
        replace(each, submitted=each.submitted + shift, earliest=each.earliest + shift)
        for each in found
    )
    return tuple(sorted(moved, key=lambda each: (each.submitted, each.booking)))
