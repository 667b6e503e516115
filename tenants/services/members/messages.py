"""Messages to people that carry their own words: an inbox entry, a mail and a chat message each."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from tenants.outbox import outbox_add

Audience = Literal["members", "admins", "people", "operators"]


@dataclass(frozen=True, slots=True)
class PeopleMessage:
    """A message and its audience. `people` are ids of accounts, for the audience of that name;
    `path` is the page that it is about, below the tenant's, or a whole path for operators."""

    kind: str
    title: str
    text: str
    path: str
    audience: Audience
    people: Collection[int] = ()
    until: datetime | None = None


def people_message_put(tenant_id: UUID | None, message: PeopleMessage, now: datetime) -> None:
    """Adds the message to the outbox, in the caller's transaction. One to operators has no
    tenant."""
    outbox_add(
        tenant_id=tenant_id,
        kind=message.kind,
        payload={
            "title": message.title,
            "text": message.text,
            "path": message.path,
            "audience": message.audience,
            "people": sorted(message.people),
            "until": message.until.isoformat() if message.until else None,
        },
        now=now,
    )
