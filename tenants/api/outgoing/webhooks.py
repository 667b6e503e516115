"""Webhooks and their deliveries."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar
from uuid import UUID

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.api.base import ApiView, list_response
from tenants.models import Webhook, WebhookDelivery
from tenants.platform.labels import Labels
from tenants.platform.rest.fields import Instant, Strict, Text
from tenants.platform.rest.pagination import PageQuery, page_of
from tenants.platform.rest.schema import described, page
from tenants.services.outgoing.webhooks import (
    Holder,
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

RESENT_STATES = [WebhookDelivery.State.FAILED.value, WebhookDelivery.State.DROPPED.value]


class WebhookIn(Strict):
    """What a webhook receives, and where."""

    name = Text(max_length=80, required=False, default="Webhook")
    url = serializers.CharField(max_length=500, help_text="`https://…`, port 443 or 8443.")
    events = serializers.ListField(
        child=serializers.CharField(max_length=60),
        min_length=1,
        max_length=40,
        help_text="Names such as `booking.started`, groups such as `booking.*`, or `*`.",
    )
    labels = Labels(
        required=False,
        default=dict,
        help_text="Only events of bookings that have all of these labels.",
    )
    project = serializers.CharField(
        required=False,
        allow_null=True,
        default=None,
        max_length=40,
        help_text="Null: events of all projects, for the tenant's admins only.",
    )


class WebhookOut(serializers.Serializer[Any]):
    """A webhook without its secret."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    url = serializers.CharField()
    events = serializers.ListField(child=serializers.CharField())
    labels = Labels()
    project = serializers.CharField(source="project.slug", default=None, allow_null=True)
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


class WebhookSwitch(Strict):
    """Whether messages are sent."""

    is_enabled = serializers.BooleanField()


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


class WebhookView(ApiView):
    """A view of webhooks of the caller's tenant. That of the platform's differs in these four."""

    form: ClassVar[type[Strict]] = WebhookIn

    @property
    def holder(self) -> Holder:
        """Who acts for the webhooks."""
        return self.actor

    def opened(self) -> AbstractContextManager[None]:
        """Opens a transaction that sees the webhooks."""
        return self.tx()

    def inside(self) -> AbstractContextManager[None]:
        """Lets the transaction of an idempotency key see the webhooks."""
        return nullcontext()


