"""E-mail addresses that a tenant's provider has verified: for mails of that tenant only."""

from collections.abc import Iterable
from uuid import UUID

from tenants.models import SignOnIdentity

Place = tuple[UUID, int]
"""A tenant and an account."""


def provider_addresses(places: Iterable[Place]) -> dict[Place, str]:
    """The verified addresses at these tenants' providers, in one query.

    They open no invitation and reset no password: a provider speaks for its own tenant.
    """
    wanted = set(places)
    rows = SignOnIdentity.objects.filter(
        tenant_id__in={tenant for tenant, _ in wanted}, user_id__in={user for _, user in wanted}
    )
    found = {(row.tenant_id, row.user_id): row.email for row in rows.exclude(email="")}
    return {place: email for place, email in found.items() if place in wanted}
