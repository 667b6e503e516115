"""Restores a backup, lists bookings accepted after it, and makes the nodes follow it."""

import json
from argparse import ArgumentParser
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import redis
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from django.utils import timezone

from allocation.management.operator import operator_argument, operator_by_name
from allocation.rules.states import TERMINAL, State
from allocation.services.nodes.restores import bookings_lost, epoch_raise
from portal.env import BadSetting, env_str
from portal.storage.backups import (
    BackupError,
    backup_read,
    backup_restore,
    lost_bookings,
    secrets_differ,
)

LIST = "accepted-after.json"


class Command(BaseCommand):
    """`manage.py restore --from DIR [--replace]` or `--recovered`; stop all programs first.

    Needs a superuser's DATABASE_ADMIN_URL, and DATABASE_URL of `portal_system`.
    """

    help = __doc__ or ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the backup, and whether it may replace a database that is not empty."""
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("--from", dest="folder", type=Path)
        which.add_argument(
            "--recovered",
            action="store_true",
            help="PostgreSQL itself has recovered the database to a point in time",
        )
        parser.add_argument("--replace", action="store_true", help="rename and keep the existing database")
        operator_argument(parser)

    def handle(
        self,
        *_: object,
        folder: Path | None,
        replace: bool,
        operator: str,
        **__: Any,  # noqa: ANN401 (Django's)
    ) -> None:
        """Restores the database and prints the list; exits with 1 if nothing was changed."""
        now = timezone.now()
        lost = [] if folder is None else self._restored(folder, now, replace=replace)
        self._list(folder, lost)
        # After the list: with the new epoch, nodes end bookings that the database does not know.
        epoch = epoch_raise(now, operator_by_name(operator))
        self.stdout.write(
            f"The epoch is {epoch} now: nodes follow this database when the programs run. "
            "Run `manage.py migrate` if this version is newer, then `manage.py invariants`."
        )

    def _restored(self, folder: Path, now: datetime, *, replace: bool) -> list[dict[str, str]]:
        """Restores; returns the bookings of the previous database that are lost."""
        database = str(settings.DATABASES["default"]["NAME"])
        try:
            admin = env_str("DATABASE_ADMIN_URL")
            manifest = backup_read(folder)
            connections.close_all()
            kept = backup_restore(admin, database, folder, replace=replace, now=now)
            lost = lost_bookings(admin, kept, database) if kept else []
        except (BackupError, BadSetting, psycopg.Error, OSError) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"Restored the state of {manifest['made']}, {manifest['lsn']}.")
        if kept:
            self.stdout.write(f"The previous database is kept as {kept}.")
        for name in secrets_differ(manifest):
            self.stdout.write(f"{name} differs from its value when the backup was made.")
        return lost

    def _list(self, folder: Path | None, lost: list[dict[str, str]]) -> None:
        try:
            running = [asdict(each) for each in bookings_lost()]
        except redis.RedisError as error:
            running = []
            self.stderr.write(f"The agents' server did not answer; nodes are not listed: {error}")
        if folder is not None:
            found = {"known_to_nodes": running, "in_the_database_before": lost}
            text = json.dumps(found, indent=1, default=str, ensure_ascii=False)
            (folder / LIST).write_text(text, encoding="utf-8")
        self.stdout.write(
            f"Accepted after that: known to nodes {len(running)}, in the previous database {len(lost)}."
        )
        for each in running:
            self.stdout.write(
                f"  {each['booking']} of {each['tenant']}, {each['owner']}, on {each['node']} "
                f"until {each['ends']:%d %b %H:%M} UTC: {each['fate']}."
            )
        names = {(each["tenant"], each["booking"]) for each in running}
        for row in lost:
            if (row["tenant"], row["booking"]) not in names:
                over = State(row["state"]) in TERMINAL
                fate = "it was over" if over else "no node received it; book it again"
                who = f"{row['tenant']}, {row['owner']}, {row['state']}"
                self.stdout.write(f"  {row['booking']} of {who}: {fate}.")
