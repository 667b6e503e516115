"""Freezes decisions: nothing starts, and nothing is paused or ended early."""

from argparse import ArgumentParser

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from allocation.queries.fleet.portal_modes import decisions_frozen, freeze_sentence
from allocation.services.operate.portal_modes import FREEZE, freeze_begin, length_read, mode_end
from tenants.models import User
from tenants.platform.errors import Refused


class Command(BaseCommand):
    """`manage.py freeze begin --reason "Power works" --for 2h --operator ada`, then `end`."""

    help = __doc__ or ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the action and its parameters."""
        parser.add_argument("act", choices=["begin", "end", "status"])
        parser.add_argument("--reason", default="", help="shown to everyone")
        parser.add_argument("--for", dest="length", default="", help="2h; default: until `end`")
        parser.add_argument("--operator", default="", help="your user name, for the audit log")

    def handle(self, *_: object, **options: str) -> None:
        """Carries out the action and prints the current state."""
        now = timezone.now()
        try:
            if options["act"] != "status":
                operator = User.objects.get(username=options["operator"], is_staff=True)
                if options["act"] == "begin":
                    length = length_read(options["length"])
                    reason = options["reason"]
                    freeze_begin(operator=operator, reason=reason, length=length, now=now)
                else:
                    mode_end(kind=FREEZE, operator=operator, now=now)
        except User.DoesNotExist as error:
            raise CommandError("--operator must be the user name of an operator.") from error
        except Refused as error:
            raise CommandError(str(error)) from error
        frozen = decisions_frozen(now)
        self.stdout.write(freeze_sentence(frozen) if frozen else "Decisions are not frozen.")
