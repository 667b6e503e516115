"""Reads what agents say, for as long as it runs. Any number of readers may run."""

import os
import signal
import socket

from django.core.management.base import BaseCommand
from django.utils import timezone

from allocation.services.inbox.consumer import Reader


class Command(BaseCommand):
    """`manage.py reports_reader`; ends cleanly on SIGTERM or SIGINT."""

    help = __doc__ or ""

    def handle(self, *_: object, **__: object) -> None:
        """Reads until told to stop."""
        reader = Reader(name=f"{socket.gethostname()}-{os.getpid()}", clock=timezone.now)
        signal.signal(signal.SIGTERM, lambda *_: reader.stop())
        signal.signal(signal.SIGINT, lambda *_: reader.stop())
        reader.run()
