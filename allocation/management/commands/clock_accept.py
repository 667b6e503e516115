"""After a jump of the portal's clock: says that it is right now, so that things end and start."""

from argparse import ArgumentParser

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from allocation.services.nodes.clock import clock_accept
from tenants.models import User
from tenants.platform.errors import Refused


class Command(BaseCommand):
    """`manage.py clock_accept --operator ada`, in the system's role."""

    help = __doc__ or ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Who has looked."""
        parser.add_argument("--operator", required=True)

    def handle(self, *_: object, **options: str) -> None:
        """Says by how much the clock had jumped."""
        try:
            operator = User.objects.get(username=options["operator"], is_staff=True)
            jump = clock_accept(operator=operator, now=timezone.now())
        except (Refused, User.DoesNotExist) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"The clock had jumped by {jump.total_seconds():.0f} s. It counts now.")
