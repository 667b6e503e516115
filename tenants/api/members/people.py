"""People of a tenant, for its admins and their directory."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.access import Actor, require_tenant_admin
from tenants.api.base import ApiView, list_response
from tenants.api.members.me import RoleOut
from tenants.models import KnownPerson, Membership, SignOnIdentity, User
from tenants.platform.rest.fields import Flag, Strict
from tenants.platform.rest.pagination import PageQuery, page_of
from tenants.platform.rest.schema import described, page
from tenants.services.members.access import member_enabled_set, members_of


class PersonOut(serializers.Serializer[Any]):
    """A person with a role in the tenant."""

    username = serializers.CharField()
    name = serializers.CharField()
    is_active = serializers.BooleanField(help_text="Whether the tenant is open to them.")
    is_connected = serializers.BooleanField(help_text="Signed in by the tenant's provider.")
    is_service_account = serializers.BooleanField()
    is_tenant_admin = serializers.BooleanField()
    roles = RoleOut(many=True)


class PersonChange(Strict):
    """Whether the tenant is open to the person."""

    is_active = Flag()


class People(ApiView):
    """The people of the tenant."""

    queries = {"GET": PageQuery}

    @described("list_people", "People of the tenant (admins)", answer=page(PersonOut), query=PageQuery)
    def get(self, request: Request) -> Response:
        """Lists people by sign-in name."""
        with self.tx():
            require_tenant_admin(self.actor)
            users, next_cursor = page_of(
                members_of(self.actor),
                keys=("username",),
                query=self.query,
                scope=f"people:{self.actor.tenant_id}",
            )
            return list_response(_shown(self.actor, users), next_cursor)


class PersonOne(ApiView):
    """One person of the tenant."""

    @described(
        "set_person",
        "Disable a person in the tenant, or enable them again (admins)",
        answer=PersonOut,
        request=PersonChange,
    )
    def put(self, request: Request, username: str) -> Response:
        """Disables or enables the person, from their next request on; idempotent."""
        sent = self.sent(PersonChange)
        with self.tx():
            user = member_enabled_set(
                actor=self.actor, username=username, is_enabled=sent["is_active"], now=self.now
            )
            return Response(_shown(self.actor, [user])[0])


def _shown(actor: Actor, users: list[User]) -> list[dict[str, Any]]:
    ids = [user.pk for user in users]
    place = {"tenant_id": actor.tenant_id, "user_id__in": ids}
    known = KnownPerson.objects.filter(**place, disabled__isnull=False)
    disabled = set(known.values_list("user_id", flat=True))
    connected = set(SignOnIdentity.objects.filter(**place).values_list("user_id", flat=True))
    roles: dict[int, list[dict[str, str]]] = {}
    admins: set[int] = set()
    for each in Membership.objects.filter(**place).select_related("project").order_by("id"):
        if each.project is None:
            admins.add(each.user_id)
        else:
            held = {"project": each.project.slug, "role": each.role}
            roles.setdefault(each.user_id, []).append(held)
    return [
        {
            "username": user.username,
            "name": user.get_full_name(),
            "is_active": user.is_active and user.pk not in disabled,
            "is_connected": user.pk in connected,
            "is_service_account": hasattr(user, "service_account"),
            "is_tenant_admin": user.pk in admins,
            "roles": sorted(roles.get(user.pk, []), key=lambda role: role["project"]),
        }
        for user in users
    ]
