"""`manage.py migrate`, which refuses a database that its migrations do not continue."""

from django.core.management import CommandError
from django.core.management.commands.migrate import Command as Migrate

from portal.storage.baseline import baseline_fault, baseline_write


class Command(Migrate):
    """Django's command; it looks first which first migrations made the database."""

    def handle(self, *args: object, **options: object) -> None:
        """Migrates. Raises CommandError, and changes nothing, for a database of other ones."""
        fault = baseline_fault()
        if fault:
            raise CommandError(
                f"This database can't be upgraded by this version: {fault}. An earlier checkout"
                " made it, before migrations were folded. Nothing was changed. Upgrade it"
                " first with the last version before the fold: docs/guides/upgrade.md,"
                " From which versions."
            )
        super().handle(*args, **options)
        if not options.get("plan") and not options.get("check_unapplied"):
            baseline_write()
