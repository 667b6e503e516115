"""Free times: the one answer of pages, REST and quotes.

A GPU is free for a time when a booking without quota limits could have the whole GPU for all of it:
it is in service and answers, it may be used as a whole GPU, it is not rented for the bookings of one
plan, no maintenance is due, and nothing runs, is scheduled or has a planned start on it. Read from
the calendar of quotes.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from allocation.models import PolicyVersion
from allocation.rules.pools import is_pooled
from allocation.services.policy.policies import policy_of
from allocation.services.snapshot.published import published_places
from allocation.services.snapshot.snapshot import instant, places_read, seconds
from solver import Availability, Request

Stretch = tuple[datetime, datetime]
MIN_FREE_TIME = timedelta(hours=1)
"""The time that a GPU is free at least where a page names no time."""


@dataclass(frozen=True, slots=True)
class FreeTimes:
    """Free stretches of whole GPUs in [since, until), by GPU and in order.

    GPUs that are fixed to slices, rented for a plan or out of service are left out.
    """

    since: datetime
    until: datetime
    by_gpu: Mapping[UUID, tuple[Stretch, ...]]

    def during(self, starts: datetime, ends: datetime) -> frozenset[UUID]:
        """Returns the GPUs that are free for all of [starts, ends)."""
        return frozenset(
            gpu
            for gpu, stretches in self.by_gpu.items()
            if any(begin <= starts and ends <= end for begin, end in stretches)
        )


def free_times_read(*, is_operator: bool, since: datetime, until: datetime, now: datetime) -> FreeTimes:
    """Returns the free times of [since, until), none of them before now.

    Run inside the transaction of a tenant, or of an operator, who sees every tenant.
    """
    policy = policy_of(PolicyVersion.objects.get(state=PolicyVersion.State.LIVE))
    snapshot = places_read(now) if is_operator else published_places(now, until + MIN_FREE_TIME)
    since = max(since, instant(snapshot.now))
    if until <= since:
        return FreeTimes(since, since, {})
    # A planned start counts as it stands, whoever leaves for it.
    planned, snapshot = _planned(snapshot.requests), replace(snapshot, requests=())
    found = Availability(snapshot, policy).free(seconds(since), seconds(until) + 1)
    of_plans = {gpu.id for gpu in snapshot.gpus if is_pooled(gpu.gpu_class)}
    return FreeTimes(
        since,
        until,
        {
            UUID(gpu): tuple(
                (max(instant(begin), since), min(instant(end), until))
                for begin, end in _without(stretches, planned.get(gpu, ()))
                if instant(begin) < until
            )
            for gpu, stretches in found.items()
            if gpu not in of_plans
        },
    )


def _planned(requests: Iterable[Request]) -> dict[str, list[tuple[int, int]]]:
    """The windows of planned starts by GPU, in seconds and in order."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for request in requests:
        if request.planned is not None:
            for place in request.planned.places:
                found[place.gpu].append((request.planned.starts, request.planned.ends))
    return {gpu: sorted(windows) for gpu, windows in found.items()}


def _without(
    stretches: Iterable[tuple[int, int]], taken: Iterable[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """What is left of the stretches outside the windows `taken`, which are in order."""
    for begin, end in stretches:
        free = begin
        for starts, ends in taken:
            if free < min(starts, end):
                yield free, min(starts, end)
            free = max(free, ends)
        if free < end:
            yield free, end
