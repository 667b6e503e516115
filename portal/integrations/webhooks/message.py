"""The signed message of a delivery, by Standard Webhooks 1.0."""

import json
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from standardwebhooks import Webhook as Signer

from portal.integrations.jira.call import JiraCall
from tenants.models import Webhook, WebhookDelivery
from tenants.queries import event_data
from tenants.services.credentials.seals import token_open
from tenants.services.outgoing.secrets import webhook_secrets


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent: the URL, the body, and the secrets that sign it, the newest first.

    For a tracker the call is made instead.
    """

    delivery: int
    webhook: UUID
    url: str
    key: str
    body: str
    secrets: tuple[str, ...]
    call: JiraCall | None = None

    def headers(self, now: datetime) -> dict[str, str]:
        """Returns the headers of an attempt at `now`; each secret adds a signature."""
        signatures = (Signer(each).sign(self.key, now, self.body) for each in self.secrets)
        return {
            "Content-Type": "application/json",
            "User-Agent": "gpu-portal-webhooks/1",
            "webhook-id": self.key,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": " ".join(signatures),
        }


def message_of(delivery: WebhookDelivery, now: datetime) -> Message:
    """Returns the message; its body is the same in every attempt."""
    webhook = delivery.webhook
    content = (
        event_data(delivery.event)
        if delivery.event is not None
        else {
            "id": f"evt_{delivery.key.hex}",
            "type": delivery.type,
            "timestamp": delivery.created.isoformat(),
            "data": {"webhook": str(webhook.id), "name": webhook.name},
        }
    )
    return Message(
        delivery=delivery.id,
        webhook=webhook.id,
        url=webhook.url,
        key=f"evt_{delivery.key.hex}",
        body=json.dumps(content, ensure_ascii=False, separators=(",", ":"), sort_keys=True),
        secrets=webhook_secrets(webhook, now),
        call=_jira_call(delivery) if webhook.kind == Webhook.Kind.JIRA else None,
    )


def _jira_call(delivery: WebhookDelivery) -> JiraCall:
    connection = delivery.webhook.jira
    return JiraCall(
        base=delivery.webhook.url,
        flavour=connection.flavour,
        account=connection.account,
        token=token_open(connection.tenant_id, connection.sealed_token),
        key=delivery.key.hex,
        content=delivery.content or {},
        is_repeated=delivery.tries > 1,
    )
