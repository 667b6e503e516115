"""Live pages: a socket per open page, told only that something changed; the page asks again."""

from typing import Any

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from django.urls import path

from tenants.access import actor_in
from tenants.errors import Refused

NOT_YOURS = 4403
FLEET_GROUP = "fleet"


def tenant_group(tenant_id: object) -> str:
    """The channel group of a tenant's open pages."""
    return f"tenant.{str(tenant_id).replace('-', '')}"


class LiveConsumer(AsyncJsonWebsocketConsumer):  # type: ignore[misc]  # Channels has no types
    """One open page of a member. The group comes from the session, never from the client."""

    async def connect(self) -> None:
        """Joins the groups of the tenant and of the fleet, or closes with 4403."""
        self.group = ""
        try:
            actor = await database_sync_to_async(actor_in)(
                self.scope["user"].id or 0, self.scope["url_route"]["kwargs"]["tenant"]
            )
        except Refused:
            await self.accept()
            await self.close(NOT_YOURS)
            return
        self.group = tenant_group(actor.tenant_id)
        await self.channel_layer.group_add(self.group, self.channel_name)
        await self.channel_layer.group_add(FLEET_GROUP, self.channel_name)
        await self.accept()

    async def disconnect(self, code: int) -> None:
        """Leaves its groups."""
        if self.group:
            await self.channel_layer.group_discard(self.group, self.channel_name)
            await self.channel_layer.group_discard(FLEET_GROUP, self.channel_name)

    async def receive(self, **_: Any) -> None:  # noqa: ANN401 (Channels' signature)
        """Pages have nothing to say here; what they send is not even read."""

    async def live_changed(self, event: dict[str, Any]) -> None:
        """Passes on that something changed."""
        await self.send_json(event["message"])


websocket_urlpatterns = [path("ws/t/<slug:tenant>/", LiveConsumer.as_asgi())]
