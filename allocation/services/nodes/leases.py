"""Leases that the portal grants in answer to heartbeats. `rules/nodes/leases.py` has the times."""

import logging
from collections.abc import Iterable, Mapping
from uuid import UUID

import redis
from django.db.models import Q

import wire
from allocation.models import Allocation, Booking, Node, PortalMode
from allocation.rules.nodes.leases import TTL_SECONDS
from allocation.rules.states import State
from allocation.services.nodes.fleet import agent_supports, node_key
from allocation.services.nodes.redis_accounts import agents_redis
from allocation.services.nodes.restores import epoch_now
from tenants.platform.database.compiled import Compiled
from tenants.platform.database.look import ASKED_AT

logger = logging.getLogger(__name__)

_MOST_SECONDS = 2_000_000_000
# Allocations that depend on their node's lease: running ones, and pausing ones until proven empty.
ON_LEASE = Q(leased=True, abandoned=False) & (
    Q(state__in=[Allocation.State.STARTING, Allocation.State.ACTIVE])
    | Q(state=Allocation.State.RELEASING, booking__state=State.PAUSING)
)


AnsweredHeartbeat = tuple[Node, int, int]
"""A node, the number of its heartbeat, and the version of the key that signed it."""


OUTAGE_UNTIL = PortalMode.objects.filter(kind=PortalMode.Kind.OUTAGE, ended_at=None).values("until")[:1]
"""End of the planned outage that was announced last, even if it has passed; one row or none."""


def lease_note(node: Node, heartbeat: wire.Heartbeat, seconds: int) -> None:
    """Records the reported lease, and the one of `seconds` that will be granted, on a node that the
    caller has locked and saves. Long leases are recorded before they are granted: work of a node
    whose lease may still be valid starts nowhere else."""
    node.reported_lease_seconds = max(0, min(heartbeat.lease, _MOST_SECONDS))
    if seconds > TTL_SECONDS and agent_supports(node, wire.LEASES_SINCE):
        node.outage_lease_seconds = max(node.outage_lease_seconds, seconds)
        node.outage_lease_seq = heartbeat.seq


def leases_grant(beats: Iterable[AnsweredHeartbeat], seconds: int = TTL_SECONDS) -> None:
    """Answers heartbeats with leases, after the heartbeats are committed: an unrecorded lease would
    be counted from an earlier one. Each answer uses the key of its heartbeat.

    A node whose lease expired gets none until it follows the newest document: with an older one it
    could start work that has started elsewhere.
    """
    beats = [beat for beat in beats if agent_supports(beat[0], wire.LEASES_SINCE)]
    asked = [node.id for node, _, _ in beats]
    partitioned = set(_partitioned(ASKED_AT, asked)) if asked else set()
    granted = [beat for beat in beats if beat[0].id not in partitioned]
    if not granted:
        return
    epoch = epoch_now()
    try:
        with agents_redis().pipeline(transaction=False) as pipe:
            for node, seq, version in granted:
                lease = wire.Lease(node=node.name, epoch=epoch, seq=seq, ttl=seconds)
                envelope = wire.seal(lease, key=node_key(node, version), key_version=version)
                pipe.set(wire.lease_key(node.name), envelope.to_json())
                pipe.publish(wire.wake_channel(node.name), wire.LEASE_WAKE)
            pipe.execute()
    except redis.RedisError as error:
        # The next heartbeat comes in five seconds, and a lease lasts for four heartbeats.
        logger.warning("%d leases were not renewed: %s", len(granted), error)


def lease_possible(booking: Booking, gpus: Iterable[UUID]) -> bool:
    """Whether a booking on these GPUs runs on a lease: its tier asks for it, and every agent
    supports it."""
    if not booking.tier.replace_on_lost:
        return False
    nodes = Node.objects.filter(gpus__in=list(gpus)).distinct()
    return all(agent_supports(node, wire.LEASES_SINCE) for node in nodes)


_partitioned = Compiled(
    lambda _now, nodes: Node.objects.filter(id__in=nodes, partitioned=True).values_list("id", flat=True)
)
# The reader asks these each second.
_leased = Compiled(
    lambda _now, _keys: (
        Allocation.objects.filter(ON_LEASE).values_list("gpu__node_id", "gpu__node__heartbeat_seq").distinct()
    )
)
_long = Compiled(
    lambda _now, _keys: Node.objects.filter(outage_lease_seconds__gt=0).values_list(
        "id", "outage_lease_seq", "outage_lease_seconds"
    )
)


def leased_heartbeats() -> dict[UUID, int]:
    """The newest heartbeat of each node with work on a lease."""
    return dict(_leased(ASKED_AT))


def long_leases() -> dict[UUID, tuple[int, int]]:
    """Nodes whose lease for a planned outage may still be valid: the heartbeat that the last one
    answered, and the seconds of the longest."""
    return {node: (seq, seconds) for node, seq, seconds in _long(ASKED_AT)}


def long_leases_end(over: Mapping[UUID, int]) -> None:
    """Clears long leases that have expired, except those that were granted again since."""
    for node_id, seq in over.items():
        Node.objects.filter(id=node_id, outage_lease_seq=seq).update(outage_lease_seconds=0)
