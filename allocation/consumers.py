"""Live pages: a socket per open page, told only that something changed; the page asks again."""

import asyncio
import time
from typing import Any

from asgiref.sync import sync_to_async
from channels.db import database_sync_to_async
from channels.exceptions import StopConsumer
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from django.urls import path

from allocation.services.live import numbers_last
from tenants.access import Actor, actor_in
from tenants.errors import Refused

NOT_YOURS = 4403
# A page that does not take its messages for so long is closed out: it comes back and looks anew.
# So what waits for it in memory is never more than what happens in this time.
TAKES_SECONDS = 10
# How often it is asked whether its reader is still a member.
MEMBER_SECONDS = 60
FLEET_GROUP = "fleet"


def tenant_group(tenant_id: object) -> str:
    """The channel group of a tenant's open pages."""
    return f"tenant.{str(tenant_id).replace('-', '')}"


def beat_message(own: int, fleet: int) -> dict[str, object]:
    """What says which messages a page should have heard: the last of its tenant, of the fleet."""
    return {"kind": "live.beat", "own": own, "fleet": fleet}


class LiveConsumer(AsyncJsonWebsocketConsumer):  # type: ignore[misc]  # Channels has no types
    """One open page of a member. The group comes from the session, never from the client."""

    async def connect(self) -> None:
        """Joins the groups of the tenant and of the fleet, or closes with 4403."""
        self.group = ""
        await self.accept()
        actor = await self._member()
        if actor is None:
            await self.close(NOT_YOURS)
            return
        self.group = tenant_group(actor.tenant_id)
        await self.channel_layer.group_add(self.group, self.channel_name)
        await self.channel_layer.group_add(FLEET_GROUP, self.channel_name)
        # Where it begins to listen, so that it knows of the first message that it misses.
        numbers = await sync_to_async(numbers_last)((self.group, FLEET_GROUP))
        await self.send_json(beat_message(*numbers))

    async def disconnect(self, code: int) -> None:
        """Leaves its groups."""
        if self.group:
            await self.channel_layer.group_discard(self.group, self.channel_name)
            await self.channel_layer.group_discard(FLEET_GROUP, self.channel_name)

    async def receive(self, **_: Any) -> None:  # noqa: ANN401 (Channels' signature)
        """Pages have nothing to say here; what they send is not even read."""

    async def live_changed(self, event: dict[str, Any]) -> None:
        """Passes on that something changed, to who is still a member and takes it in time."""
        if time.monotonic() > self.member_until and await self._member() is None:
            await self.close(NOT_YOURS)
            return
        try:
            async with asyncio.timeout(TAKES_SECONDS):
                await self.send_json(event["message"])
        except TimeoutError:
            # Closing politely would wait for the same page.
            await self.disconnect(NOT_YOURS)
            raise StopConsumer from None

    async def _member(self) -> Actor | None:
        """Who reads, if they belong to the tenant."""
        self.member_until = time.monotonic() + MEMBER_SECONDS
        try:
            actor: Actor = await database_sync_to_async(actor_in)(
                self.scope["user"].id or 0, self.scope["url_route"]["kwargs"]["tenant"]
            )
        except Refused:
            return None
        return actor


websocket_urlpatterns = [path("ws/t/<slug:tenant>/", LiveConsumer.as_asgi())]
