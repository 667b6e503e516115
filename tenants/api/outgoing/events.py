"""The events of a tenant, for programs that can't receive webhooks.

Also their form in the `webhooks` part of the OpenAPI document.
"""

import json
import re
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http.response import HttpResponseBase
from drf_spectacular.plumbing import process_webhooks
from drf_spectacular.utils import OpenApiResponse, OpenApiWebhook, extend_schema
from rest_framework import serializers
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request

from tenants.access import Actor, access_project, rights_of
from tenants.api.base import ApiView, list_response
from tenants.models import PublishedEvent
from tenants.platform.deferred import Follow, FollowResponse
from tenants.platform.errors import denied, invalid
from tenants.platform.labels import Labels
from tenants.platform.rest.fields import Strict
from tenants.platform.rest.pagination import LIMIT_DEFAULT, LIMIT_MAX
from tenants.platform.rest.schema import described, page
from tenants.queries import event_data, events_newest
from tenants.rules.event_types import EVENT_TYPES, TEST, patterns_unknown, types_of
from tenants.words import refusal_text

Shape = type[serializers.Serializer[Any]]


class EventBooking(serializers.Serializer[Any]):
    """The booking of an event, with the state that it had then."""

    id = serializers.CharField(help_text="`bk_…`. Unique everywhere.")
    number = serializers.CharField(help_text="`BK-2041`. Unique in the tenant.")
    name = serializers.CharField()
    labels = Labels()
    external_ref = serializers.CharField(help_text="A URL or a ticket's key. Empty without one.")
    project = serializers.CharField()
    owner = serializers.CharField()
    tier = serializers.CharField()
    state = serializers.CharField()
    version = serializers.IntegerField(help_text="Grows with each change of the booking.")


class EventDetails(serializers.Serializer[Any]):
    """What happened, to one of these: a booking, a budget, a dispute, the prices, a node, a GPU,
    maintenance, an outage, a freeze, a stop or the policy."""

    booking = EventBooking(required=False)
    budget = serializers.DictField(
        required=False,
        help_text="For `budget.…`: level, name, period, amount, spent, held, left, and the rung's "
        "measure, percent and action; for `budget.variance` the day, what was spent and expected, "
        "and the parts of the difference.",
    )
    dispute = serializers.DictField(
        required=False, help_text="For `dispute.…`: month, project, booking, note, state, answer."
    )
    price_book = serializers.DictField(
        required=False, help_text="For `price_book.…`: version, valid_from and note."
    )
    node = serializers.DictField(required=False, help_text="For `node.…`: its name.")
    gpu = serializers.DictField(required=False, help_text="For `gpu.…`: id, node, index and health.")
    maintenance = serializers.DictField(
        required=False,
        help_text="For `maintenance.…`: id, where, reason, starts, ends as planned, drain_by, "
        "ended_at by an operator, series and the number of later dates that are planned or "
        "cancelled with it.",
    )
    outage = serializers.DictField(
        required=False, help_text="For `outage.…`: reason, since, until, closed_at and ended_at."
    )
    freeze = serializers.DictField(
        required=False, help_text="For `freeze.…`: reason, since, until, closed_at and ended_at."
    )
    stop = serializers.DictField(
        required=False,
        help_text="For `stop.…`: id, scope, name, reason, since, until and ended_at.",
    )
    policy = serializers.DictField(required=False, help_text="For `policy.…`: the version.")
    message = serializers.CharField(help_text="A sentence for people.")
    detail = serializers.DictField(help_text="More values, such as `starts` or `until`.")


class TestDetails(serializers.Serializer[Any]):
    """The webhook that is tested."""

    webhook = serializers.UUIDField()
    name = serializers.CharField()


def _event(name: str, about: str, **fields: serializers.Field[Any, Any, Any, Any]) -> Shape:
    """Returns a serializer class. As a class body a field named `data` would hide the property."""
    return type(name, (serializers.Serializer,), {"__doc__": about, **fields})


PublishedEventOut = _event(
    "PublishedEventOut",
    "An event: the same in lists, in streams and as the body of webhooks.",
    id=serializers.CharField(help_text="`evt_…`. A message that comes twice has the same."),
    type=serializers.ChoiceField(choices=list(EVENT_TYPES)),
    timestamp=serializers.DateTimeField(),
    data=EventDetails(),
)
TestEventOut = _event(
    "TestEventOut",
    "A test message.",
    id=serializers.CharField(),
    type=serializers.ChoiceField(choices=[TEST]),
    timestamp=serializers.DateTimeField(),
    data=TestDetails(),
)


