"""REST of webhooks and of the messages to them: of tenants, and of the platform for operators."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from rest_framework import serializers

from tenants.access import PlatformActor
from tenants.api.endpoints import Endpoint, Endpoints
from tenants.features.webhooks.services import (
    Holder,
    PlatformWebhookTerms,
    ResendTerms,
    WebhookSwitchTerms,
    WebhookTerms,
    deliveries_resend,
    delivery_resend,
    log_of,
    webhook_change,
    webhook_create,
    webhook_delete,
    webhook_enabled_set,
    webhook_one,
    webhook_secret_rotate,
    webhook_test,
    webhooks_of,
)
from tenants.models import Scope, Webhook, WebhookDelivery
from tenants.platform.labels import Labels
from tenants.platform.rest.pagination import PageQuery
from tenants.platform.rest.terms import Slug
from tenants.rules.operator_roles import Area

rest = Endpoints(Scope.PROJECT, in_project=True)
ops = Endpoints(Scope.FLEET, for_operators=True, area=Area.SYSTEM)
SECRET = ("secret",)
BOTH_SIGN = "Make a new secret; for 24 hours messages have the signatures of both"
AGAIN = "Send a message again: now if it waits, else as a new delivery with the same event id"
ALL_AGAIN = "Send failed and dropped messages again, at most 1,000, in their order"
DROPPED = "messages that wait are dropped when it goes off"


class WebhookOut(serializers.Serializer[Any]):
    """A webhook without its secret."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    url = serializers.CharField()
    events = serializers.ListField(child=serializers.CharField())
    labels = Labels()
    project = Slug()
    created = serializers.DateTimeField()
    is_enabled = serializers.SerializerMethodField()
    disabled_at = serializers.DateTimeField(allow_null=True)
    disabled_reason = serializers.CharField(help_text="Empty while it is enabled.")
    last_delivered = serializers.DateTimeField(allow_null=True)
    previous_secret_until = serializers.DateTimeField(
        source="previous_until",
        allow_null=True,
        help_text="Until then messages also have the signature of the previous secret.",
    )

    def get_is_enabled(self, webhook: Webhook) -> bool:
        """Returns whether messages are sent."""
        return webhook.disabled_at is None


class WebhookMade(WebhookOut):
    """A webhook with its secret, which no other answer contains."""

    secret = serializers.CharField(
        allow_null=True,
        help_text="`whsec_…`. Shown once; null when an Idempotency-Key is replayed.",
    )


class AttemptOut(serializers.Serializer[Any]):
    """An attempt to deliver a message."""

    at = serializers.DateTimeField()
    status = serializers.IntegerField(allow_null=True, help_text="Null without an answer.")
    error = serializers.CharField()
    milliseconds = serializers.IntegerField()


class DeliveryOut(serializers.Serializer[Any]):
    """A message to a webhook. `id` is the number in the log, `event` the header `webhook-id`."""

    id = serializers.IntegerField()
    event = serializers.SerializerMethodField()
    type = serializers.CharField()
    state = serializers.ChoiceField(choices=WebhookDelivery.State.values)
    created = serializers.DateTimeField()
    next_attempt = serializers.SerializerMethodField()
    attempts = AttemptOut(many=True)
    settled = serializers.DateTimeField(allow_null=True)

    def get_event(self, delivery: WebhookDelivery) -> str:
        """Returns the id of the event."""
        return f"evt_{delivery.key.hex}"

    def get_next_attempt(self, delivery: WebhookDelivery) -> str | None:
        """Returns when the message is sent next; None once it is settled."""
        return delivery.due.isoformat() if delivery.settled is None else None


class DeliveryQuery(PageQuery):
    """Which deliveries."""

    state = serializers.ChoiceField(choices=WebhookDelivery.State.values, required=False)


class ResentOut(serializers.Serializer[Any]):
    """How many messages were queued again."""

    count = serializers.IntegerField()


def _holder(call: Endpoint) -> Holder:
    return PlatformActor.of(call.user, call.caller.token_id) if call.for_operators else call.actor


