"""Prepares a start in one Django process: migrations, demo data, enrolment tokens.

`python -m devtools.demo.prepare FOLDER NODE…` writes a one-time token to FOLDER/NODE for each of
these nodes, and for each that is locked out: its agent can't connect before it is enrolled again.
"""

import io
import os
import sys
from pathlib import Path

import django
from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.utils import timezone

from portal.env import env_str


def main(folder: Path, nodes: list[str]) -> None:
    """Migrates, seeds (both are idempotent) and creates tokens for new nodes."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
    django.setup()
    if _is_of_another_version():
        sys.exit("Another version made this demo's data. `make clean-demo` removes it; then start again.")
    call_command("migrate", interactive=False, verbosity=0)
    _seed()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for node in {*nodes, *locked_out()}:
        if not (folder / node).exists():
            _token_write(folder / node)


def _seed() -> None:
    """Fills an empty site with demo data, and adds bookings of the coming week on later days.

    DEMO_FILE names the file for passwords and tokens.
    """
    # Django is set up only now.
    from devtools.demo.site import seed  # noqa: PLC0415
    from tenants.platform.errors import Refused  # noqa: PLC0415

    path = Path(env_str("DEMO_FILE", str(settings.BASE_DIR / "var" / "demo.json")))
    try:
        seed(now=timezone.now(), path=path, url=settings.PUBLIC_URL)
    except Refused as refused:
        sys.exit(
            f"The demo data cannot be continued: {refused} It was created on another day or by"
            " another version. `make clean-demo` removes it; then start again."
        )


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
