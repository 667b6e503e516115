"""Gives a node's agent a new signing key."""

from argparse import ArgumentParser

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from django.utils import timezone

from allocation.models import Node
from allocation.services.nodes.fleet import node_key_rotate
from tenants.models import User
from tenants.platform.errors import Refused


class Command(BaseCommand):
    """`manage.py rotate_key --node gpu-a1-01 --operator ada`."""

    help = __doc__ or ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the node and `--operator`."""
        parser.add_argument("--node", required=True, help="name of the node")
        parser.add_argument("--operator", required=True, help="your user name, for the audit log")

    def handle(self, *_: object, **options: str) -> None:
        """Issues the key and prints what happens next."""
        try:
            with transaction.atomic():
                node_key_rotate(
                    operator=User.objects.get(username=options["operator"], is_staff=True),
                    node=Node.objects.get(name=options["node"]),
                    now=timezone.now(),
                )
        except (Refused, User.DoesNotExist, Node.DoesNotExist) as error:
            raise CommandError(str(error)) from error
        self.stdout.write("The new key is sent. The old one is valid until the agent uses it.")
