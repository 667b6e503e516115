"""Bookings that a restore of an older backup has lost: the signed documents at the agents' server
survive and still name them."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.conf import settings

from allocation import wire
from allocation.models import Allocation, Node
from allocation.services.nodes.redis_accounts import agents_redis

logger = logging.getLogger(__name__)

FATE_RUN = "runs until its node reads its next document, then it is ended there; book it again"
FATE_CLEARED = "was being released; its node clears it"
FATE_NOT_ENROLLED = "the restored database does not know its node: enrol the node again"


@dataclass(frozen=True, slots=True)
class LostBooking:
    """A booking in a node's document that the database does not know, and its fate."""

    booking: str
    tenant: str
    owner: str
    node: str
    starts: datetime
    ends: datetime
    fate: str


def bookings_lost() -> list[LostBooking]:
    """Bookings in the nodes' last signed documents that the restored database does not know.

    Must run before the epoch is raised, because that overwrites the documents.

    Raises:
        redis.RedisError: the agents' server does not answer.
    """
    known = set(Node.objects.values_list("name", flat=True))
    found: dict[tuple[str, str, str], LostBooking] = {}
    for desired in _documents():
        named = {a.id: a for gpu in desired.gpus for a in gpu.allocations}
        rows = Allocation.objects.filter(id__in=list(named)).values_list("id", flat=True)
        for name in named.keys() - {row.hex for row in rows}:
            each = named[name]
            fate = FATE_CLEARED if each.state == "release" else FATE_RUN
            found[each.tenant, each.booking, desired.node] = LostBooking(
                booking=each.booking,
                tenant=each.tenant,
                owner=each.owner,
                node=desired.node,
                starts=datetime.fromtimestamp(each.starts, UTC),
                ends=datetime.fromtimestamp(each.ends, UTC),
                fate=fate if desired.node in known else FATE_NOT_ENROLLED,
            )
    return [found[key] for key in sorted(found)]


def _documents() -> Iterator[wire.Desired]:
    link: Any = agents_redis()
    pattern, name_of = wire.desired_key("*"), len("agent:")
    for key in sorted(link.scan_iter(match=pattern, count=1000)):
        name = key.decode()[name_of : -len(":desired")]
        raw = link.get(key) or b""
        try:
            envelope = wire.Envelope.from_json(raw)
            # The key may be newer than the backup: every version derives from the master key.
            version = envelope.key_version
            master = settings.AGENTS_MASTER_KEY.encode()
            yield wire.open_desired(envelope, {version: wire.node_key(master, name, version)})
        except wire.WireError as error:
            logger.warning("The last document of %s can't be read: %s", name, error)
