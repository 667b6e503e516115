"""What operators can do with the platform's webhooks, and sites on which they can do it."""

from typing import Any

from django.utils import timezone

from tenants.access import PlatformActor
from tenants.features.webhooks.services import (
    WebhookTerms,
    webhook_create,
    webhook_enabled_set,
    webhook_test,
)
from tenants.models import WebhookDelivery
from tests.api.builders import Site
from tests.web.acts import Act

_TERMS = {"name": "Pager", "url": "http://127.0.0.1:9/pager", "events": ["node.*", "gpu.*"]}
_SENT = _TERMS


def with_webhook(site: Site) -> dict[str, Any]:
    terms = WebhookTerms(name="Tickets", url="http://127.0.0.1:9/tickets", events=["*"])
    actor = PlatformActor.of(site.people["operator"])
    made, _ = webhook_create(actor=actor, terms=terms, now=timezone.now())
    return {"webhook_id": str(made.id)}


def switched_off(site: Site) -> dict[str, Any]:
    values = with_webhook(site)
    webhook_enabled_set(
        actor=PlatformActor.of(site.people["operator"]),
        webhook_id=values["webhook_id"],
        is_enabled=False,
        now=timezone.now(),
    )
    return values


def failed(site: Site) -> dict[str, Any]:
    values, now = with_webhook(site), timezone.now()
    actor = PlatformActor.of(site.people["operator"])
    webhook_test(actor=actor, webhook_id=values["webhook_id"], now=now)
    WebhookDelivery.objects.update(type="node.unreachable", state="failed", settled=now)
    return values


def _act(name: str, *rest: Any, **more: Any) -> Act:  # noqa: ANN401 (as those of Act)
    return Act(f"webhook.{name}", "webhook", *rest, **more)


_ONE, _REST = "ops/webhooks/<uuid:webhook_id>", "api/v1/platform-webhooks/<uuid:webhook_id>"
_RESENT = {"since": "2026-01-01T00:00:00Z"}
WEBHOOK_ACTS = {
    "ops/webhooks create": _act("created", _TERMS, has_before=False),
    f"{_ONE} change": _act("changed", _TERMS, with_webhook),
    f"{_ONE} on": _act("enabled", {}, switched_off),
    f"{_ONE} off": _act("disabled", {}, with_webhook),
    f"{_ONE} rotate": _act("rotated", {}, with_webhook),
    f"{_ONE} resend-all": _act("resent", {}, failed, has_before=False),
    f"{_ONE} delete": _act("deleted", {}, with_webhook, has_after=False),
    "post api/v1/platform-webhooks": _act("created", _SENT, has_before=False),
    f"put {_REST}": _act("changed", _SENT, with_webhook),
    f"delete {_REST}": _act("deleted", {}, with_webhook, has_after=False),
    f"put {_REST}/enabled": _act("enabled", {"is_enabled": True}, switched_off),
    f"post {_REST}/secret": _act("rotated", {}, with_webhook),
    f"post {_REST}/resend": _act("resent", _RESENT, failed, has_before=False),
}
# They queue a message, as those of tenants do, and write no entry.
WEBHOOK_MESSAGES = {
    f"{_ONE} test",
    f"{_ONE} resend",
    f"post {_REST}/test",
    f"post {_REST}/deliveries/<int:delivery_id>/resend",
}
