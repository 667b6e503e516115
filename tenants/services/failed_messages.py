"""What operators do with messages on which a program failed: list them, try again, or give up."""

from dataclasses import dataclass
from datetime import datetime

from tenants.audit import platform_record
from tenants.models import FailedMessage, User
from tenants.platform.errors import Refused, missing
from tenants.words import refusal_text

# The rows of the page; more would be one fault with many messages.
MOST_SHOWN = 500


@dataclass(frozen=True, slots=True)
class Failed:
    """A failed message as operators see it."""

    id: int
    queue: str
    key: str
    tenant: str | None
    error: str
    tries: int
    first_failed: datetime
    last_failed: datetime
    next_try: datetime | None
    is_parked: bool


def failed_messages() -> list[Failed]:
    """Returns the failed messages that nobody has dismissed, the newest failure first. In
    `operator_tx`."""
    rows = FailedMessage.objects.filter(dismissed=None).select_related("tenant")
    return [_shown(row) for row in rows.order_by("-last_failed", "-id")[:MOST_SHOWN]]


def failed_message_retry(*, operator: User, failed_id: int, now: datetime) -> Failed:
    """Makes the next run of its program try the message again. Raises Refused `not_found` or
    `message_dismissed`."""
    row = _locked(failed_id)
    row.next_try = now
    row.save(update_fields=["next_try"])
    return _recorded(row, operator, "failed_message.retried", now)


def failed_message_dismiss(*, operator: User, failed_id: int, now: datetime) -> Failed:
    """Gives a message up: it is not tried again, and alarms end. Raises Refused `not_found` or
    `message_dismissed`."""
    row = _locked(failed_id)
    row.next_try, row.dismissed = None, now
    row.save(update_fields=["next_try", "dismissed"])
    return _recorded(row, operator, "failed_message.dismissed", now)


def _locked(failed_id: int) -> FailedMessage:
    rows = FailedMessage.objects.select_for_update(of=("self",)).select_related("tenant")
    row = rows.filter(id=failed_id).first()
    if row is None:
        raise missing("failed message")
    if row.dismissed is not None:
        raise Refused("message_dismissed", refusal_text("message_dismissed"), "conflict")
    return row


def _recorded(row: FailedMessage, operator: User, action: str, now: datetime) -> Failed:
    after = {"queue": row.queue, "key": row.key, "error": row.error}
    platform_record(operator.pk, action, ("failed_message", row.id), now, after=after)
    return _shown(row)


def _shown(row: FailedMessage) -> Failed:
    return Failed(
        id=row.id,
        queue=row.queue,
        key=row.key,
        tenant=row.tenant.slug if row.tenant else None,
        error=row.error,
        tries=row.tries,
        first_failed=row.first_failed,
        last_failed=row.last_failed,
        next_try=row.next_try,
        is_parked=row.next_try is None,
    )
