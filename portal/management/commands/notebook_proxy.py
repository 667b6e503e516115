"""Serves notebooks to browsers until it is stopped. One process of it per site."""

import argparse
import asyncio
import signal

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from allocation.services.record.liveness import SeenNow
from portal.notebooks.guard import CHECK_SECONDS
from portal.notebooks.heads import Site
from portal.notebooks.proxy import Proxy
from tenants.platform.watchdog.pulses import pulse, watchdog_start, watchdog_stop

LOOP = "notebooks"


class Command(BaseCommand):
    """`manage.py notebook_proxy --host 127.0.0.1 --port 8010`. It exits on SIGTERM and SIGINT."""

    help = __doc__ or ""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Adds where it listens."""
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=8010)

    def handle(self, *_: object, host: str, port: int, **__: object) -> None:
        """Serves until a signal stops it."""
        if not settings.NOTEBOOK_URL:
            raise CommandError("NOTEBOOK_URL is not set, so this site has no notebooks.")
        watchdog_start(
            "notebooks",
            {LOOP: "database redis"},
            seconds=settings.WATCHDOG_SECONDS,
            servers=settings.WATCHDOG_SERVERS,
        )
        asyncio.run(_serve(host, port))


async def _serve(host: str, port: int) -> None:
    names = (settings.SESSION_COOKIE_NAME, settings.CSRF_COOKIE_NAME, settings.DEVICE_COOKIE_NAME)
    proxy = Proxy(Site.of(settings.NOTEBOOK_URL, names), settings.PUBLIC_URL, timezone.now)
    seen, stopped = SeenNow("notebooks"), asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stopped.set)
    server = await asyncio.start_server(proxy.serve, host, port)
    while not stopped.is_set():
        proxy.tunnels.sweep()
        await proxy.guard.check()
        pulse(LOOP)
        await asyncio.to_thread(seen, timezone.now())
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                await stopped.wait()
        except TimeoutError:
            continue
    watchdog_stop()
    # Pages connect again to the next process; nothing waits for open sockets.
    server.close()