def _with_secret(made: tuple[Webhook, str]) -> Webhook:
    webhook, secret = made
    webhook.secret = secret
    return webhook


def _listed(call: Endpoint) -> QuerySet[Webhook]:
    return webhooks_of(_holder(call))


def _created(call: Endpoint, terms: PlatformWebhookTerms) -> Webhook:
    return _with_secret(webhook_create(actor=_holder(call), terms=terms, now=call.now))


def _changed(call: Endpoint, terms: PlatformWebhookTerms, webhook_id: UUID) -> Webhook:
    return webhook_change(actor=_holder(call), webhook_id=webhook_id, terms=terms, now=call.now)


@rest.list("webhooks", "Webhooks", WebhookOut, order=("created", "id"))
def list_webhooks(call: Endpoint) -> QuerySet[Webhook]:
    """Lists webhooks: all for the tenant's admins, those of their projects for leads."""
    return _listed(call)


@ops.list("platform-webhooks", "Webhooks of the platform (operators)", WebhookOut, order=("created", "id"))
def list_platform_webhooks(call: Endpoint) -> QuerySet[Webhook]:
    """Lists the webhooks that belong to no tenant."""
    return _listed(call)


@rest.post(
    "webhooks", "Send events to an address", WebhookMade, terms=WebhookTerms, status=201, secret=SECRET
)
def create_webhook(call: Endpoint, terms: WebhookTerms) -> Webhook:
    """Creates a webhook; the answer shows its secret once."""
    return _created(call, terms)


@ops.post(
    "platform-webhooks",
    "Send events of nodes, GPUs, maintenance, stops and the policy to an address (operators)",
    WebhookMade,
    terms=PlatformWebhookTerms,
    status=201,
    secret=SECRET,
)
def create_platform_webhook(call: Endpoint, terms: PlatformWebhookTerms) -> Webhook:
    """Creates a webhook; the answer shows its secret once."""
    return _created(call, terms)


@rest.get("webhooks/<uuid:webhook_id>", "One webhook", WebhookOut)
@ops.get(
    "platform-webhooks/<uuid:webhook_id>",
    "One webhook of the platform (operators)",
    WebhookOut,
    operation="get_platform_webhook",
)
def get_webhook(call: Endpoint, webhook_id: UUID) -> Webhook:
    """Describes the webhook."""
    return webhook_one(_holder(call), webhook_id)


@rest.put("webhooks/<uuid:webhook_id>", "Change a webhook", WebhookOut, terms=WebhookTerms)
def set_webhook(call: Endpoint, terms: WebhookTerms, webhook_id: UUID) -> Webhook:
    """Changes name, address, events and project."""
    return _changed(call, terms, webhook_id)


@ops.put(
    "platform-webhooks/<uuid:webhook_id>",
    "Change a webhook of the platform (operators)",
    WebhookOut,
    terms=PlatformWebhookTerms,
)
def set_platform_webhook(call: Endpoint, terms: PlatformWebhookTerms, webhook_id: UUID) -> Webhook:
    """Changes name, address and events."""
    return _changed(call, terms, webhook_id)


@rest.delete("webhooks/<uuid:webhook_id>", "Delete a webhook and its log")
@ops.delete(
    "platform-webhooks/<uuid:webhook_id>",
    "Delete a webhook of the platform and its log (operators)",
    operation="delete_platform_webhook",
)
def delete_webhook(call: Endpoint, webhook_id: UUID) -> None:
    """Deletes the webhook."""
    webhook_delete(actor=_holder(call), webhook_id=webhook_id, now=call.now)


