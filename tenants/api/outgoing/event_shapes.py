"""Events as programs get them, and the `webhooks` part of the OpenAPI document."""

from typing import Any

from drf_spectacular.plumbing import process_webhooks
from drf_spectacular.utils import OpenApiResponse, OpenApiWebhook, extend_schema
from rest_framework import serializers

from tenants.platform.labels import Labels
from tenants.rules.event_types import EVENT_TYPES, TEST

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
    gpu = serializers.DictField(
        required=False, help_text="For `gpu.…`: id, node, index and health."
    )
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
