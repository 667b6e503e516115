"""Reads the reports of agents until it is stopped. Several readers can run at the same time."""

import os
import signal
import socket

from django.conf import settings
from django.core.management.base import BaseCommand
from django.utils import timezone

from allocation.services.inbox.account_guard import LINKS
from allocation.services.inbox.consumer import REPORTS, Reader
from tenants.platform.watchdog.pulses import watchdog_start


class Command(BaseCommand):
    """`manage.py reports_reader`. It exits cleanly on SIGTERM and SIGINT."""

    help = __doc__ or ""

    def handle(self, *_: object, **__: object) -> None:
        """Reads until a signal stops it."""
        reader = Reader(name=f"{socket.gethostname()}-{os.getpid()}", clock=timezone.now)
        signal.signal(signal.SIGTERM, lambda *_: reader.stop())
        signal.signal(signal.SIGINT, lambda *_: reader.stop())
        watchdog_start(
            "reader",
            {REPORTS: "redis agents database", LINKS: "agents database"},
            seconds=settings.WATCHDOG_SECONDS,
            servers=settings.WATCHDOG_SERVERS,
        )
        reader.run()
