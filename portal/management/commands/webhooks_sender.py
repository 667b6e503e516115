"""Sends webhooks until it is stopped. Several senders can run at the same time."""

import asyncio
import signal

from django.conf import settings
from django.core.management.base import BaseCommand
from django.utils import timezone

from allocation.services.record.liveness import SeenNow
from portal.integrations.webhooks.queue import DELIVERIES, Sender
from tenants.platform.watchdog.pulses import watchdog_start, watchdog_stop


class Command(BaseCommand):
    """`manage.py webhooks_sender`. It exits cleanly on SIGTERM and SIGINT."""

    help = __doc__ or ""

    def handle(self, *_: object, **__: object) -> None:
        """Sends until a signal stops it."""
        watchdog_start(
            "sender",
            {DELIVERIES: "redis database"},
            seconds=settings.WATCHDOG_SECONDS,
            servers=settings.WATCHDOG_SERVERS,
        )
        asyncio.run(_send())


async def _send() -> None:
    sender = Sender(timezone.now, SeenNow("sender"))
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, _stop, sender)
    await sender.run()


def _stop(sender: Sender) -> None:
    """Stops it; it finishes the attempts that have begun."""
    watchdog_stop()
    sender.stop()
