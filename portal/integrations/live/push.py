"""From the outbox to open pages, by the channel layer."""

from collections.abc import Iterable
from typing import Any

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer

from allocation.consumers import FLEET_GROUP, tenant_group
from tenants.models import OutboxMessage


def push(messages: Iterable[OutboxMessage]) -> None:
    """Tells the tenants' pages what changed, and everyone's that the fleet did.

    Raises redis.RedisError when the server is down; the messages then stay in the outbox.
    """
    async_to_sync(_push)([message for message in messages if message.kind.startswith("booking.")])


async def _push(messages: list[OutboxMessage]) -> None:
    layer: Any = get_channel_layer()
    for message in messages:
        hint = {
            "kind": "booking.changed",
            "booking": message.payload["booking"],
            "version": message.payload["version"],
        }
        await layer.group_send(
            tenant_group(message.tenant_id), {"type": "live.changed", "message": hint}
        )
    if messages:
        # Of other people's bookings a page learns only that some time became busy or free.
        await layer.group_send(
            FLEET_GROUP, {"type": "live.changed", "message": {"kind": "fleet.changed"}}
        )
