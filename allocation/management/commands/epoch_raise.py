"""After restoring a backup: makes every node follow the restored database."""

from django.core.management.base import BaseCommand
from django.utils import timezone

from allocation.services.epochs import epoch_raise
from allocation.services.publish import publish_due


class Command(BaseCommand):
    """`manage.py epoch_raise`, in the system's role."""

    help = __doc__ or ""

    def handle(self, *_: object, **__: object) -> None:
        """Prints the new epoch, and how many nodes were told at once."""
        now = timezone.now()
        epoch = epoch_raise(now)
        told = publish_due(now)
        self.stdout.write(f"The epoch is {epoch} now. {told} nodes were told.")
