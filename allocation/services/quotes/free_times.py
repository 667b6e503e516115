"""Free times: the one answer of pages, REST and quotes.

A GPU is free for a time when a booking without quota limits could have the whole GPU for all of it:
it is in service and answers, it may be used as a whole GPU, it is not rented for the bookings of one
plan, no maintenance is due, and nothing runs, is scheduled or has a planned start on it. Read from
the calendar of quotes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from allocation.models import PolicyVersion
from allocation.rules.pools import is_pooled
from allocation.services.policy.policies import policy_of
from allocation.services.snapshot.published import published_places
from allocation.services.snapshot.snapshot import instant, places_read, seconds
from solver import Availability

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
    found = Availability(snapshot, policy).free(seconds(since), seconds(until) + 1)
    of_plans = {gpu.id for gpu in snapshot.gpus if is_pooled(gpu.gpu_class)}
    return FreeTimes(
        since,
        until,
        {
            UUID(gpu): tuple(
                (max(instant(begin), since), min(instant(end), until))
                for begin, end in stretches
                if instant(begin) < until
            )
            for gpu, stretches in found.items()
            if gpu not in of_plans
        },
    )
