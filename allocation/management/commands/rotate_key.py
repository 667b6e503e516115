"""Gives a node's agent a new signing key."""

from argparse import ArgumentParser

from django.core.management.base import CommandError
from django.db import transaction
from django.utils import timezone

from allocation.management.operator import OperatorCommand, operator_argument, operator_required
from allocation.models import Node
from allocation.services.nodes.fleet import node_key_rotate


class Command(OperatorCommand):
    """`manage.py rotate_key --node gpu-a1-01 --operator ada`."""

    help = __doc__ or ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the node and `--operator`."""
        parser.add_argument("--node", required=True, help="name of the node")
        operator_argument(parser)

    def handle(self, *_: object, **options: str) -> None:
        """Issues the key and prints what happens next."""
        operator = operator_required(options["operator"])
        with transaction.atomic():
            node = Node.objects.filter(name=options["node"]).first()
            if node is None:
                raise CommandError(f"There is no node {options['node']!r}.")
            node_key_rotate(operator=operator, node=node, now=timezone.now())
        self.stdout.write("The new key is sent. The old one is valid until the agent uses it.")
