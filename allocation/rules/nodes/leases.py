"""Leases: what a node may go on with while it hears nothing, and how long its silence is counted.

Before a planned outage of the portal leases are lengthened to last until its end. Agents never
shorten a lease that they have, so a long one counts until it has run out, whatever is granted
later.

The agent counts TTL from when it made the heartbeat that was answered, and begins to end what it
holds on lease MARGIN before that. We count from later, from when we *see* that it was heard, on a
clock that never jumps, and wait longer: TTL + MARGIN + GRACE. So work has ended on its old node
before it begins on another, however slow messages are and whatever happens to anybody's clock.
"""

import math
from collections.abc import Hashable, Mapping
from datetime import datetime, timedelta
from typing import Generic, TypeVar

N = TypeVar("N", bound=Hashable)

TTL_SECONDS = 20
MARGIN_SECONDS = 3
# An agent gives programs 10 s between asking and killing; the rest is for its driver.
GRACE_SECONDS = 15
LEASE_EXPIRY_SECONDS = TTL_SECONDS + MARGIN_SECONDS + GRACE_SECONDS
LONGEST_OUTAGE = timedelta(hours=4)


def lease_seconds(outage_until: datetime | None, now: datetime) -> int:
    """How long a lease lasts that is granted now: through a planned outage of the portal, if there
    is one. A clock that was set back makes no lease longer than the longest outage."""
    if outage_until is None or outage_until <= now:
        return TTL_SECONDS
    return math.ceil(min(outage_until - now, LONGEST_OUTAGE).total_seconds()) + TTL_SECONDS


class LeaseWatch(Generic[N]):
    """How long each node has been silent, on the steady clock of the process that watches.

    A watcher that begins knows of no silence yet, so it is never too early.
    """

    def __init__(self) -> None:
        self._seen: dict[N, tuple[int, float]] = {}

    def silent(self, beats: Mapping[N, int], steady_now: float) -> dict[N, int]:
        """Of the nodes with their newest heartbeats, those whose leases can't last any more."""
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
    """Which of the leases that were granted for a planned outage can't last any more, on the steady
    clock of the process that watches. One that begins counts each from its own start."""

    def __init__(self) -> None:
        self._seen: dict[N, tuple[tuple[int, int], float]] = {}

    def over(self, leases: Mapping[N, tuple[int, int]], steady_now: float) -> dict[N, int]:
        """Of the nodes with the number and the seconds of the last long lease, those whose lease
        is over, with its number."""
        for node, lease in leases.items():
            if self._seen.get(node, (None, 0.0))[0] != lease:
                self._seen[node] = (lease, steady_now)
        self._seen = {node: seen for node, seen in self._seen.items() if node in leases}
        return {
            node: seq
            for node, ((seq, seconds), since) in self._seen.items()
            if steady_now - since > seconds + MARGIN_SECONDS + GRACE_SECONDS
        }
