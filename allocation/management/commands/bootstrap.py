"""Sets up a site from one file: operator, models, tiers, prices, tenants, quotas, nodes."""

import sys
from argparse import ArgumentParser
from pathlib import Path

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from django.utils import timezone

from allocation.rules.site.known_models import known_catalogue
from allocation.rules.site.site_file import SiteFaults, example_read, site_read
from allocation.services.operate.site_setup import Outcome, site_apply

ALONE = (
    "There is one operator, who publishes changes of prices alone. As soon as there is a second one"
    " (manage.py createoperator), each publishes what the other has written."
)
MARKS = {"made": "+", "there": "=", "differs": "!"}


class Command(BaseCommand):
    """`manage.py bootstrap --from site.toml`, as the database's owner. Idempotent."""

    help = __doc__ or ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the source: a file, the example, or the shipped models."""
        one = parser.add_mutually_exclusive_group(required=True)
        one.add_argument("--from", dest="path", help="the file, or - for standard input")
        one.add_argument("--example", action="store_true", help="print an example with comments")
        one.add_argument("--models", action="store_true", help="list the shipped GPU models")
        parser.add_argument(
            "--check",
            "--dry-run",
            action="store_true",
            help="change nothing; exit with 1 if there are differences",
        )

    def handle(
        self,
        *_: object,
        path: str | None,
        example: bool,
        models: bool,
        check: bool,
        **__: object,
    ) -> None:
        """Prints a line for each item of the file, and new passwords."""
        if path is None:
            self.stdout.write(example_read() if example else _models_text())
            return
        outcome = _applied(path, is_check=check)
        for change in outcome.changes:
            self.stdout.write(f"{MARKS[change.kind]} {change.what}")
        self.stdout.write(_summary(outcome, is_check=check))
        if check:
            if outcome.count("made") or outcome.count("differs"):
                sys.exit(1)
            return
        if outcome.is_only_operator and outcome.count("made"):
            self.stdout.write(ALONE)
        for username, password in outcome.passwords.items():
            self.stdout.write(f"Password of {username} (shown once): {password}")


def _applied(path: str, *, is_check: bool) -> Outcome:
    name = "standard input" if path == "-" else path
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{name} can't be read: {error}.") from None
    try:
        with transaction.atomic():
            outcome = site_apply(site=site_read(text), now=timezone.now())
            transaction.set_rollback(is_check)
    except SiteFaults as error:
        lines = (fault.text(name) for fault in error.faults)
        raise CommandError("\n".join(("Nothing was changed.", *lines))) from None
    return outcome


def _summary(outcome: Outcome, *, is_check: bool) -> str:
    verb = "to create" if is_check else "created"
    text = f"{outcome.count('made')} {verb}, {outcome.count('there')} unchanged"
    if differs := outcome.count("differs"):
        text += f", {differs} different (!) and not changed: edit them in the browser"
    return f"{text}."


def _models_text() -> str:
    rows = known_catalogue().models.values()
    return "\n".join(f"{model.slug:26}{model.gpu_class:16}{model.names[0]}" for model in rows)
