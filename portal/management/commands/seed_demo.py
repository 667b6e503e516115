"""`manage.py seed_demo`: a believable site to try the portal with. Safe to run again."""

from pathlib import Path

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from portal.demo.site import seed
from portal.env import env_str
from tenants.platform.errors import Refused


class Command(BaseCommand):
    """Fills an empty site with demo data and tops up the coming week on later days."""

    help = "Demo tenants, people, hardware and bookings; keys go to the file named by DEMO_FILE."

    def handle(self, *args: object, **options: object) -> None:
        """Runs as the database's owner."""
        path = Path(env_str("DEMO_FILE", str(settings.BASE_DIR / "var" / "demo.json")))
        try:
            made = seed(now=timezone.now(), path=path, url=settings.PUBLIC_URL)
        except Refused as refused:
            raise CommandError(
                f"The demo data can't be continued: {refused} It was begun on another day or by"
                " another version. `make clean-demo` removes it; then start again."
            ) from refused
        self.stdout.write(f"The demo is ready: {made} new bookings. Keys are in {path}.")
