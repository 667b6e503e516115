"""Prepares a start in one Django process: migrations, demo data, enrolment tokens.

`python -m portal.launch.prepare FOLDER NODE…` writes a one-time token to FOLDER/NODE for each of
these nodes, and for each that is locked out: its agent can't connect before it is enrolled again.
"""

import io
import os
import sys
from pathlib import Path

import django
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader


def main(folder: Path, nodes: list[str]) -> None:
    """Migrates, seeds (both are idempotent) and creates tokens for new nodes."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
    django.setup()
    if _is_of_another_version():
        sys.exit(
            "Another version made this demo's data. `make clean-demo` removes it; then start again."
        )
    call_command("migrate", interactive=False, verbosity=0)
    try:
        call_command("seed_demo")
    except CommandError as error:
        sys.exit(str(error))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for node in {*nodes, *locked_out()}:
        if not (folder / node).exists():
            _token_write(folder / node)


def locked_out() -> list[str]:
    """The nodes whose agent has no account any more."""
    from allocation.models import Node  # noqa: PLC0415 (Django is set up only now)

    return [node.name for node in Node.objects.order_by("name") if node.is_locked_out]


def _is_of_another_version() -> bool:
    """True if the database has run a migration that this version does not have."""
    loader = MigrationLoader(connection)
    return loader.applied_migrations.keys() - loader.disk_migrations.keys() != set()


def _token_write(path: Path) -> None:
    printed = io.StringIO()
    call_command("enrol_token", node=path.name, stdout=printed)
    path.touch(mode=0o600)
    path.write_text(printed.getvalue().strip(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
