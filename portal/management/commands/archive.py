"""Moves old rows out of the database into files that can still be verified and replayed."""

from argparse import ArgumentParser, ArgumentTypeError
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from portal.storage.archive import Limits, archive_write
from tenants.web.parts import counted

DECISIONS_DAYS = 30
HISTORIES_DAYS = 400
LOG_DAYS = 400
LEAST_DAYS = 7


def _days(text: str) -> int | None:
    if text == "never":
        return None
    days = int(text)
    if days < LEAST_DAYS:
        raise ArgumentTypeError(f"at least {LEAST_DAYS} days stay in the database")
    return days


class Command(BaseCommand):
    """`manage.py archive --to FOLDER`, as portal_owner; run it from a timer."""

    help = __doc__ or ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the target folder, and the days that each kind stays."""
        parser.add_argument("--to", type=Path, required=True, metavar="FOLDER")
        for name, days, what in (
            ("decisions", DECISIONS_DAYS, "the solver's input and plan"),
            ("histories", HISTORIES_DAYS, "histories and occupancies of bookings that ended"),
            ("log", LOG_DAYS, "entries of the log"),
        ):
            parser.add_argument(
                f"--{name}-days",
                type=_days,
                default=days,
                metavar="DAYS",
                help=f"how long to keep {what} in the database (default: {days}; at least"
                f" {LEAST_DAYS}; `never`: do not archive)",
            )

    def handle(self, *_: object, **options: Any) -> None:  # noqa: ANN401 (Django's)
        """Prints each file that was written."""
        now = timezone.now()

        limits = Limits(
            **{
                kind: None if days is None else now - timedelta(days=days)
                for kind in ("decisions", "histories", "log")
                for days in [options[f"{kind}_days"]]
            }
        )
        files = 0
        for file in archive_write(options["to"], limits, now):
            files += 1
            self.stdout.write(f"{file.name}: {counted(file.rows, 'row')}")
        self.stdout.write(f"{counted(files, 'file')} written." if files else "Nothing is old enough.")
