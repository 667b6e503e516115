"""Pulses of a web process: its event loop turns, and messages for live pages arrive.

The process sends itself a message as others send them to its pages. The channel layer's receiver
ends for good at some errors, and its pages would only notice that nothing comes.
"""

import asyncio
import logging
from typing import Any

from channels.layers import get_channel_layer
from django.conf import settings
from redis.exceptions import RedisError

from portal.web.serving.waiting import DECISIONS, HINTS
from tenants.platform.watchdog.pulses import pulse, watchdog_start

logger = logging.getLogger(__name__)

LOOP, LIVE = "event loop", "live messages"
SEND_SECONDS = 2.0


def web_watched() -> None:
    """Starts the watchdog of this process."""
    watchdog_start(
        "operators" if settings.SERVES_OPERATORS else "web",
        {LOOP: "", LIVE: "redis", DECISIONS: "database", HINTS: "redis"},
        seconds=settings.WATCHDOG_SECONDS,
        servers=settings.WATCHDOG_SERVERS,
    )


async def pulses_send() -> None:
    """Sends pulses until it is cancelled."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_turns())
        tasks.create_task(_messages())


async def _turns() -> None:
    while True:
        pulse(LOOP)
        await asyncio.sleep(SEND_SECONDS / 2)


async def _messages() -> None:
    layer = get_channel_layer()
    name = await _subscribed(layer)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_receive(layer, name))
        while True:
            try:
                await layer.send(name, {"type": "pulse"})
            except RedisError as lost:
                logger.debug("No message to this process itself: %s", lost)
            await asyncio.sleep(SEND_SECONDS)


async def _subscribed(layer: Any) -> str:  # noqa: ANN401 (channels has no types)
    """A channel of this process, as soon as Redis answers."""
    while True:
        try:
            name: str = await layer.new_channel("watchdog")
        except RedisError as lost:
            logger.debug("Live messages wait for Redis: %s", lost)
            await asyncio.sleep(SEND_SECONDS)
        else:
            return name


async def _receive(layer: Any, name: str) -> None:  # noqa: ANN401
    while True:
        await layer.receive(name)
        pulse(LIVE)
