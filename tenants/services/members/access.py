"""Disables people in one tenant, as a directory does when somebody leaves, and enables them again.

Roles stay, and give no access while the person is disabled; what is planned for them is cancelled.
Other tenants of the person are not affected.
"""

from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet

from tenants.access import Actor
from tenants.audit import actor_record
from tenants.models import KnownPerson, Membership, Role, User
from tenants.platform.errors import Refused, missing
from tenants.services.members.people import require_another_admin
from tenants.words import refusal_text


def members_of(actor: Actor) -> QuerySet[User]:
    """Returns the people with a role in the admin's tenant. Raises Refused `not_found`."""
    if not actor.is_tenant_admin:
        raise missing("person")
    held = Membership.objects.filter(tenant_id=actor.tenant_id)
    return User.objects.filter(id__in=held.values("user_id")).select_related("service_account")


@transaction.atomic
def member_enabled_set(*, actor: Actor, username: str, is_enabled: bool, now: datetime) -> User:
    """Disables or enables a person in the admin's tenant, from their next request on.

    Raises:
        Refused: `not_found`, `own_account` or `last_admin`.
    """
    user = members_of(actor).filter(username=username).first()
    if user is None:
        raise missing("person")
    if user.pk == actor.user_id:
        raise Refused("own_account", refusal_text("own_account"))
    rows = KnownPerson.objects.filter(tenant_id=actor.tenant_id, user=user)
    known = rows.select_for_update().get()
    if (known.disabled is None) == is_enabled:
        return user
    if not is_enabled:
        leading = Membership.objects.filter(tenant_id=actor.tenant_id, user=user, role=Role.TENANT_ADMIN)
        for membership in leading:
            require_another_admin(membership)
    rows.update(disabled=None if is_enabled else now)
    action = "member.enabled" if is_enabled else "member.disabled"
    actor_record(actor, action, ("user", user.pk), now, {"username": user.username})
    return user
