"""Commands that an operator runs, and who the operator is, for the audit log."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from tenants.models import User
from tenants.platform.errors import Refused


class OperatorCommand(BaseCommand):
    """A command that turns a refusal into an error message."""

    def execute(self, *args: Any, **options: Any) -> str | None:  # noqa: ANN401 (the framework's signature)
        """Runs the command. Raises CommandError for a refusal."""
        try:
            return super().execute(*args, **options)
        except Refused as error:
            raise CommandError(str(error)) from error


def operator_argument(parser: ArgumentParser) -> None:
    """Adds `--operator`, the user name of the operator who runs the command."""
    parser.add_argument("--operator", default="", help="your user name, for the audit log")


def operator_by_name(username: str) -> User | None:
    """The operator with this user name, or None if it is empty. Raises CommandError if unknown."""
    return operator_required(username) if username else None


def operator_required(username: str) -> User:
    """The operator with this user name. Raises CommandError if there is none."""
    found = User.objects.filter(username=username, is_staff=True).first()
    if found is None:
        raise CommandError(f"--operator must be the user name of an operator, not {username!r}.")
    return found
