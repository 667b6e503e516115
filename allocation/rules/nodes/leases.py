"""Leases: how long a node may continue its work without contact, and when the portal takes it over.

Before a planned outage of the portal, leases are extended to its end. Agents never shorten a lease,
so an extended lease counts until it expires, whatever is granted later.

The agent counts TTL from the heartbeat that was answered, and begins to end its work MARGIN before
the lease expires. The portal counts from a later time, when it sees the heartbeat, on a monotonic
clock, and waits longer: TTL + MARGIN + GRACE. So work has ended on its old node before it starts on
another, however slow messages are and however clocks jump.
"""

import math
from collections.abc import Hashable, Mapping
from datetime import datetime, timedelta
from typing import Generic, TypeVar

N = TypeVar("N", bound=Hashable)

TTL_SECONDS = 20
MARGIN_SECONDS = 3
# Agents give programs 10 s between SIGTERM and SIGKILL. The rest is for the driver.
GRACE_SECONDS = 15
LEASE_EXPIRY_SECONDS = TTL_SECONDS + MARGIN_SECONDS + GRACE_SECONDS
LONGEST_OUTAGE = timedelta(hours=4)


def lease_seconds(outage_until: datetime | None, now: datetime) -> int:
    """The length of a lease that is granted now. It covers a planned outage of the portal, and at
    most the longest outage, even if the clock was set back."""
    if outage_until is None or outage_until <= now:
        return TTL_SECONDS
    return math.ceil(min(outage_until - now, LONGEST_OUTAGE).total_seconds()) + TTL_SECONDS


class LeaseWatch(Generic[N]):
    """Tracks the newest heartbeat of each node, on the monotonic clock of this process.

    A new watch counts every node from its own start, so that it never reports one too early.
    """

    def __init__(self) -> None:
        self._seen: dict[N, tuple[int, float]] = {}

    def expired(self, beats: Mapping[N, int], steady_now: float) -> dict[N, int]:
        """The nodes whose leases have expired, with the numbers of their newest heartbeats."""
        for node, seq in beats.items():
            if self._seen.get(node, (None, 0.0))[0] != seq:
                self._seen[node] = (seq, steady_now)
        self._seen = {node: seen for node, seen in self._seen.items() if node in beats}
        return {
            node: seq
            for node, (seq, since) in self._seen.items()
            if steady_now - since > LEASE_EXPIRY_SECONDS
        }


class LongLeases(Generic[N]):
    """Tracks extended leases, on the monotonic clock of this process. A new watch counts every
    lease from its own start."""

    def __init__(self) -> None:
        self._seen: dict[N, tuple[tuple[int, int], float]] = {}

    def over(self, leases: Mapping[N, tuple[int, int]], steady_now: float) -> dict[N, int]:
        """The nodes whose extended lease has expired, with its number. `leases` holds the number
        and the seconds of each node's last extended lease."""
        for node, lease in leases.items():
            if self._seen.get(node, (None, 0.0))[0] != lease:
                self._seen[node] = (lease, steady_now)
        self._seen = {node: seen for node, seen in self._seen.items() if node in leases}
        return {
            node: seq
            for node, ((seq, seconds), since) in self._seen.items()
            if steady_now - since > seconds + MARGIN_SECONDS + GRACE_SECONDS
        }
