"""Queues a mail for each committed message that a person wants one for."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Lower

from allocation.models import Approval, Booking
from allocation.queries.bookings.approvals import approvers_of
from tenants.models import Invitation, Mail, Membership, OutboxMessage, PasswordReset, Role, User

URGENT = frozenset({"booking.pause_noticed", "booking.pause_withdrawn", "booking.no_show_warned"})
KINDS = URGENT | {
    "booking.approved",
    "booking.declined",
    "booking.approval_expired",
    "booking.delayed",
    "booking.paused",
    "booking.resumed",
    "booking.broken_off",
    "booking.leave_by",
    "booking.replaced",
    "booking.refused",
    "booking.expired",
    "booking.failed",
    "booking.no_show",
    "booking.message",
}
APPROVAL = "booking.approval_requested"
BUDGET = "budget.threshold_reached"
INVITATION = "invitation.created"
PASSWORD_RESET = "password.reset"  # noqa: S105 (a kind of mail)
# Mails that are not urgent wait this long, so that related ones are sent as one.
BUNDLING_DELAY = timedelta(minutes=2)
# Limits unwanted mail: an invitation that is renewed, or a password that somebody else asks for.
INVITATION_INTERVAL = timedelta(hours=1)
RESET_INTERVAL = timedelta(minutes=5)
RESETS_PER_RUN = 500


def mails_queue(messages: Iterable[OutboxMessage], now: datetime) -> bool:
    """Queues mails to owners of bookings and to invited people; returns whether one is urgent.

    Call it in the transaction that marks the messages as sent. A repeated message is queued once.
    """
    if not settings.MAIL_ON:
        return False
    messages = list(messages)
    invitations = [message for message in messages if message.kind == INVITATION]
    Mail.objects.bulk_create(_invitation_mails(invitations, now), ignore_conflicts=True)
    Mail.objects.bulk_create(_budget_mails(messages, now), ignore_conflicts=True)
    Mail.objects.bulk_create(_approval_mails(messages, now), ignore_conflicts=True)
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
    """Yields a mail for each account that an invitation is for, or for its address without one."""
    latest = {UUID(message.payload["invitation"]): message for message in messages}
    for invitation, message in latest.items():
        found = Invitation.objects.filter(id=invitation).first()
        earlier = Mail.objects.filter(invitation=invitation, at__gt=now - INVITATION_INTERVAL)
        if found is None or earlier.exclude(message=message.id).exists():
            continue
        for user, address in _invited(found.invitee):
            yield Mail(
                tenant_id=message.tenant_id,
                user=user,
                address=address,
                message=message.id,
                kind=message.kind,
                invitation=invitation,
                at=message.created,
                due=now + BUNDLING_DELAY,
            )


def _budget_mails(messages: Iterable[OutboxMessage], now: datetime) -> Iterator[Mail]:
    """Yields a mail for each lead and admin that a rung of a budget notifies."""
    for message in messages:
        if message.kind != BUDGET:
            continue
        project, audience = message.payload["project"], message.payload["audience"]
        roles = Q()
        if audience != "leads" or project is None:
            roles |= Q(role=Role.TENANT_ADMIN)
        if audience != "admins" and project is not None:
            roles |= Q(role=Role.LEAD, project=project)
        wanting = Membership.objects.filter(
            roles, tenant_id=message.tenant_id, user__is_active=True, user__mails=User.Mails.ALL
        ).exclude(user__email="")
        for user_id in wanting.values_list("user_id", flat=True).distinct():
            yield Mail(
                tenant_id=message.tenant_id,
                user_id=user_id,
                message=message.id,
                kind=BUDGET,
                at=message.created,
                due=now,
            )


def _approval_mails(messages: Iterable[OutboxMessage], now: datetime) -> Iterator[Mail]:
    """Yields a mail for each person who may decide the present step of a request.

    The dates of a series are one request.
    """
    asked = {_booking_id(message): message for message in messages if message.kind == APPROVAL}
    if not asked:
        return
    seen: set[tuple[UUID, datetime]] = set()
    rows = Approval.objects.filter(booking__in=asked, state=Approval.State.OPEN)
    for approval in rows.order_by("booking__number"):
        key = (approval.series_id or approval.id, approval.asked)
        if key in seen:
            continue
        seen.add(key)
        message = asked[approval.booking_id]
        for user_id in approvers_of(approval):
            yield Mail(
                tenant_id=message.tenant_id,
                user_id=user_id,
                message=message.id,
                kind=APPROVAL,
                booking=approval.booking_id,
                at=message.created,
                due=now + BUNDLING_DELAY,
            )


def _invited(invitee: str) -> list[tuple[User | None, str]]:
    """The accounts with this name or address; without any, the address itself."""
    people = User.objects.annotate(name=Lower("username"), address=Lower("email"))
    known = list(people.filter(Q(name=invitee) | Q(address=invitee)))
    if not known:
        return [(None, invitee)] if _is_address(invitee) else []
    return [
        (user, "")
        for user in known
        if user.is_active and user.email and user.mails != User.Mails.NONE
    ]


def _is_address(text: str) -> bool:
    try:
        validate_email(text)
    except ValidationError:
        return False
    return True


@transaction.atomic
def resets_queue(now: datetime) -> int:
    """Queues a mail with a reset link for each account that somebody asked one for.

    Returns how many. An account gets one in five minutes at most.
    """
    asked = list(
        PasswordReset.objects.select_for_update(skip_locked=True).order_by("at", "id")[
            :RESETS_PER_RUN
        ]
    )
    people = User.objects.annotate(name=Lower("username"), address=Lower("email"))
    queued = 0
    for wanted in dict.fromkeys(each.wanted.lower() for each in asked):
        found = people.filter(Q(name=wanted) | Q(address=wanted), is_active=True)
        for user in found.exclude(email=""):
            recent = Mail.objects.filter(
                user=user, kind=PASSWORD_RESET, at__gt=now - RESET_INTERVAL
            )
            if settings.MAIL_ON and not recent.exists():
                Mail.objects.create(user=user, kind=PASSWORD_RESET, at=now, due=now)
                queued += 1
    PasswordReset.objects.filter(id__in=[each.id for each in asked]).delete()
    return queued


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
