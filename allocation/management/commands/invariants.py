"""Checks all invariants of the database. Exits with an error if one is violated."""

from django.core.management.base import BaseCommand, CommandError

from allocation.services.decide.invariants import invariants_check
from tenants.web.parts import counted


class Command(BaseCommand):
    """`manage.py invariants`, with the system's database role."""

    help = __doc__ or ""

    def handle(self, *_: object, **__: object) -> None:
        """Prints each violation."""
        violations = invariants_check()
        for violation in violations:
            self.stdout.write(f"{violation.promise} {violation.name}: {violation.detail}")
        if violations:
            raise CommandError(f"{counted(len(violations), 'violation')}.")
        self.stdout.write("All invariants hold.")
