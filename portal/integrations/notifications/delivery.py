"""Writes what a person wants: an entry of the inbox, a mail, chat messages, or nothing.

Operators get what tenants ask of them, and what budgets of the platform say, by inbox and mail.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings
from django.db.models import Exists, OuterRef, QuerySet

from allocation.features.disputes.services import RAISED
from allocation.services.record.variances import VARIANCE
from portal.integrations.notifications.override_people import ASKED, note_of, operators_of_note
from portal.integrations.notifications.recipients import Recipient, recipients_of
from portal.integrations.notifications.words_of_payloads import BUDGET, words_of
from tenants.features.chat.services import TASK as CHAT_TASK
from tenants.models import (
    ChatChannel,
    ChatMessage,
    KnownPerson,
    Mail,
    Membership,
    Notification,
    NotificationSettings,
    OutboxMessage,
    User,
    set_by_valid_token,
)
from tenants.outbox import task_request
from tenants.platform.database.compiled import Compiled
from tenants.queries import operators_reading
from tenants.rules.notifications import (
    BUNDLING_DELAY,
    TYPE_OF_KIND,
    URGENT,
    MailTimes,
    choice_of,
    mail_due,
)
from tenants.rules.operator_roles import Area
from tenants.services.sign_on.addresses import provider_addresses
from tenants.web.frame import zone_of
from tenants.web.locked_forms import area_of_page

OF_PLATFORM = (BUDGET, VARIANCE)
_channels = Compiled(
    lambda now, keys: ChatChannel.objects.filter(set_by_valid_token(now), tenant_id__in=keys)
)
Place = tuple[UUID, int]
"""A tenant and an account."""


def people_notify(messages: Sequence[OutboxMessage], now: datetime) -> bool:
    """Writes inbox entries and queues mails for the messages; returns whether a mail is urgent.

    Call it in the transaction that marks the messages as sent. A repeated message has no effect.
    """
    found = list(recipients_of([each for each in messages if each.tenant_id], now))
    asked = list(asked_of_operators(messages))
    # One entry for each message: who belongs to the organisation has theirs there.
    members = {(each.user_id, each.message.id) for each in found}
    entries = [each for each in asked if (each.operator.pk, each.message.id) not in members]
    Notification.objects.bulk_create(map(entry_of, entries), ignore_conflicts=True)
    to_operators = list(mails_to_operators(asked, now)) if settings.MAIL_ON else []
    Mail.objects.bulk_create(to_operators, ignore_conflicts=True)
    if not found:
        return bool(to_operators)
    people = _people(found, now)
    chosen = _settings_of(found, now)
    reached = [each for each in found if _place(each) in people]
    Notification.objects.bulk_create(_entries(reached, chosen), ignore_conflicts=True)
    chats = chat_messages(reached, people, chosen, now)
    if ChatMessage.objects.bulk_create(chats, ignore_conflicts=True):
        task_request(CHAT_TASK)
    if not settings.MAIL_ON:
        return False
    mails = list(_mails(reached, people, chosen, now))
    Mail.objects.bulk_create(mails, ignore_conflicts=True)
    return bool(to_operators) or any(mail.due <= now for mail in mails)


def _people(recipients: Sequence[Recipient], now: datetime) -> Mapping[Place, User]:
    """The recipients with an open account that their tenant is open to."""
    ids = {each.user_id for each in recipients}
    accounts = {user.pk: user for user in _accounts(now, ids)}
    wanted = {_place(each) for each in recipients}
    return {
        (tenant_id, user_id): accounts[user_id]
        for tenant_id, user_id in _members(now, ids)
        if (tenant_id, user_id) in wanted and user_id in accounts
    }


def _member_rows(_: datetime, keys: Sequence[int]) -> "QuerySet[Membership, Place]":
    of_the_same = KnownPerson.objects.filter(
        tenant_id=OuterRef("tenant_id"), user_id=OuterRef("user_id"), disabled__isnull=False
    )
    rows = Membership.objects.filter(~Exists(of_the_same), user_id__in=keys)
    return rows.order_by("id").values_list("tenant_id", "user_id")


_accounts = Compiled(lambda _, keys: User.objects.filter(id__in=keys, is_active=True), keys="bigint")
_members = Compiled(_member_rows, keys="bigint")
_settings = Compiled(lambda _, keys: NotificationSettings.objects.filter(user_id__in=keys), keys="bigint")


def _settings_of(recipients: Sequence[Recipient], now: datetime) -> Mapping[Place, NotificationSettings]:
    rows = _settings(now, {each.user_id for each in recipients})
    return {(row.tenant_id, row.user_id): row for row in rows}


def _entries(
    recipients: Sequence[Recipient], chosen: Mapping[Place, NotificationSettings]
) -> Iterator[Notification]:
    for each in recipients:
        settings_of = chosen.get(_place(each))
        stored = settings_of.choices if settings_of else {}
        if not choice_of(stored, TYPE_OF_KIND[each.kind].name).in_app:
            continue
        yield Notification(
            tenant_id=each.message.owner,
            user_id=each.user_id,
            message=each.message.id,
            kind=each.message.kind,
            title=each.title[:160],
            text=each.text[:400],
            path=each.path,
            at=each.message.created,
            until=each.until,
        )


def _mails(
    recipients: Sequence[Recipient],
    people: Mapping[Place, User],
    chosen: Mapping[Place, NotificationSettings],
    now: datetime,
) -> Iterator[Mail]:
    without = [place for place, user in people.items() if not user.email]
    addresses = provider_addresses(without) if without else {}
    for each in recipients:
        user, own = people[_place(each)], chosen.get(_place(each))
        kind = each.message.kind
        if not (user.email or _place(each) in addresses) or user.mails == User.Mails.NONE:
            continue
        if user.mails == User.Mails.URGENT and kind not in URGENT:
            continue
        choice = choice_of(own.choices if own else {}, TYPE_OF_KIND[each.kind].name).mail
        times = MailTimes(own.quiet_from, own.quiet_until, own.daily_at) if own else MailTimes()
        due = mail_due(now, zone_of(user.time_zone), choice, times, can_wait=each.can_wait)
        if due is not None:
            yield Mail(
                tenant_id=each.message.owner,
                user_id=each.user_id,
                message=each.message.id,
                kind=kind,
                booking=each.booking,
                at=each.message.created,
                due=due,
            )


def _place(recipient: Recipient) -> Place:
    return recipient.message.owner, recipient.user_id


def chat_messages(
    recipients: Sequence[Recipient],
    people: Mapping[Place, User],
    chosen: Mapping[Place, NotificationSettings],
    now: datetime,
) -> list[ChatMessage]:
    """Returns the messages, not saved; a channel gets each message once."""
    tenants = {each.message.owner for each in recipients}
    channels = _channels(now, tenants)
    if not channels:
        return []
    own: dict[Place, list[ChatChannel]] = {}
    shared: dict[UUID, list[ChatChannel]] = {}
    for channel in channels:
        if channel.user_id is not None:
            own.setdefault((channel.tenant_id, channel.user_id), []).append(channel)
        elif channel.project_id is not None:
            shared.setdefault(channel.project_id, []).append(channel)
    found = {
        (row.channel_id, row.message): row
        for row in (
            *_own_chats(recipients, own, people, chosen, now),
            *_shared_chats(recipients, shared, now),
        )
    }
    return list(found.values())


def _own_chats(
    recipients: Sequence[Recipient],
    channels: Mapping[Place, Sequence[ChatChannel]],
    people: Mapping[Place, User],
    chosen: Mapping[Place, NotificationSettings],
    now: datetime,
) -> Iterator[ChatMessage]:
    """Yields messages of people, after their quiet hours unless they are urgent."""
    for each in recipients:
        place = each.message.owner, each.user_id
        settings = chosen.get(place)
        stored = settings.choices if settings else {}
        if place not in channels or not choice_of(stored, TYPE_OF_KIND[each.kind].name).chat:
            continue
        times = MailTimes()
        if settings is not None:
            times = MailTimes(settings.quiet_from, settings.quiet_until, settings.daily_at)
        zone = zone_of(people[place].time_zone)
        due = mail_due(now, zone, "now", times, can_wait=each.can_wait) or now
        for channel in channels[place]:
            yield _chat_message(each, channel, due)


def _shared_chats(
    recipients: Sequence[Recipient], channels: Mapping[UUID, Sequence[ChatChannel]], now: datetime
) -> Iterator[ChatMessage]:
    """Yields messages of projects, at once."""
    for each in recipients:
        for channel in channels.get(each.project, ()) if each.project else ():
            if TYPE_OF_KIND[each.kind].name in channel.events:
                yield _chat_message(each, channel, now)


def _chat_message(each: Recipient, channel: ChatChannel, due: datetime) -> ChatMessage:
    return ChatMessage(
        tenant_id=each.message.owner,
        channel=channel,
        message=each.message.id,
        kind=each.message.kind,
        title=each.title[:160],
        text=each.text[:400],
        path=each.path,
        created=each.message.created,
        due=due,
    )


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
    """To those whose roles open the page that the notice leads to."""
    area = area_of_page(urlsplit(path).path) or Area.OVERVIEW
    for operator in operators_reading(area):
        yield Asked(message, operator, title, text, path)
