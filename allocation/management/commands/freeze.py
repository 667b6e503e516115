"""Freezes decisions: nothing starts, and nothing is paused or ended early."""

from argparse import ArgumentParser

from django.utils import timezone

from allocation.management.operator import OperatorCommand, operator_argument, operator_required
from allocation.queries.fleet.portal_modes import decisions_frozen, freeze_sentence
from allocation.services.operate.portal_modes import FREEZE, freeze_begin, length_read, mode_end


class Command(OperatorCommand):
    """`manage.py freeze begin --reason "Power works" --for 2h --operator ada`, then `end`."""

    help = __doc__ or ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the action and its parameters."""
        parser.add_argument("act", choices=["begin", "end", "status"])
        parser.add_argument("--reason", default="", help="shown to everyone")
        parser.add_argument("--for", dest="length", default="", help="2h; default: until `end`")
        operator_argument(parser)

    def handle(self, *_: object, **options: str) -> None:
        """Carries out the action and prints the current state."""
        now = timezone.now()
        if options["act"] == "begin":
            operator = operator_required(options["operator"])
            length = length_read(options["length"])
            freeze_begin(operator=operator, reason=options["reason"], length=length, now=now)
        elif options["act"] == "end":
            mode_end(kind=FREEZE, operator=operator_required(options["operator"]), now=now)
        frozen = decisions_frozen(now)
        self.stdout.write(freeze_sentence(frozen, now) if frozen else "Decisions are not frozen.")
