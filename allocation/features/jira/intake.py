"""Takes messages of Jira: checks who sent them and when, and keeps each once.

A web process only keeps the message. A worker acts on it, because only system programs may act for
the person whose bookings they are.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from allocation.features.jira.models import JiraConnection, JiraMessage
from allocation.features.jira.rules import BadMessage, Said, is_fresh, message_read, signature_is_right
from allocation.words.refusals import coded_text, refusal_text
from tenants.models import Webhook, set_by_valid_token
from tenants.outbox import task_request
from tenants.platform.errors import Refused, invalid
from tenants.services.outgoing.secrets import webhook_secrets

TASK = "jira.process"


@dataclass(frozen=True, slots=True)
class Sent:
    """A request of Jira: its headers in lower case, its exact body, and the object in it."""

    headers: Mapping[str, str]
    raw: bytes
    data: Mapping[str, Any]


class WrongSignature(Exception):
    """No such connection, no signature, a wrong one, or one that is too old."""


def connection_known(tenant_id: UUID, connection_id: UUID, now: datetime) -> JiraConnection:
    """Returns a connection that is switched on. Raises WrongSignature."""
    rows = JiraConnection.objects.filter(
        set_by_valid_token(now, "receiver__made_with"), tenant_id=tenant_id, id=connection_id
    )
    found = rows.select_related("receiver").first()
    if found is None or found.receiver.disabled_at is not None:
        raise WrongSignature
    return found


def message_take(connection: JiraConnection, sent: Sent, now: datetime) -> tuple[JiraMessage, bool]:
    """Keeps the message and requests its processing; returns it, and whether it is new.

    Raises:
        WrongSignature
        Refused: `bad_message`.
    """
    delivery, is_resent = _delivery(connection.receiver, sent, now)
    try:
        said = message_read(sent.data)
    except BadMessage as fault:
        raise invalid("bad_message", coded_text(fault.text), "issue") from None
    if not is_fresh(said.at, now, is_resent=is_resent):
        raise Refused(
            "old_message",
            refusal_text("old_message", at=f"{said.at:%Y-%m-%dT%H:%M:%SZ}", now=f"{now:%Y-%m-%dT%H:%M:%SZ}"),
            "invalid",
            "timestamp",
        )
    made, is_new = JiraMessage.objects.get_or_create(
        tenant_id=connection.tenant_id,
        connection=connection,
        delivery=delivery,
        defaults={
            "subject": said.subject,
            "at": said.at,
            "received": now,
            "content": content_of(said),
        },
    )
    if is_new:
        task_request(TASK)
    return made, is_new


def content_of(said: Said) -> dict[str, Any]:
    """Returns what was read as JSON values."""
    return {**asdict(said), "at": said.at.isoformat(), "fields": dict(said.fields)}


def said_of(message: JiraMessage) -> Said:
    """Returns what the message says."""
    return Said(**{**message.content, "at": message.at.astimezone(UTC)})


def _delivery(receiver: Webhook, sent: Sent, now: datetime) -> tuple[str, bool]:
    """Returns what is the same when the message is sent again, and whether Jira does that late.

    Jira's own identifier is not signed, so the body stands for it. Raises WrongSignature.
    """
    secrets = webhook_secrets(receiver, now)
    digest = f"sha256:{hashlib.sha256(sent.raw).hexdigest()}"
    if "x-hub-signature" in sent.headers:
        if not signature_is_right(sent.headers["x-hub-signature"], secrets, sent.raw):
            raise WrongSignature
        return digest, True
    scheme, _, token = sent.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not any(
        hmac.compare_digest(token.strip().encode(), each.encode()) for each in secrets
    ):
        raise WrongSignature
    return digest, False
