"""Prints a one-time token that lets an agent in."""

from argparse import ArgumentParser

from django.core.management.base import BaseCommand
from django.utils import timezone

from allocation.management.operator import operator_argument, operator_by_name
from allocation.services.nodes.fleet import enrolment_token_create


class Command(BaseCommand):
    """`manage.py enrol_token --node gpu-a1-01 --rack a1 [--operator ada]`."""

    help = __doc__ or ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The node's name, and its rack when the node is new."""
        parser.add_argument("--node", required=True)
        parser.add_argument("--rack", default="default")
        operator_argument(parser)

    def handle(self, *_: object, **options: str) -> None:
        """Prints the token and nothing else."""
        token = enrolment_token_create(
            node_name=options["node"],
            rack_name=options["rack"],
            now=timezone.now(),
            operator=operator_by_name(options["operator"]),
        )
        self.stdout.write(token)
