"""Queues a mail for each committed message that a person wants one for."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db.models import Q
from django.db.models.functions import Lower

from allocation.models import Booking
from tenants.models import Invitation, Mail, Membership, OutboxMessage, User

URGENT = frozenset({"booking.pause_noticed", "booking.pause_withdrawn", "booking.no_show_warned"})
KINDS = URGENT | {
    "booking.paused",
    "booking.resumed",
    "booking.broken_off",
    "booking.leave_by",
    "booking.replaced",
    "booking.refused",
    "booking.expired",
    "booking.failed",
    "booking.no_show",
}
INVITATION = "invitation.created"
# Mails that are not urgent wait this long, so that related ones are sent as one.
BUNDLING_DELAY = timedelta(minutes=2)


def mails_queue(messages: Iterable[OutboxMessage], now: datetime) -> bool:
    """Queues mails to owners of bookings and to invited people; returns whether one is urgent.

    Call it in the transaction that marks the messages as sent. A repeated message is queued once.
    """
    if not settings.MAIL_ON:
        return False
    messages = list(messages)
    invitations = [message for message in messages if message.kind == INVITATION]
    Mail.objects.bulk_create(_invitation_mails(invitations, now), ignore_conflicts=True)
    about_bookings = [message for message in messages if message.kind in KINDS]
    if not about_bookings:
        return False
    owners = _owners(about_bookings)
    owed = [
        Mail(
            tenant_id=message.tenant_id,
            user_id=owners[message.id],
            message=message.id,
            kind=message.kind,
            booking=_booking_id(message),
            at=message.created,
            due=now if message.kind in URGENT else now + BUNDLING_DELAY,
        )
        for message in about_bookings
        if message.id in owners
    ]
    Mail.objects.bulk_create(owed, ignore_conflicts=True)
    return any(mail.kind in URGENT for mail in owed)


def _invitation_mails(messages: Iterable[OutboxMessage], now: datetime) -> Iterator[Mail]:
    """Yields a mail for each account that an invitation is for.

    An address without an account gets none, because its owner did not agree to mail from us.
    """
    for message in messages:
        invitation = UUID(message.payload["invitation"])
        typed = Invitation.objects.filter(id=invitation).values_list("invitee", flat=True)
        people = User.objects.annotate(name=Lower("username"), address=Lower("email"))
        wanted = people.filter(Q(name__in=typed) | Q(address__in=typed), is_active=True)
        for user in wanted.exclude(email="").exclude(mails=User.Mails.NONE):
            yield Mail(
                tenant_id=message.tenant_id,
                user=user,
                message=message.id,
                kind=message.kind,
                invitation=invitation,
                at=message.created,
                due=now + BUNDLING_DELAY,
            )


def _owners(messages: Iterable[OutboxMessage]) -> Mapping[int, int]:
    """The owner of each message's booking, if still a member of the tenant and wanting the mail."""
    bookings = {message.id: _booking_id(message) for message in messages}
    rows = Booking.objects.filter(id__in=bookings.values())
    owner = dict(rows.values_list("id", "owner_id"))
    people = User.objects.filter(id__in=owner.values(), is_active=True).exclude(email="")
    wants = dict(people.values_list("id", "mails"))
    inside = set(Membership.objects.filter(user_id__in=wants).values_list("tenant_id", "user_id"))
    return {
        message.id: owner[bookings[message.id]]
        for message in messages
        if bookings[message.id] in owner
        and (message.tenant_id, owner[bookings[message.id]]) in inside
        and _is_wanted(message.kind, wants[owner[bookings[message.id]]])
    }


def _is_wanted(kind: str, setting: str) -> bool:
    return setting == User.Mails.ALL or (setting == User.Mails.URGENT and kind in URGENT)


def _booking_id(message: OutboxMessage) -> UUID:
    return UUID(hex=message.payload["id"].removeprefix("bk_"))