class Webhooks(WebhookView):
    """Webhooks that the caller may change."""

    queries = {"GET": PageQuery}

    @described("list_webhooks", "Webhooks", answer=page(WebhookOut), query=PageQuery)
    def get(self, request: Request) -> Response:
        """Lists webhooks: all for the tenant's admins, those of their projects for leads."""
        with self.opened():
            rows, next_cursor = page_of(
                webhooks_of(self.holder),
                keys=("created", "id"),
                query=self.query,
                scope=f"webhooks:{self.holder.tenant_id}:{self.holder.user_id}",
            )
            return list_response(WebhookOut(rows, many=True).data, next_cursor)

    @described(
        "create_webhook",
        "Send events to an address",
        answer=WebhookMade,
        status=201,
        request=WebhookIn,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Creates a webhook; the answer shows its secret once."""
        terms = WebhookTerms(**self.sent(self.form))

        def work() -> Response:
            with self.inside():
                made = webhook_create(actor=self.holder, terms=terms, now=self.now)
                return Response(_with_secret(*made), status=201)

        return self.once(work, secret=("secret",))


class WebhookOne(WebhookView):
    """One webhook."""

    @described("get_webhook", "One webhook", answer=WebhookOut)
    def get(self, request: Request, webhook_id: UUID) -> Response:
        """Describes the webhook."""
        with self.opened():
            return Response(WebhookOut(webhook_one(self.holder, webhook_id)).data)

    @described("set_webhook", "Change a webhook", answer=WebhookOut, request=WebhookIn)
    def put(self, request: Request, webhook_id: UUID) -> Response:
        """Changes name, address, events and project."""
        terms = WebhookTerms(**self.sent(self.form))
        with self.opened():
            webhook = webhook_change(actor=self.holder, webhook_id=webhook_id, terms=terms, now=self.now)
            return Response(WebhookOut(webhook).data)

    @described("delete_webhook", "Delete a webhook and its log", answer=None, status=204)
    def delete(self, request: Request, webhook_id: UUID) -> Response:
        """Deletes the webhook."""
        with self.opened():
            webhook_delete(actor=self.holder, webhook_id=webhook_id, now=self.now)
        return Response(status=204)


class WebhookEnabled(WebhookView):
    """Whether a webhook sends."""

    @described(
        "set_webhook_enabled",
        "Switch a webhook on or off; messages that wait are dropped when it goes off",
        answer=WebhookOut,
        request=WebhookSwitch,
    )
    def put(self, request: Request, webhook_id: UUID) -> Response:
        """Switches the webhook."""
        sent = self.sent(WebhookSwitch)
        with self.opened():
            webhook = webhook_enabled_set(
                actor=self.holder,
                webhook_id=webhook_id,
                is_enabled=sent["is_enabled"],
                now=self.now,
            )
            return Response(WebhookOut(webhook).data)


class WebhookSecret(WebhookView):
    """The secret that signs messages."""

    @described(
        "act_rotate_webhook_secret",
        "Make a new secret; for 24 hours messages have the signatures of both",
        answer=WebhookMade,
    )
    def post(self, request: Request, webhook_id: UUID) -> HttpResponseBase:
        """Rotates the secret; the answer shows the new one once."""

        def work() -> Response:
            with self.inside():
                made = webhook_secret_rotate(actor=self.holder, webhook_id=webhook_id, now=self.now)
                return Response(_with_secret(*made))

        return self.once(work, secret=("secret",))


class WebhookTest(WebhookView):
    """A test message."""

    @described("act_test_webhook", "Send a test message", answer=DeliveryOut, status=202)
    def post(self, request: Request, webhook_id: UUID) -> HttpResponseBase:
        """Queues a message of type `webhook.test`, which is sent once."""

        def work() -> Response:
            with self.inside():
                made = webhook_test(actor=self.holder, webhook_id=webhook_id, now=self.now)
                return Response(DeliveryOut(made).data, status=202)

        return self.once(work)


class Deliveries(WebhookView):
    """The log of a webhook."""

    queries = {"GET": DeliveryQuery}

    @described(
        "list_webhook_deliveries",
        "Messages to a webhook, the latest first; kept for 30 days",
        answer=page(DeliveryOut),
        query=DeliveryQuery,
    )
    def get(self, request: Request, webhook_id: UUID) -> Response:
        """Lists messages with their attempts."""
        with self.opened():
            webhook = webhook_one(self.holder, webhook_id)
            rows, next_cursor = page_of(
                log_of(webhook, self.query.get("state", "")),
                keys=("-id",),
                query=self.query,
                scope=f"deliveries:{webhook.id}",
            )
            return list_response(DeliveryOut(rows, many=True).data, next_cursor)


class DeliveryResend(WebhookView):
    """A message that is sent again."""

    @described(
        "act_resend_webhook_delivery",
        "Send a message again: now if it waits, else as a new delivery with the same event id",
        answer=DeliveryOut,
        status=202,
    )
    def post(self, request: Request, webhook_id: UUID, delivery_id: int) -> HttpResponseBase:
        """Queues the message."""

        def work() -> Response:
            with self.inside():
                made = delivery_resend(
                    actor=self.holder, webhook_id=webhook_id, delivery_id=delivery_id, now=self.now
                )
                return Response(DeliveryOut(made).data, status=202)

        return self.once(work)


class ResendIn(Strict):
    """Which messages to send again."""

    since = Instant(help_text="Messages that were queued at this time or later.")
    states = serializers.ListField(
        child=serializers.ChoiceField(choices=RESENT_STATES),
        required=False,
        default=RESENT_STATES,
        allow_empty=False,
        help_text="`failed`, `dropped` or both.",
    )


class ResentOut(serializers.Serializer[Any]):
    """How many messages were queued again."""

    count = serializers.IntegerField()


class DeliveriesResend(WebhookView):
    """Many messages that are sent again."""

    @described(
        "act_resend_webhook_deliveries",
        "Send failed and dropped messages again, at most 1,000, in their order",
        answer=ResentOut,
        request=ResendIn,
        status=202,
    )
    def post(self, request: Request, webhook_id: UUID) -> HttpResponseBase:
        """Queues new deliveries with the same event ids, except of what was sent again already."""
        sent = self.sent(ResendIn)

        def work() -> Response:
            with self.inside():
                count = deliveries_resend(actor=self.holder, webhook_id=webhook_id, now=self.now, **sent)
                return Response({"count": count}, status=202)

        return self.once(work)


def _with_secret(webhook: Webhook, secret: str) -> dict[str, Any]:
    return {**WebhookOut(webhook).data, "secret": secret}
