"""The caller's own data."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.queries.bookings.personal_data import account_data, tenant_data
from tenants.api.base import ApiView
from tenants.models import Tenant
from tenants.platform.costly import costly
from tenants.platform.rest.schema import described


class PersonalDataOut(serializers.Serializer[Any]):
    """The account, and what it has in the token's tenant."""

    account = serializers.JSONField()
    tenants = serializers.ListField(child=serializers.JSONField())


@costly("export")
class PersonalData(ApiView):
    """The caller's own data."""

    @described("get_personal_data", "Download your own data", answer=PersonalDataOut)
    def get(self, request: Request) -> Response:
        """Returns what is stored about the caller: account, roles, bookings, tokens and acts."""
        with self.tx():
            tenant = Tenant.objects.get(id=self.actor.tenant_id)
            found = {
                "account": account_data(self.user, self.now),
                "tenants": [tenant_data(self.user, tenant)],
            }
        return Response(PersonalDataOut(found).data)
