"""Webhooks of the platform and their deliveries, for operators: as those of tenants."""

from contextlib import AbstractContextManager
from uuid import UUID

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.api.outgoing.webhooks import (
    Deliveries,
    DeliveriesResend,
    DeliveryOut,
    DeliveryQuery,
    DeliveryResend,
    ResendIn,
    ResentOut,
    WebhookEnabled,
    WebhookMade,
    WebhookOne,
    WebhookOut,
    Webhooks,
    WebhookSecret,
    WebhookSwitch,
    WebhookTest,
    WebhookView,
)
from tenants.platform.rest.fields import Strict, Text
from tenants.platform.rest.pagination import PageQuery
from tenants.platform.rest.schema import described, page
from tenants.platform.wall import operator_tx
from tenants.services.outgoing.webhooks import Holder, platform_actor


class PlatformWebhookIn(Strict):
    """What a webhook of the platform receives, and where."""

    name = Text(max_length=80, required=False, default="Webhook")
    url = serializers.CharField(max_length=500, help_text="`https://…`, port 443 or 8443.")
    events = serializers.ListField(
        child=serializers.CharField(max_length=60),
        min_length=1,
        max_length=40,
        help_text="Names such as `node.unreachable`, groups such as `maintenance.*`, or `*`.",
    )


class PlatformView(WebhookView):
    """A view of the platform's webhooks."""

    form = PlatformWebhookIn

    @property
    def holder(self) -> Holder:
        """The operator. Raises Refused `not_allowed` for other callers."""
        self.require_operator()
        return platform_actor(self.user, self.caller.token_id)

    def opened(self) -> AbstractContextManager[None]:
        """Opens a transaction of an operator."""
        self.require_operator()
        return operator_tx()

    def inside(self) -> AbstractContextManager[None]:
        """Makes the transaction that of an operator."""
        return self.opened()


class PlatformWebhooks(PlatformView, Webhooks):
    """Webhooks of the platform."""

    @described(
        "list_platform_webhooks",
        "Webhooks of the platform (operators)",
        answer=page(WebhookOut),
        query=PageQuery,
    )
    def get(self, request: Request) -> Response:
        """Lists the webhooks that belong to no tenant."""
        return super().get(request)

    @described(
        "create_platform_webhook",
        "Send events of nodes, GPUs, maintenance, stops and the policy to an address (operators)",
        answer=WebhookMade,
        status=201,
        request=PlatformWebhookIn,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Creates a webhook; the answer shows its secret once."""
        self.require_operator()
        return super().post(request)


class PlatformWebhookOne(PlatformView, WebhookOne):
    """One webhook."""

    @described("get_platform_webhook", "One webhook of the platform (operators)", answer=WebhookOut)
    def get(self, request: Request, webhook_id: UUID) -> Response:
        """Describes the webhook."""
        return super().get(request, webhook_id)

    @described(
        "set_platform_webhook",
        "Change a webhook of the platform (operators)",
        answer=WebhookOut,
        request=PlatformWebhookIn,
    )
    def put(self, request: Request, webhook_id: UUID) -> Response:
        """Changes name, address and events."""
        self.require_operator()
        return super().put(request, webhook_id)

    @described(
        "delete_platform_webhook",
        "Delete a webhook of the platform and its log (operators)",
        answer=None,
        status=204,
    )
    def delete(self, request: Request, webhook_id: UUID) -> Response:
        """Deletes the webhook."""
        self.require_operator()
        return super().delete(request, webhook_id)


class PlatformWebhookEnabled(PlatformView, WebhookEnabled):
    """Whether a webhook sends."""

    @described(
        "set_platform_webhook_enabled",
        "Switch a webhook of the platform on or off; messages that wait are dropped when it goes "
        "off (operators)",
        answer=WebhookOut,
        request=WebhookSwitch,
    )
    def put(self, request: Request, webhook_id: UUID) -> Response:
        """Switches the webhook."""
        self.require_operator()
        return super().put(request, webhook_id)


class PlatformWebhookSecret(PlatformView, WebhookSecret):
    """The secret that signs messages."""

    @described(
        "act_rotate_platform_webhook_secret",
        "Make a new secret; for 24 hours messages have the signatures of both (operators)",
        answer=WebhookMade,
    )
    def post(self, request: Request, webhook_id: UUID) -> HttpResponseBase:
        """Rotates the secret; the answer shows the new one once."""
        self.require_operator()
        return super().post(request, webhook_id)


class PlatformWebhookTest(PlatformView, WebhookTest):
    """A test message."""

    @described(
        "act_test_platform_webhook",
        "Send a test message (operators)",
        answer=DeliveryOut,
        status=202,
    )
    def post(self, request: Request, webhook_id: UUID) -> HttpResponseBase:
        """Queues a message of type `webhook.test`, which is sent once."""
        self.require_operator()
        return super().post(request, webhook_id)


class PlatformDeliveries(PlatformView, Deliveries):
    """The log of a webhook."""

    @described(
        "list_platform_webhook_deliveries",
        "Messages to a webhook of the platform, the latest first; kept for 30 days (operators)",
        answer=page(DeliveryOut),
        query=DeliveryQuery,
    )
    def get(self, request: Request, webhook_id: UUID) -> Response:
        """Lists messages with their attempts."""
        return super().get(request, webhook_id)


class PlatformDeliveryResend(PlatformView, DeliveryResend):
    """A message that is sent again."""

    @described(
        "act_resend_platform_webhook_delivery",
        "Send a message again: now if it waits, else as a new delivery with the same event id (operators)",
        answer=DeliveryOut,
        status=202,
    )
    def post(self, request: Request, webhook_id: UUID, delivery_id: int) -> HttpResponseBase:
        """Queues the message."""
        self.require_operator()
        return super().post(request, webhook_id, delivery_id)


class PlatformDeliveriesResend(PlatformView, DeliveriesResend):
    """Many messages that are sent again."""

    @described(
        "act_resend_platform_webhook_deliveries",
        "Send failed and dropped messages again, at most 1,000, in their order (operators)",
        answer=ResentOut,
        request=ResendIn,
        status=202,
    )
    def post(self, request: Request, webhook_id: UUID) -> HttpResponseBase:
        """Queues new deliveries with the same event ids, except of what was sent again already."""
        self.require_operator()
        return super().post(request, webhook_id)
