"""Leases as the portal grants them: an answer to each heartbeat. How long a node's silence is
counted is in rules/leases.py."""

import logging
from collections.abc import Iterable
from uuid import UUID

import redis
from django.db.models import Q

from allocation import wire
from allocation.models import Allocation, Booking, Node, SolverState
from allocation.rules.leases import TTL_SECONDS
from allocation.rules.states import State
from allocation.services.fleet import node_key, reads
from allocation.services.links import agents_redis

logger = logging.getLogger(__name__)

# What counts on its node's lease: what runs, and what pauses until it is proven empty.
HELD = Q(leased=True, left=False) & (
    Q(state__in=[Allocation.State.STARTING, Allocation.State.ACTIVE])
    | Q(state=Allocation.State.RELEASING, booking__state=State.PAUSING)
)


Beat = tuple[Node, int, int]
"""A node with the number of its heartbeat and the version of the key that signed it."""


def leases_grant(beats: Iterable[Beat]) -> None:
    """Answers heartbeats, which must be known to the database by now: a lease that we forget would
    be counted from an earlier one. Each is signed with the key that its heartbeat was heard by.

    A node whose lease ran out has none until it acts on our newest word: by an older one it could
    begin what has been begun elsewhere.
    """
    beats = [beat for beat in beats if reads(beat[0], wire.LEASES_SINCE)]
    asked = [node.id for node, _, _ in beats]
    cut_off = set(Node.objects.filter(id__in=asked, cut_off=True).values_list("id", flat=True))
    granted = [beat for beat in beats if beat[0].id not in cut_off]
    if not granted:
        return
    epoch = SolverState.objects.values_list("epoch", flat=True).get(id=1)
    try:
        with agents_redis().pipeline(transaction=False) as pipe:
            for node, seq, version in granted:
                lease = wire.Lease(node=node.name, epoch=epoch, seq=seq, ttl=TTL_SECONDS)
                envelope = wire.seal(lease, key=node_key(node, version), key_version=version)
                pipe.set(wire.lease_key(node.name), envelope.to_json())
                pipe.publish(wire.wake_channel(node.name), wire.LEASE_WAKE)
            pipe.execute()
    except redis.RedisError as error:
        # The next heartbeat is answered in five seconds, and a lease lasts for four of them.
        logger.warning("%d leases were not renewed: %s", len(granted), error)


def lease_possible(booking: Booking, gpus: Iterable[UUID]) -> bool:
    """Whether a booking that begins on these GPUs is held on lease: its tier wants it, and every
    agent knows how to end it."""
    if not booking.tier.replace_on_lost:
        return False
    nodes = Node.objects.filter(gpus__in=list(gpus)).distinct()
    return all(reads(node, wire.LEASES_SINCE) for node in nodes)


def beats_of_leased() -> dict[UUID, int]:
    """The newest heartbeat of each node that holds something on lease."""
    rows = Allocation.objects.filter(HELD)
    return dict(rows.values_list("gpu__node_id", "gpu__node__heartbeat_seq").distinct())
