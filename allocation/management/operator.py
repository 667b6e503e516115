"""The operator on whose behalf a command acts, for the platform's log."""

from argparse import ArgumentParser

from django.core.management.base import CommandError

from tenants.models import User


def operator_argument(parser: ArgumentParser) -> None:
    """Adds `--operator`, the sign-in name of the operator who runs the command."""
    parser.add_argument("--operator", default="", help="who does it, for the platform's log")


def operator_by_name(username: str) -> User | None:
    """The operator of that name, None without one. Raises CommandError for a name that is none."""
    if not username:
        return None
    found = User.objects.filter(username=username, is_staff=True).first()
    if found is None:
        raise CommandError(f"There is no operator {username!r}.")
    return found
