"""Writes what a person wants: an entry of the inbox, a mail, chat messages, or nothing."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db.models import Exists, OuterRef, QuerySet

from portal.integrations.notifications.chats import chat_messages
from portal.integrations.notifications.operators import (
    asked_of_operators,
    entry_of,
    mails_to_operators,
)
from portal.integrations.notifications.recipients import Recipient, recipients_of
from tenants.models import (
    ChatMessage,
    KnownPerson,
    Mail,
    Membership,
    Notification,
    NotificationSettings,
    OutboxMessage,
    User,
)
from tenants.outbox import task_request
from tenants.platform.database.compiled import Compiled
from tenants.rules.notifications import (
    TYPE_OF_KIND,
    URGENT,
    MailTimes,
    choice_of,
    mail_due,
)
from tenants.services.outgoing.chat import TASK as CHAT_TASK
from tenants.services.sign_on.addresses import provider_addresses
from tenants.web.frame import zone_of

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


_accounts = Compiled(
    lambda _, keys: User.objects.filter(id__in=keys, is_active=True), keys="bigint"
)
_members = Compiled(_member_rows, keys="bigint")
_settings = Compiled(
    lambda _, keys: NotificationSettings.objects.filter(user_id__in=keys), keys="bigint"
)


def _settings_of(
    recipients: Sequence[Recipient], now: datetime
) -> Mapping[Place, NotificationSettings]:
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
