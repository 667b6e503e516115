"""Prints a one-time token with which a node's agent enrols."""

from argparse import ArgumentParser

from django.core.management.base import BaseCommand
from django.utils import timezone

from allocation.management.operator import operator_argument, operator_by_name
from allocation.services.nodes.fleet import enrolment_token_create


class Command(BaseCommand):
    """`manage.py enrol_token --node gpu-a1-01 --rack a1 [--operator ada]`."""

    help = __doc__ or ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the node and its rack."""
        parser.add_argument("--node", required=True, help="name of the node")
        parser.add_argument("--rack", default="default", help="rack of a new node")
        operator_argument(parser)

    def handle(self, *_: object, **options: str) -> None:
        """Prints only the token."""
        token = enrolment_token_create(
            node_name=options["node"],
            rack_name=options["rack"],
            now=timezone.now(),
            operator=operator_by_name(options["operator"]),
        )
        self.stdout.write(token)
