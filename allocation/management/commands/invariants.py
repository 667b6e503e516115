"""Asks the whole database whether every promise holds; exits with an error when one does not."""

from django.core.management.base import BaseCommand, CommandError

from allocation.services.decide.invariants import invariants_check


class Command(BaseCommand):
    """`manage.py invariants`, for the system's database role."""

    help = __doc__ or ""

    def handle(self, *_: object, **__: object) -> None:
        """Names what is broken."""
        violations = invariants_check()
        for violation in violations:
            self.stdout.write(f"{violation.promise} {violation.name}: {violation.detail}")
        if violations:
            raise CommandError(f"{len(violations)} violations.")
        self.stdout.write("All promises hold.")
