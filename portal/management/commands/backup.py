"""Backs up the database with a manifest, or checks a backup by restoring it elsewhere."""

from argparse import ArgumentParser
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from allocation.models import Backup
from portal.env import BadSetting, env_str
from portal.storage.backups import BackupError, backup_check, backup_make
from portal.storage.database import database_dsn


class Command(BaseCommand):
    """`manage.py backup --to DIR` or `--check DIR`; needs a superuser's DATABASE_ADMIN_URL."""

    help = __doc__ or ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the new folder, or the folder to check."""
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("--to", type=Path, help="a folder that does not exist yet")
        which.add_argument("--check", type=Path, help="restore it into a scratch database")

    def handle(self, *_: object, to: Path | None, check: Path | None, **__: Any) -> None:  # noqa: ANN401 (Django's)
        """Prints the size of the backup and the secrets that it does not contain."""
        now = timezone.now()
        try:
            admin = env_str("DATABASE_ADMIN_URL")
            if check is not None:
                manifest = backup_check(admin, check)
                Backup.objects.filter(sha256=manifest["sha256"]).update(checked_at=now)
                self.stdout.write(f"{check} was restored and matches its manifest.")
            elif to is not None:
                name = str(settings.DATABASES["default"]["NAME"])
                self._said(to, backup_make(database_dsn(admin, name), to, now), now)
        except (BackupError, BadSetting, psycopg.Error, OSError) as error:
            raise CommandError(str(error)) from error

    def _said(self, folder: Path, manifest: dict[str, Any], now: datetime) -> None:
        Backup.objects.create(at=now, lsn=manifest["lsn"], size=manifest["size"], sha256=manifest["sha256"])
        self.stdout.write(f"{folder}: {manifest['size']} bytes at {manifest['lsn']}.")
        secrets = ", ".join(manifest["secrets_not_included"])
        self.stdout.write(f"The backup contains no secrets. Keep them elsewhere: {secrets}.")
