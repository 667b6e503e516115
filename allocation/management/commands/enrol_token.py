"""Prints a one-time token with which a node's agent, or the engine of many hosts, enrols."""

from argparse import ArgumentParser

from django.core.management.base import BaseCommand
from django.utils import timezone

from allocation.management.operator import operator_argument, operator_by_name
from allocation.services.nodes.engines import engine_token_create
from allocation.services.nodes.fleet import enrolment_token_create


class Command(BaseCommand):
    """`manage.py enrol_token --node gpu-a1-01 --rack a1 [--operator ada]`, or `--engine main`."""

    help = __doc__ or ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the node and its rack."""
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--node", help="name of the node")
        what.add_argument("--engine", help="name of the engine, such as main")
        parser.add_argument("--rack", default="default", help="rack of a new node")
        operator_argument(parser)

    def handle(self, *_: object, **options: str) -> None:
        """Prints only the token."""
        rack, operator = options["rack"], operator_by_name(options["operator"])
        if options["engine"]:
            token = engine_token_create(
                engine=options["engine"], rack=rack, now=timezone.now(), operator=operator
            )
        else:
            token = enrolment_token_create(
                node_name=options["node"], rack_name=rack, now=timezone.now(), operator=operator
            )
        self.stdout.write(token)
