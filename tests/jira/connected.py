"""An organisation that is connected to a Jira on loopback."""

import asyncio
import hashlib
import hmac
import json
from datetime import datetime
from typing import Any

from django.test import Client
from django.utils import timezone

from allocation.features.jira.models import JiraMessage
from allocation.features.jira.process import messages_process
from allocation.features.jira.services import (
    JiraConnectionTerms,
    JiraProjectTerms,
    connection_create,
    project_set,
)
from allocation.models import Booking
from allocation.services.record.history import event_add
from allocation.words.events import event_text
from portal.integrations.relay import outbox_relay
from portal.integrations.webhooks.queue import attempt_settle, deliveries_claim, post
from tenants.models import WebhookDelivery
from tenants.platform.wall import tenant_tx
from tests.api.builders import Site, a_site
from tests.jira.stub import ACCOUNT, TOKEN, Jira, webhook_of
from tests.roles import as_system

DELIVERY = WebhookDelivery.State


TERMS: dict[str, Any] = {
    "key": "GPU",
    "project": "folding",
    "owner": "mara",
    "tier": "standard",
    "act": "book",
    "request": "{customfield_10050}",
    "labels": {"from": "jira"},
    "transitions": {"active": "In Progress", "ended": "Done", "refused": "Rejected"},
}


class Connected:
    """A site whose tenant has a connection to a Jira on loopback."""

    def __init__(self, jira: Jira) -> None:
        self.jira = jira
        self.site: Site = a_site()
        self.admin = self.site.actor("admin")
        flavour = "cloud" if jira.is_cloud else "data_center"
        self.terms = JiraConnectionTerms(
            name="Helix Jira", url=jira.url, flavour=flavour, account=ACCOUNT, token=TOKEN
        )
        with tenant_tx(self.admin.tenant_id):
            self.row, self.secret = connection_create(actor=self.admin, terms=self.terms, now=timezone.now())
        self.map()

    def map(self, **changes: object) -> None:
        sent = {**TERMS, **changes}
        key = sent.pop("key")
        terms = JiraProjectTerms(**sent)
        with tenant_tx(self.admin.tenant_id):
            project_set(actor=self.admin, connection_id=self.row.id, key=key, terms=terms, now=timezone.now())

    def send(self, body: object, tenant: object = None, **headers: str) -> Any:  # noqa: ANN401 (the client's)
        """Posts what Jira posts, with its signature unless `headers` says something else."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        signature = hmac.digest(self.secret.encode(), raw, hashlib.sha256).hex()
        return Client().post(
            f"/api/v1/jira/{tenant or self.site.tenant.id}/{self.row.id}/messages",
            raw,
            content_type="application/json",
            headers=headers or {"X-Hub-Signature": f"sha256={signature}"},
        )

    def issue(self, key: str = "GPU-7", *, ago: float = 0, **fields: object) -> Any:  # noqa: ANN401
        return self.send(webhook_of(key, ms(ago), fields=fields))

    def bookings(self) -> list[Booking]:
        with as_system():
            return list(Booking.objects.order_by("number"))

    def answers(self) -> list[tuple[str, str]]:
        with as_system():
            return list(JiraMessage.objects.order_by("id").values_list("state", "answer"))

    def deliveries(self) -> list[tuple[str, str]]:
        with as_system():
            rows = WebhookDelivery.objects.order_by("id")
            return list(rows.values_list("type", "state"))


def ms(ago: float = 0) -> int:
    return int((timezone.now().timestamp() - ago) * 1000)


def processed() -> int:
    with as_system():
        return messages_process(timezone.now())


def relayed() -> None:
    with as_system():
        outbox_relay(timezone.now())


def sent(now: datetime | None = None) -> list[str]:
    """Makes the calls that are due, one by one; returns `status error` of each."""
    found = []
    with as_system():
        while attempts := deliveries_claim(1, now or timezone.now()):
            answer = asyncio.run(post(attempts[0].message, timezone.now()))
            attempt_settle(attempts[0], answer, now or timezone.now())
            found.append(f"{answer.status} {answer.error}".strip())
    return found


def happened(booking: Booking, kind: str, state: str) -> None:
    """An event of the booking in a state, published."""
    with as_system():
        booking.state = state
        event_add(booking, kind=kind, sentence=event_text("because", because=kind), now=timezone.now())
    relayed()
