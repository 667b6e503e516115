"""After restoring a backup: makes every node follow the restored database."""

from argparse import ArgumentParser

from django.core.management.base import BaseCommand
from django.utils import timezone

from allocation.management.operator import operator_argument, operator_by_name
from allocation.services.nodes.restore_fence import epoch_raise
from allocation.services.publish.publish import publish_due


class Command(BaseCommand):
    """`manage.py epoch_raise [--operator ada]`, in the system's role."""

    help = __doc__ or ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Who raises it, for the log."""
        operator_argument(parser)

    def handle(self, *_: object, operator: str, **__: object) -> None:
        """Prints the new epoch, and how many nodes were told at once."""
        now = timezone.now()
        epoch = epoch_raise(now, operator_by_name(operator))
        told = publish_due(now)
        self.stdout.write(f"The epoch is {epoch} now. {told} nodes were told.")
