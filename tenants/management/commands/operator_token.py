"""Prints an API token of an operator for a tenant, without a membership there."""

from argparse import ArgumentParser

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from tenants.access import Actor
from tenants.models import Tenant, User
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tenants.services import token_create


class Command(BaseCommand):
    """`manage.py operator_token --username olaf --tenant helix`, as the database's owner."""

    help = __doc__ or ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the operator, the tenant, and the lifetime."""
        parser.add_argument("--username", required=True)
        parser.add_argument("--tenant", required=True)
        parser.add_argument("--days", type=int, default=90)

    def handle(self, *_: object, username: str, tenant: str, days: int, **__: object) -> None:
        """Creates the token and prints it."""
        user = User.objects.filter(username=username, is_staff=True, is_active=True).first()
        found = Tenant.objects.filter(slug=tenant).first()
        if user is None or found is None:
            raise CommandError(
                f"{username} is no operator." if user is None else f"There is no tenant {tenant}."
            )
        actor = Actor(
            user_id=user.id,
            name=user.get_full_name(),
            tenant_id=found.id,
            tenant_slug=found.slug,
            is_tenant_admin=False,
            roles={},
        )
        try:
            with tenant_tx(found.id):
                made = token_create(actor=actor, name="Operator", days=days, now=timezone.now())
        except Refused as refusal:
            raise CommandError(refusal.sentence) from None
        self.stdout.write(made[1])
