"""Bookings of all tenants, for operators."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.api.bookings.shapes import BookingOut, bookings_data
from allocation.api.operators import OperatorView
from allocation.queries.bookings.booking_list import GROUPS
from allocation.queries.bookings.site_bookings import OPEN_GROUP, SiteFilter, site_bookings
from allocation.words.refusals import refusal_text
from tenants.api.base import list_response
from tenants.platform.errors import invalid
from tenants.platform.rest.fields import Text
from tenants.platform.rest.pagination import PageQuery, page_of
from tenants.platform.rest.schema import described, page
from tenants.rules.operator_roles import Area


class SiteBookingQuery(PageQuery):
    """Filters for the list of all tenants' bookings."""

    tenant = Text(required=False, max_length=40)
    group = serializers.ChoiceField(
        choices=list(GROUPS), default=OPEN_GROUP, help_text="`over` needs a tenant."
    )
    tier = Text(required=False, max_length=40)
    gpu_class = Text(required=False, max_length=40)
    node = Text(required=False, max_length=64)


class SiteBookingOut(serializers.Serializer[Any]):
    """A booking and its tenant."""

    tenant = serializers.CharField()
    booking = BookingOut()


class SiteBookings(OperatorView):
    """Bookings of all tenants."""

    area = Area.BOOKINGS
    queries = {"GET": SiteBookingQuery}

    @described(
        "list_site_bookings",
        "List bookings of all tenants (operators)",
        answer=page(SiteBookingOut),
        query=SiteBookingQuery,
    )
    def get(self, request: Request) -> Response:
        """Returns bookings of all tenants, newest first: those that are not over, by default."""
        asked: dict[str, Any] = self.query
        wanted = SiteFilter(
            **{
                name: asked[name]
                for name in ("tenant", "group", "tier", "gpu_class", "node")
                if name in asked
            }
        )
        if wanted.needs_tenant:
            raise invalid("tenant_needed", refusal_text("tenant_needed"), "tenant")
        with self.operator_tx():
            found, next_cursor = page_of(
                site_bookings(wanted).select_related("campaign"),
                keys=("-submitted", "-id"),
                query=asked,
                scope=f"site-bookings:{self.user.pk}",
            )
            return list_response(
                [
                    {
                        "tenant": each.tenant.slug,
                        "booking": data,
                    }
                    for each, data in zip(found, bookings_data(found, None), strict=True)
                ],
                next_cursor,
            )
