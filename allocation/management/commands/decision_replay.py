"""Solves a stored decision again and compares the answer byte for byte."""

from argparse import ArgumentParser

from django.core.management.base import BaseCommand, CommandError

from allocation.models import Decision
from allocation.services.replay import decision_replay


class Command(BaseCommand):
    """`manage.py decision_replay 88213`."""

    help = __doc__ or ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The decision's number."""
        parser.add_argument("decision", type=int)

    def handle(self, *_: object, **options: int) -> None:
        """Says the digests; exits with an error when they differ."""
        decision = Decision.objects.select_related("policy").filter(id=options["decision"]).first()
        if decision is None:
            raise CommandError(f"There is no decision {options['decision']}.")
        replay = decision_replay(decision)
        self.stdout.write(f"snapshot {replay.snapshot_sha256}")
        self.stdout.write(f"stored   {decision.plan_sha256}")
        self.stdout.write(f"replayed {replay.plan_sha256}")
        if not replay.is_equal:
            raise CommandError(
                f"Not the same bytes. It was decided by {decision.software}; "
                f"this is {replay.software}."
            )
        self.stdout.write("Same bytes.")
