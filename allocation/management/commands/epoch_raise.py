"""Makes every node follow the database after it was restored from a backup."""

from argparse import ArgumentParser

from django.core.management.base import BaseCommand
from django.utils import timezone

from allocation.management.operator import operator_argument, operator_by_name
from allocation.services.nodes.restores import epoch_raise
from allocation.services.publish.publish import publish_due


class Command(BaseCommand):
    """`manage.py epoch_raise [--operator ada]`, with the system's database role."""

    help = __doc__ or ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds `--operator`."""
        operator_argument(parser)

    def handle(self, *_: object, operator: str, **__: object) -> None:
        """Raises the epoch, publishes all assignments, and prints both numbers."""
        now = timezone.now()
        epoch = epoch_raise(now, operator_by_name(operator))
        published = publish_due(now)
        self.stdout.write(f"The epoch is {epoch}. {published} assignments were published.")
