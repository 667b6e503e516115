"""Solves a stored decision again and compares the plan, byte for byte from plan format 2 on."""

import zlib
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from allocation.models import Decision
from allocation.services.decide.replay import decision_replay
from portal.storage.archive import ArchiveBroken, chain_archived

_SAME = {
    "bytes": "Same bytes.",
    "meaning": "Same meaning. The plan has format 1, which contained sentences: codes, rules, "
    "facts, times and places were compared.",
}


class Command(BaseCommand):
    """`manage.py decision_replay 88213 [--archive FOLDER]`."""

    help = __doc__ or ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the decision's number, and the folder of the archive."""
        parser.add_argument("decision", type=int)
        parser.add_argument(
            "--archive", type=Path, help="the folder of `manage.py archive`, for an old decision"
        )

    def handle(self, *_: object, **options: Any) -> None:  # noqa: ANN401 (Django's)
        """Prints the digests; exits with an error when they differ."""
        decision = Decision.objects.select_related("policy").filter(id=options["decision"]).first()
        if decision is None:
            raise CommandError(f"There is no decision {options['decision']}.")
        chain = _from_archive(decision, options["archive"]) if decision.archived_in else []
        try:
            replay = decision_replay(decision, chain)
        except (ValueError, LookupError, zlib.error) as error:
            raise CommandError(
                f"The bytes of decision {decision.id}, or of one that it continues, are damaged: {error}"
            ) from error
        self.stdout.write(f"snapshot {replay.snapshot_sha256}")
        self.stdout.write(f"stored   {decision.plan_sha256}")
        self.stdout.write(f"replayed {replay.plan_sha256}")
        if not replay.is_equal:
            raise CommandError(
                f"Not the same {replay.comparison}. The decision was made by {decision.software}; "
                f"this is {replay.software}."
            )
        self.stdout.write(_SAME[replay.comparison])


def _from_archive(decision: Decision, folder: Path | None) -> list[Decision]:
    if folder is None:
        raise CommandError(
            f"Decision {decision.id} is archived in {decision.archived_in}: add its folder with --archive."
        )
    try:
        return chain_archived(folder, decision)
    except ArchiveBroken as error:
        raise CommandError(str(error)) from error
