"""Access of operators to a tenant's data, over REST. The pages are read in a browser only."""

from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.api.base import ApiView, list_response
from tenants.models import OperatorAccess
from tenants.platform.rest.fields import Duration, Strict, Text
from tenants.platform.rest.pagination import PageQuery, page_of
from tenants.platform.rest.schema import described, page
from tenants.platform.wall import operator_tx
from tenants.rules.operator_roles import Area
from tenants.services.members.operator_access import AccessTerms, access_begin, access_end


class AccessIn(Strict):
    """Whose data, why, and for how long."""

    tenant = serializers.CharField(max_length=40)
    person = Text(
        required=False,
        allow_blank=True,
        default="",
        max_length=150,
        help_text="Sign-in name of the member whose pages are shown; empty: an admin's.",
    )
    reason = Text(max_length=200, help_text="The tenant's admins read it.")
    length = Duration(help_text="At most four hours.")


class AccessOut(serializers.Serializer[Any]):
    """An access."""

    id = serializers.UUIDField()
    tenant = serializers.CharField(source="tenant.slug")
    operator = serializers.CharField(source="operator.username")
    person = serializers.CharField(source="person.username", default=None, allow_null=True)
    reason = serializers.CharField()
    opened = serializers.DateTimeField()
    until = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)


class OperatorAccesses(ApiView):
    """Accesses of operators."""

    area = Area.ACCESS
    queries = {"GET": PageQuery}

    @described(
        "list_operator_accesses",
        "List the accesses to tenants' data (operators)",
        answer=page(AccessOut),
        query=PageQuery,
    )
    def get(self, request: Request) -> Response:
        """Returns them, the latest first. Members read those to their tenant in its log."""
        self.require_operator()
        with operator_tx():
            rows, next_cursor = page_of(
                OperatorAccess.objects.select_related("tenant", "operator", "person"),
                keys=("-opened", "-id"),
                query=self.query,
                scope="operator-access",
            )
            return list_response(AccessOut(rows, many=True).data, next_cursor)

    @described(
        "act_open_operator_access",
        "Open a tenant's data for a while (operators)",
        answer=AccessOut,
        request=AccessIn,
        status=201,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Shows the pages of a tenant to the operator, without any change. Its admins are notified.
        An open access of the operator to the tenant ends."""
        terms = AccessTerms(**self.sent(AccessIn))

        def work() -> Response:
            self.require_operator()
            with operator_tx():
                made = access_begin(operator=self.user, terms=terms, now=self.now)
                return Response(AccessOut(made).data, status=201)

        return self.once(work)


class OperatorAccessEnd(ApiView):
    """Ends an access."""

    area = Area.ACCESS

    @described("act_end_operator_access", "End an access to a tenant's data (operators)", answer=AccessOut)
    def post(self, request: Request, access_id: UUID) -> HttpResponseBase:
        """Ends it now."""

        def work() -> Response:
            self.require_operator()
            with operator_tx():
                found = access_end(operator=self.user, access_id=access_id, now=self.now)
                return Response(AccessOut(found).data)

        return self.once(work)