ANSWERS = {
    "2XX": OpenApiResponse(description="The message was taken."),
    410: OpenApiResponse(description="The webhook is switched off."),
}


def _webhook(name: str, summary: str, body: Shape) -> OpenApiWebhook:
    return OpenApiWebhook(
        name,
        extend_schema(summary=summary, request=body, responses=ANSWERS),
    )


WEBHOOKS = [
    *(_webhook(name, summary, PublishedEventOut) for name, summary in EVENT_TYPES.items()),
    _webhook(TEST, "A test message.", TestEventOut),
]


def webhooks_describe(
    result: dict[str, Any],
    generator: Any,  # noqa: ANN401 (the library's, without types)
    **_: object,
) -> dict[str, Any]:
    """Adds the webhooks to the document. The library's own setting takes no list of them."""
    webhooks = process_webhooks(WEBHOOKS, generator.registry)
    return {**result, "components": generator.registry.build({}), "webhooks": webhooks}


STREAM = "text/event-stream"
_KEY = re.compile(r"evt_([0-9a-f]{32})")


class EventQuery(Strict):
    """Which events."""

    since = serializers.CharField(
        required=False,
        max_length=40,
        help_text="The id of the last event that you have. Without it a list begins 30 days ago.",
    )
    types = serializers.CharField(
        required=False, max_length=500, help_text="As in a webhook, comma-separated: `booking.*`."
    )
    project = serializers.CharField(required=False, max_length=40)
    limit = serializers.IntegerField(required=False, default=LIMIT_DEFAULT, min_value=1, max_value=LIMIT_MAX)


class Events(ApiView):
    """Events of the projects that the caller may see, as a list or as a stream."""

    queries = {"GET": EventQuery}

    def perform_content_negotiation(
        self,
        request: Request,
        force: bool = False,  # noqa: FBT001, FBT002 (the framework's signature)
    ) -> tuple[BaseRenderer, str]:
        """Returns JSON for everything but the stream itself."""
        return JSONRenderer(), JSONRenderer.media_type

    @described(
        "list_events",
        "Events in order; `next` is the `since` of the next page. With `Accept: text/event-stream` "
        "a stream that stays open, from `Last-Event-ID` or `since` on, else from now",
        answer=page(PublishedEventOut),
        query=EventQuery,
    )
    def get(self, request: Request) -> HttpResponseBase:
        """Lists events after `since`, or follows them."""
        if STREAM in request.headers.get("Accept", ""):
            return self._stream(request.headers.get("Last-Event-ID", ""))
        limit = self.query["limit"]
        with self.tx():
            rows = events_seen(self.actor, self.query)
            if since := self.query.get("since"):
                rows = rows.filter(id__gt=event_position(self.actor, since))
            found = list(rows.order_by("id")[: limit + 1])
        items = [event_data(each) for each in found[:limit]]
        return list_response(items, items[-1]["id"] if len(found) > limit else None)

    def _stream(self, last: str) -> FollowResponse:
        if self.caller.is_operator:
            raise denied(refusal_text("events_of_members"))
        actor, credential = self.actor, self.user.credential
        with self.tx():
            rows = events_seen(actor, self.query)
            since = last or self.query.get("since")
            position = event_position(actor, since) if since else events_newest(actor.tenant_id)
            rights = rights_of([credential], self.now)[credential]

        def read(position: int, newest: int) -> tuple[list[bytes], int]:
            found = list(rows.filter(id__gt=position, id__lte=newest).order_by("id")[:LIMIT_MAX])
            after = found[-1].id if len(found) == LIMIT_MAX else newest
            return [_part(event_data(each)) for each in found], after

        response = FollowResponse(iter(()), content_type=STREAM)
        response.follow = Follow(actor.tenant_id, credential, rights, position, read)
        # Compression and proxies would hold events back.
        response["Content-Encoding"] = "identity"
        response["X-Accel-Buffering"] = "no"
        return response


def _part(event: dict[str, Any]) -> bytes:
    """Returns the event in the format of server-sent events."""
    data = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
    return f"id: {event['id']}\nevent: {event['type']}\ndata: {data}\n\n".encode()


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
            raise invalid(
                "unknown_event",
                refusal_text("unknown_event", event=f"{unknown[0][:60]!r}"),
                "types",
            )
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
            refusal_text("unknown_since"),
            "since",
        )
    return found
