"""Notifies open pages about changes, through the channel layer.

The layer may lose a message. So each group's messages are numbered, and a heartbeat repeats the
last number every few seconds: a page that finds a gap reloads its parts, and a page without
heartbeats shows since when it is disconnected.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import UUID

from channels.layers import get_channel_layer

from allocation.consumers import FLEET_GROUP, heartbeat_message, tenant_group
from allocation.services.publish.live import numbers_last, numbers_next
from tenants.models import OutboxMessage, Tenant


@dataclass(frozen=True, slots=True)
class ProjectNews:
    """What only pages of members get who may see the bookings of a project."""

    project: str
    facts: dict[str, Any]

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> "ProjectNews | None":
        """What a message of the outbox says of its booking; None of one from an older version."""
        if "project" not in payload:
            return None
        facts = {name: payload[name] for name in ("id", "state", "event") if payload[name]}
        return cls(payload["project"], facts)


@dataclass(frozen=True, slots=True)
class GroupMessage:
    """A message to the pages of a group."""

    group: str
    message: dict[str, Any]
    news: ProjectNews | None = None


def push(messages: Iterable[OutboxMessage]) -> None:
    """Notifies the tenants' pages of changed bookings, and all pages that the fleet changed.

    Of several messages about one booking only the last is sent, which has its present state.
    Raises redis.RedisError when the server is down; the messages then stay in the outbox.
    """
    last = {
        (message.tenant_id, message.payload["booking"]): message
        for message in messages
        if message.kind.startswith("booking.")
    }
    outgoing = [
        GroupMessage(
            tenant_group(message.owner),
            {
                "kind": "booking.changed",
                "booking": message.payload["booking"],
                "version": message.payload["version"],
            },
            ProjectNews.of(message.payload),
        )
        for message in last.values()
    ]
    if not outgoing:
        return
    # About other tenants' bookings a page learns only that some time became busy or free.
    outgoing.append(GroupMessage(FLEET_GROUP, {"kind": "fleet.changed"}))
    numbers = numbers_next([each.group for each in outgoing])
    for each, number in zip(outgoing, numbers, strict=True):
        each.message["number"] = number
    _send(outgoing)


def beat() -> None:
    """Sends every page the numbers of the last messages. Raises redis.RedisError."""
    tenants: list[UUID] = list(Tenant.objects.order_by("id").values_list("id", flat=True))
    groups = [tenant_group(tenant) for tenant in tenants]
    fleet, *own = numbers_last([FLEET_GROUP, *groups])
    _send(
        [
            GroupMessage(group, heartbeat_message(number, fleet))
            for group, number in zip(groups, own, strict=True)
        ]
    )


def _send(outgoing: Iterable[GroupMessage]) -> None:
    async def send() -> None:
        layer: Any = get_channel_layer()
        for each in outgoing:
            event = {"type": "live.changed", "message": each.message}
            if each.news is not None:
                event |= {"project": each.news.project, "news": each.news.facts}
            await layer.group_send(each.group, event)

    _runner().run(send())


@cache
def _runner() -> "asyncio.Runner":
    """Cached, because the layer keeps a connection per event loop."""
    return asyncio.Runner()
