"""From the outbox to open pages, by the channel layer.

The layer may lose a message. So each group's messages are numbered, and a beat says every few
seconds which number was the last: a page that finds a gap fetches its parts anew, and one that
hears no beat says since when.
"""

import asyncio
from collections.abc import Iterable
from functools import cache
from typing import Any
from uuid import UUID

from channels.layers import get_channel_layer

from allocation.consumers import FLEET_GROUP, heartbeat_message, tenant_group
from allocation.services.publish.live import numbers_last, numbers_next
from tenants.models import OutboxMessage, Tenant

GroupMessage = tuple[str, dict[str, Any]]


def push(messages: Iterable[OutboxMessage]) -> None:
    """Tells the tenants' pages what changed, and everyone's that the fleet did. Of messages about
    the same booking only the last is told: a page asks what it is now.

    Raises redis.RedisError when the server is down; the messages then stay in the outbox.
    """
    last = {
        (message.tenant_id, message.payload["booking"]): message
        for message in messages
        if message.kind.startswith("booking.")
    }
    outgoing: list[GroupMessage] = [
        (
            tenant_group(message.tenant_id),
            {
                "kind": "booking.changed",
                "booking": message.payload["booking"],
                "version": message.payload["version"],
            },
        )
        for message in last.values()
    ]
    if not outgoing:
        return
    # Of other people's bookings a page learns only that some time became busy or free.
    outgoing.append((FLEET_GROUP, {"kind": "fleet.changed"}))
    numbers = numbers_next([group for group, _ in outgoing])
    _send(
        [
            (group, {**hint, "number": number})
            for (group, hint), number in zip(outgoing, numbers, strict=True)
        ]
    )


def beat() -> None:
    """Tells every page the numbers of the last messages. Raises redis.RedisError."""
    tenants: list[UUID] = list(Tenant.objects.order_by("id").values_list("id", flat=True))
    groups = [tenant_group(tenant) for tenant in tenants]
    fleet, *own = numbers_last([FLEET_GROUP, *groups])
    _send(
        [
            (group, heartbeat_message(number, fleet))
            for group, number in zip(groups, own, strict=True)
        ]
    )


def _send(outgoing: Iterable[GroupMessage]) -> None:
    async def send() -> None:
        layer: Any = get_channel_layer()
        for group, message in outgoing:
            await layer.group_send(group, {"type": "live.changed", "message": message})

    _runner().run(send())


@cache
def _runner() -> "asyncio.Runner":
    """Kept, as the layer keeps a connection for each loop."""
    return asyncio.Runner()
