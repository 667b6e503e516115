"""The operator who runs a command, for the audit log."""

from argparse import ArgumentParser

from django.core.management.base import CommandError

from tenants.models import User


def operator_argument(parser: ArgumentParser) -> None:
    """Adds `--operator`, the user name of the operator who runs the command."""
    parser.add_argument("--operator", default="", help="your user name, for the audit log")


def operator_by_name(username: str) -> User | None:
    """The operator with this user name, or None if it is empty. Raises CommandError if unknown."""
    if not username:
        return None
    found = User.objects.filter(username=username, is_staff=True).first()
    if found is None:
        raise CommandError(f"There is no operator {username!r}.")
    return found
