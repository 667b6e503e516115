"""REST of calendars."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from rest_framework import serializers

from allocation.features.calendars.models import CalendarFeed
from allocation.features.calendars.services import CalendarTerms, feed_make, feed_revoke, feeds_of
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.models import Scope
from tenants.platform.rest.terms import Slug

# Its address is read by anybody, for as long as the person has access: no token of one project makes it.
rest = Endpoints(Scope.ADMIN)


class CalendarOut(serializers.Serializer[Any]):
    """A calendar of your bookings, of a project or of a class."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    project = Slug(help_text="Of this project; null: of a class, or yours.")
    gpu_class = Slug(help_text="Of your projects on this class, with its maintenance.")
    created = serializers.DateTimeField()
    revoked = serializers.DateTimeField(allow_null=True)


class NewCalendarOut(CalendarOut):
    """A new calendar with its address, which is shown once: null in a replay."""

    address = serializers.CharField(allow_null=True)


@rest.list("calendars", "List calendars", CalendarOut, order=("created", "id"))
def list_calendars(call: ApiView) -> QuerySet[CalendarFeed]:
    """Returns yours that are in force."""
    return feeds_of(call.actor, call.now)


@rest.post(
    "calendars", "Create a calendar", NewCalendarOut, terms=CalendarTerms, status=201, secret=("address",)
)
def create_calendar(call: ApiView, terms: CalendarTerms) -> CalendarFeed:
    """Anybody who has its address reads what you may see, until you revoke it or the token
    that makes it ends."""
    return feed_make(actor=call.actor, terms=terms, now=call.now)


@rest.post("calendars/<uuid:calendar_id>/revoke", "Revoke a calendar", CalendarOut)
def revoke_calendar(call: ApiView, calendar_id: UUID) -> CalendarFeed:
    """Its address no longer works."""
    return feed_revoke(actor=call.actor, calendar_id=calendar_id, now=call.now)


urlpatterns = rest.urls
