"""Accepts the portal's clock after a jump, so that bookings start and end again."""

from argparse import ArgumentParser

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from allocation.services.nodes.clock import clock_accept
from tenants.models import User
from tenants.platform.errors import Refused


class Command(BaseCommand):
    """`manage.py clock_accept --operator ada`, with the system's database role."""

    help = __doc__ or ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds `--operator`."""
        parser.add_argument("--operator", required=True, help="your user name, for the audit log")

    def handle(self, *_: object, **options: str) -> None:
        """Accepts the clock and prints the size of the jump."""
        try:
            operator = User.objects.get(username=options["operator"], is_staff=True)
            jump = clock_accept(operator=operator, now=timezone.now())
        except (Refused, User.DoesNotExist) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"The clock jumped by {jump.total_seconds():.0f} s. It is accepted now.")
