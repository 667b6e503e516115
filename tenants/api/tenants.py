"""Tenants, for the platform's operators."""

from typing import Any

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.api.base import ApiView, list_response
from tenants.models import User
from tenants.platform.rest.fields import Strict, Text
from tenants.platform.rest.schema import described, page
from tenants.platform.wall import operator_tx
from tenants.queries import tenants_all
from tenants.rules.operator_roles import Area
from tenants.services import NewAdmin, tenant_create_with_admin


class TenantIn(Strict):
    """A new tenant and its first admin: an existing account, or a new one."""

    slug = Text(max_length=40)
    name = Text(max_length=120)
    username = Text(max_length=150, help_text="The admin's sign-in name.")
    admin_name = Text(required=False, max_length=150, default="", help_text="Of a new account.")
    email = Text(required=False, allow_blank=True, max_length=254, default="")


class TenantRow(serializers.Serializer[Any]):
    """An organisation."""

    slug = serializers.CharField()
    name = serializers.CharField()
    is_open = serializers.BooleanField()


class TenantMade(TenantRow):
    """A new one."""

    password = serializers.CharField(
        allow_null=True,
        help_text="Of the account that was made for its admin, shown once; null for one that was"
        " there, and when an Idempotency-Key is replayed.",
    )


class Tenants(ApiView):
    """All tenants."""

    area = Area.PEOPLE

    @described("list_tenants", "Tenants (operators)", answer=page(TenantRow))
    def get(self, request: Request) -> Response:
        """Lists tenants by name."""
        self.require_operator()
        with operator_tx():
            return list_response(TenantRow(tenants_all(), many=True).data)

    @described(
        "create_tenant",
        "Create a tenant and its first admin (operators)",
        answer=TenantMade,
        status=201,
        request=TenantIn,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Creates the tenant; shows the password of a new admin once."""
        sent = self.sent(TenantIn)

        def work() -> Response:
            self.require_operator()
            with operator_tx():
                tenant, password = tenant_create_with_admin(
                    operator=User.objects.get(id=self.actor.user_id),
                    slug=sent["slug"],
                    name=sent["name"],
                    admin=NewAdmin(sent["username"], sent["admin_name"], sent["email"]),
                    now=self.now,
                )
                shown = dict(TenantRow(tenant).data)
            return Response({**shown, "password": password or None}, status=201)

        return self.once(work, secret=("password",))
