"""Live pages: a WebSocket per open page reports that something changed, and the page reloads it.

Every member of a tenant is notified that a booking changed. Its state is sent only to members who
may see the booking.

A socket lives no longer than the right to read. Every two seconds one query checks for all sockets
of this process that their sessions are valid and have the same roles as at the start.
"""

import asyncio
import logging
import time
from contextlib import suppress
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

from asgiref.sync import sync_to_async
from channels.db import database_sync_to_async
from channels.exceptions import StopConsumer
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from django.conf import settings
from django.db import Error as DatabaseFault
from django.urls import path
from django.utils import timezone

from allocation.services.publish.live import numbers_last
from tenants.services.sign_in.sessions import Reader, readers_of, session_digest

logger = logging.getLogger(__name__)

FORBIDDEN = 4403
# Closes a page whose roles changed or can't be checked; the page reconnects.
SERVICE_RESTART = 1012
# A page that takes no message for this long is closed and reconnects. This limits the messages that
# are kept in memory for it.
SEND_TIMEOUT_SECONDS = 10
# How often the right to read is checked, and how old the result may be.
CHECK_INTERVAL_SECONDS = 2
CHECK_MAX_AGE_SECONDS = 5
FLEET_GROUP = "fleet"


def tenant_group(tenant_id: object) -> str:
    """Returns the channel group of a tenant's open pages."""
    return f"tenant.{str(tenant_id).replace('-', '')}"


def heartbeat_message(own: int, fleet: int) -> dict[str, object]:
    """Returns a heartbeat: the numbers of the last messages of the tenant and of the fleet."""
    return {"kind": "live.beat", "own": own, "fleet": fleet}


class LiveConsumer(AsyncJsonWebsocketConsumer):  # type: ignore[misc]  # Channels has no types
    """One open page of a member. The group comes from the session, never from the client."""

    group = ""
    reader: Reader | None = None
    checked_at = 0.0

    async def connect(self) -> None:
        """Joins the groups of the tenant and of the fleet, or closes with 4403."""
        await self.accept()
        key = self.scope["cookies"].get(settings.SESSION_COOKIE_NAME, "")
        self.place = (session_digest(key), self.scope["url_route"]["kwargs"]["tenant"])
        self.checked_at = time.monotonic()
        self.reader = (await _readers({self.place[0]})).get(self.place)
        if self.reader is None:
            await self.close(FORBIDDEN)
            return
        self.group = tenant_group(self.reader.tenant_id)
        await self.channel_layer.group_add(self.group, self.channel_name)
        await self.channel_layer.group_add(FLEET_GROUP, self.channel_name)
        _watch().add(self)
        # The first heartbeat lets the page detect the first message that it misses.
        numbers = await sync_to_async(numbers_last)((self.group, FLEET_GROUP))
        await self.send_json(heartbeat_message(*numbers))

    async def disconnect(self, code: int) -> None:
        """Leaves its groups."""
        _watch().discard(self)
        if self.group:
            await self.channel_layer.group_discard(self.group, self.channel_name)
            await self.channel_layer.group_discard(FLEET_GROUP, self.channel_name)

    async def receive(self, **_: Any) -> None:  # noqa: ANN401 (Channels' signature)
        """Ignores what pages send."""

    async def live_changed(self, event: dict[str, Any]) -> None:
        """Forwards a change to a page that may still read and takes it in time."""
        if time.monotonic() - self.checked_at > CHECK_MAX_AGE_SECONDS:
            await self.close(SERVICE_RESTART)
            return
        if self.reader is None:
            return
        message = event["message"]
        if "project" in event and self.reader.may_see(UUID(event["project"])):
            message = {**message, **event["news"]}
        try:
            async with asyncio.timeout(SEND_TIMEOUT_SECONDS):
                await self.send_json(message)
        except TimeoutError:
            # A closing handshake would wait for the same page.
            await self.disconnect(FORBIDDEN)
            raise StopConsumer from None

    async def checked(self, found: Reader | None, at: float) -> None:
        """Applies the result of a check: stays open, or closes without further messages."""
        if found == self.reader:
            self.checked_at = at
            return
        self.reader = None
        # A page that takes nothing is not waited for.
        with suppress(TimeoutError):
            async with asyncio.timeout(CHECK_INTERVAL_SECONDS):
                await self.close(FORBIDDEN if found is None else SERVICE_RESTART)


class _Watch:
    """The open sockets of one event loop, which are checked together."""

    def __init__(self) -> None:
        self._pages: set[LiveConsumer] = set()
        self._task: asyncio.Task[None] | None = None

    def add(self, page: LiveConsumer) -> None:
        self._pages.add(page)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    def discard(self, page: LiveConsumer) -> None:
        self._pages.discard(page)

    async def _run(self) -> None:
        """Runs while there are sockets, which close when their last result is too old."""
        while self._pages:
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)
            pages, at = [page for page in self._pages if page.reader], time.monotonic()
            try:
                found = await _readers({page.place[0] for page in pages})
            except DatabaseFault:
                logger.warning("Sessions of open pages could not be checked; trying again.")
                continue
            await asyncio.gather(*(page.checked(found.get(page.place), at) for page in pages))


_watches: WeakKeyDictionary[asyncio.AbstractEventLoop, _Watch] = WeakKeyDictionary()


def _watch() -> _Watch:
    return _watches.setdefault(asyncio.get_running_loop(), _Watch())


async def _readers(digests: set[bytes]) -> dict[tuple[bytes, str], Reader]:
    found: dict[tuple[bytes, str], Reader] = await database_sync_to_async(readers_of)(
        digests, now=timezone.now()
    )
    return found


websocket_urlpatterns = [path("ws/t/<slug:tenant>/", LiveConsumer.as_asgi())]
