"""`manage.py seed_demo` creates a demo site. Idempotent."""

from pathlib import Path

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from portal.demo.site import seed
from portal.env import env_str
from tenants.platform.errors import Refused


class Command(BaseCommand):
    """Fills an empty site with demo data, and adds bookings of the coming week on later days."""

    help = "Creates demo data; DEMO_FILE names the file for passwords and tokens."

    def handle(self, *args: object, **options: object) -> None:
        """Seeds the site; must run as the database's owner."""
        path = Path(env_str("DEMO_FILE", str(settings.BASE_DIR / "var" / "demo.json")))
        try:
            made = seed(now=timezone.now(), path=path, url=settings.PUBLIC_URL)
        except Refused as refused:
            raise CommandError(
                f"The demo data cannot be continued: {refused} It was created on another day or by"
                " another version. `make clean-demo` removes it; then start again."
            ) from refused
        self.stdout.write(f"The demo is ready: {made} new bookings. Passwords are in {path}.")
