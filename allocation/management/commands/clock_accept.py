"""Accepts the portal's clock after a jump, so that bookings start and end again."""

from argparse import ArgumentParser

from django.utils import timezone

from allocation.management.operator import OperatorCommand, operator_argument, operator_required
from allocation.services.nodes.clock import clock_accept


class Command(OperatorCommand):
    """`manage.py clock_accept --operator ada`, with the system's database role."""

    help = __doc__ or ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds `--operator`."""
        operator_argument(parser)

    def handle(self, *_: object, **options: str) -> None:
        """Accepts the clock and prints the size of the jump."""
        operator = operator_required(options["operator"])
        jump = clock_accept(operator=operator, now=timezone.now())
        self.stdout.write(f"The clock jumped by {jump.total_seconds():.0f} s. It is accepted now.")
