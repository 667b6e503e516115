"""Creates the account of a platform operator; prints a generated password once."""

import secrets
from argparse import ArgumentParser
from pathlib import Path

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from tenants.platform.errors import Refused
from tenants.rules.operator_roles import ROLES, SITE
from tenants.services import NewAccount, operator_create


class Command(BaseCommand):
    """`manage.py createoperator --username olaf --name "Olaf Berg"`, as the database's owner."""

    help = __doc__ or ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds name and address. The password is no argument, because `ps` would show it."""
        parser.add_argument("--username", required=True)
        parser.add_argument("--name", required=True)
        parser.add_argument("--email", default="")
        parser.add_argument("--role", default=SITE, choices=[each for each in ROLES if not ROLES[each].names])
        parser.add_argument(
            "--password-file", type=Path, help="file with the password; without it one is generated"
        )

    def handle(
        self,
        *_: object,
        username: str,
        name: str,
        email: str,
        role: str,
        password_file: Path | None,
        **__: object,
    ) -> None:
        """Creates the account and prints where to sign in."""
        given = _read(password_file) if password_file else ""
        password = given or secrets.token_urlsafe(12)
        account = NewAccount(username, name, email, password)
        try:
            operator_create(account=account, now=timezone.now(), role=role)
        except Refused as refusal:
            raise CommandError(f"{refusal.param}: {refusal.sentence}") from None
        self.stdout.write(f"{username} is an operator of this site, with the role {role}.")
        if not given:
            self.stdout.write(f"Password, shown only now: {password}")


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except OSError as error:
        raise CommandError(f"{path} can't be read: {error.strerror}.") from None