@rest.put(
    "webhooks/<uuid:webhook_id>/enabled",
    f"Switch a webhook on or off; {DROPPED}",
    WebhookOut,
    terms=WebhookSwitchTerms,
)
@ops.put(
    "platform-webhooks/<uuid:webhook_id>/enabled",
    f"Switch a webhook of the platform on or off; {DROPPED} (operators)",
    WebhookOut,
    terms=WebhookSwitchTerms,
    operation="set_platform_webhook_enabled",
)
def set_webhook_enabled(call: Endpoint, terms: WebhookSwitchTerms, webhook_id: UUID) -> Webhook:
    """Switches the webhook."""
    actor, is_enabled = _holder(call), terms.is_enabled
    return webhook_enabled_set(actor=actor, webhook_id=webhook_id, is_enabled=is_enabled, now=call.now)


@rest.post("webhooks/<uuid:webhook_id>/secret", BOTH_SIGN, WebhookMade, secret=SECRET)
@ops.post(
    "platform-webhooks/<uuid:webhook_id>/secret",
    f"{BOTH_SIGN} (operators)",
    WebhookMade,
    secret=SECRET,
    operation="rotate_platform_webhook_secret",
)
def rotate_webhook_secret(call: Endpoint, webhook_id: UUID) -> Webhook:
    """Rotates the secret; the answer shows the new one once."""
    return _with_secret(webhook_secret_rotate(actor=_holder(call), webhook_id=webhook_id, now=call.now))


@rest.post("webhooks/<uuid:webhook_id>/test", "Send a test message", DeliveryOut, status=202)
@ops.post(
    "platform-webhooks/<uuid:webhook_id>/test",
    "Send a test message (operators)",
    DeliveryOut,
    status=202,
    operation="test_platform_webhook",
)
def test_webhook(call: Endpoint, webhook_id: UUID) -> WebhookDelivery:
    """Queues a message of type `webhook.test`, which is sent once."""
    return webhook_test(actor=_holder(call), webhook_id=webhook_id, now=call.now)


@rest.list(
    "webhooks/<uuid:webhook_id>/deliveries",
    "Messages to a webhook, the latest first; kept for 30 days",
    DeliveryOut,
    order=("-id",),
    query=DeliveryQuery,
)
@ops.list(
    "platform-webhooks/<uuid:webhook_id>/deliveries",
    "Messages to a webhook of the platform, the latest first; kept for 30 days (operators)",
    DeliveryOut,
    order=("-id",),
    query=DeliveryQuery,
    operation="list_platform_webhook_deliveries",
)
def list_webhook_deliveries(call: Endpoint, webhook_id: UUID) -> QuerySet[WebhookDelivery]:
    """Lists messages with their attempts."""
    return log_of(webhook_one(_holder(call), webhook_id), call.query.get("state", ""))


@rest.post("webhooks/<uuid:webhook_id>/deliveries/<int:delivery_id>/resend", AGAIN, DeliveryOut, status=202)
@ops.post(
    "platform-webhooks/<uuid:webhook_id>/deliveries/<int:delivery_id>/resend",
    f"{AGAIN} (operators)",
    DeliveryOut,
    status=202,
    operation="resend_platform_webhook_delivery",
)
def resend_webhook_delivery(call: Endpoint, webhook_id: UUID, delivery_id: int) -> WebhookDelivery:
    """Queues the message."""
    actor = _holder(call)
    return delivery_resend(actor=actor, webhook_id=webhook_id, delivery_id=delivery_id, now=call.now)


@rest.post("webhooks/<uuid:webhook_id>/resend", ALL_AGAIN, ResentOut, terms=ResendTerms, status=202)
@ops.post(
    "platform-webhooks/<uuid:webhook_id>/resend",
    f"{ALL_AGAIN} (operators)",
    ResentOut,
    terms=ResendTerms,
    status=202,
    operation="resend_platform_webhook_deliveries",
)
def resend_webhook_deliveries(call: Endpoint, terms: ResendTerms, webhook_id: UUID) -> dict[str, int]:
    """Queues new deliveries with the same event ids, except of what was sent again already."""
    actor = _holder(call)
    return {"count": deliveries_resend(actor=actor, webhook_id=webhook_id, terms=terms, now=call.now)}


urlpatterns = [*rest.urls, *ops.urls]
