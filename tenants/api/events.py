"""The events of a tenant, for programs that can't receive webhooks."""

import re
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.access import Actor, access_project
from tenants.api.base import ApiView, list_response
from tenants.api.event_shapes import PublishedEventOut
from tenants.models import PublishedEvent
from tenants.platform.errors import invalid
from tenants.platform.fields import Strict
from tenants.platform.pagination import LIMIT_DEFAULT, LIMIT_MAX
from tenants.platform.schema import described, page
from tenants.queries import event_data
from tenants.rules.event_types import patterns_unknown, types_of

_KEY = re.compile(r"evt_([0-9a-f]{32})")


class EventQuery(Strict):
    """Which events."""

    since = serializers.CharField(
        required=False,
        max_length=40,
        help_text="The id of the last event that you have. Without it: the oldest of 30 days.",
    )
    types = serializers.CharField(
        required=False, max_length=500, help_text="As in a webhook, comma-separated: `booking.*`."
    )
    project = serializers.CharField(required=False, max_length=40)
    limit = serializers.IntegerField(
        required=False, default=LIMIT_DEFAULT, min_value=1, max_value=LIMIT_MAX
    )


class Events(ApiView):
    """Events of the projects that the caller may see."""

    queries = {"GET": EventQuery}

    @described(
        "list_events",
        "Events in order; `next` is the `since` of the next page",
        answer=page(PublishedEventOut),
        query=EventQuery,
    )
    def get(self, request: Request) -> Response:
        """Lists events after `since`."""
        limit = self.query["limit"]
        with self.tx():
            rows = events_seen(self.actor, self.query)
            if since := self.query.get("since"):
                rows = rows.filter(id__gt=event_position(self.actor, since))
            found = list(rows.order_by("id")[: limit + 1])
        items = [event_data(each) for each in found[:limit]]
        return list_response(items, items[-1]["id"] if len(found) > limit else None)


def events_seen(actor: Actor, query: dict[str, Any]) -> QuerySet[PublishedEvent]:
    """Returns the events of the actor's projects that `query` asks for. Raises Refused."""
    rows = PublishedEvent.objects.filter(tenant_id=actor.tenant_id)
    if not actor.is_tenant_admin:
        rows = rows.filter(project__in=list(actor.roles))
    if slug := query.get("project"):
        rows = rows.filter(project=access_project(actor, slug, "project").id)
    if "types" in query:
        patterns = [each.strip() for each in query["types"].split(",")]
        if unknown := patterns_unknown(patterns):
            raise invalid("unknown_event", f"There is no event {unknown[0][:60]!r}.", "types")
        rows = rows.filter(type__in=types_of(patterns))
    return rows


def event_position(actor: Actor, key: str) -> int:
    """Returns the position after which to continue. Raises Refused `unknown_since`."""
    found = None
    if match := _KEY.fullmatch(key):
        rows = PublishedEvent.objects.filter(tenant_id=actor.tenant_id, key=UUID(match[1]))
        found = rows.values_list("id", flat=True).first()
    if found is None:
        raise invalid(
            "unknown_since",
            "There is no such event, or it is older than 30 days. Start again without `since`.",
            "since",
        )
    return found
