"""What tenants ask the operators for, and what budgets of the platform say: inbox and mail."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from allocation.services.operate.disputes import RAISED
from allocation.services.record.variances import VARIANCE
from portal.integrations.notifications.override_people import ASKED, note_of, operators_of_note
from portal.integrations.notifications.words_of_payloads import BUDGET, words_of
from tenants.models import Mail, Notification, OutboxMessage, User
from tenants.rules.notifications import BUNDLING_DELAY

OF_PLATFORM = (BUDGET, VARIANCE)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to an operator. `path` is the operators' page on which it is answered."""

    message: OutboxMessage
    operator: User
    title: str
    text: str
    path: str


def asked_of_operators(messages: Sequence[OutboxMessage]) -> Iterator[Asked]:
    """Yields each request for each operator, who need not be a member of the organisation."""
    for message in messages:
        if message.kind == ASKED:
            yield from _overrides(message)
        if message.kind == RAISED:
            yield from _disputes(message)
        if message.payload.get("audience") == "operators":
            said = message.payload
            yield from _to_each(message, said["title"], said["text"], said["path"])
        if message.kind in OF_PLATFORM and message.tenant_id is None:
            yield from _platform(message)


def entry_of(asked: Asked) -> Notification:
    """Returns the unsaved entry of the operator's inbox."""
    return Notification(
        tenant_id=asked.message.tenant_id,
        user_id=asked.operator.pk,
        message=asked.message.id,
        kind=asked.message.kind,
        title=asked.title[:160],
        text=asked.text[:400],
        path=asked.path,
        at=asked.message.created,
    )


def mails_to_operators(found: Iterable[Asked], now: datetime) -> Iterator[Mail]:
    """Yields the mails about them to operators who have an address and want mails."""
    for asked in found:
        if not asked.operator.email or asked.operator.mails == User.Mails.NONE:
            continue
        is_urgent = asked.message.kind == ASKED
        yield Mail(
            # A member of the organisation reads about a dispute by their own settings.
            tenant_id=asked.message.tenant_id if is_urgent else None,
            user_id=asked.operator.pk,
            message=asked.message.id,
            kind=asked.message.kind,
            at=asked.message.created,
            due=now if is_urgent else now + BUNDLING_DELAY,
        )


def _overrides(message: OutboxMessage) -> Iterator[Asked]:
    note = note_of(message)
    if note is None:
        return
    for operator in operators_of_note(message.kind, note.row):
        yield Asked(message, operator, note.title, note.text, "/ops/overrides")


def _disputes(message: OutboxMessage) -> Iterator[Asked]:
    yield from _to_all(message, "/ops/disputes")


def _platform(message: OutboxMessage) -> Iterator[Asked]:
    yield from _to_all(message, f"/ops/budgets/{message.payload['budget']}")


def _to_all(message: OutboxMessage, path: str) -> Iterator[Asked]:
    words = words_of(message.kind, message.payload)
    if words is None:
        return
    yield from _to_each(message, words.headline, " ".join(words.sentences), path)


def _to_each(message: OutboxMessage, title: str, text: str, path: str) -> Iterator[Asked]:
    for operator in User.objects.filter(is_staff=True, is_active=True).order_by("id"):
        yield Asked(message, operator, title, text, path)
