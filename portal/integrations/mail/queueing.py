"""Queues the mails that belong to no membership: invitations and reset links."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Lower

from tenants.failures import FailureLog
from tenants.models import Invitation, Mail, OutboxMessage, PasswordReset, User
from tenants.rules.notifications import BUNDLING_DELAY

INVITATION = "invitation.created"
PASSWORD_RESET = "password.reset"  # noqa: S105 (a kind of mail)
# Limits unwanted mail: an invitation that is renewed, or a password that somebody else asks for.
INVITATION_INTERVAL = timedelta(hours=1)
RESET_INTERVAL = timedelta(minutes=5)
RESETS_PER_RUN = 500
RESETS = "password resets"


def invitations_queue(messages: Iterable[OutboxMessage], now: datetime) -> None:
    """Queues mails to invited people, in the transaction that marks the messages as sent."""
    if not settings.MAIL_ON:
        return
    invitations = [message for message in messages if message.kind == INVITATION]
    Mail.objects.bulk_create(_invitation_mails(invitations, now), ignore_conflicts=True)


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


def _invited(invitee: str) -> list[tuple[User | None, str]]:
    """The accounts with this name or address; without any, the address itself."""
    people = User.objects.annotate(name=Lower("username"), address=Lower("email"))
    known = list(people.filter(Q(name=invitee) | Q(address=invitee)))
    if not known:
        return [(None, invitee)] if _is_address(invitee) else []
    return [(user, "") for user in known if user.is_active and user.email and user.mails != User.Mails.NONE]


def _is_address(text: str) -> bool:
    try:
        validate_email(text)
    except ValidationError:
        return False
    return True


def resets_queue(now: datetime) -> int:
    """Queues a mail with a reset link for each account that somebody asked one for.

    Returns how many. An account gets one in five minutes at most. A request that fails is set
    apart.
    """
    failures = FailureLog(RESETS, now)
    rows = PasswordReset.objects.exclude(id__in=failures.held_back())
    queued: list[int] = []
    for key in list(rows.order_by("at", "id").values_list("id", flat=True)[:RESETS_PER_RUN]):
        failures.handle(key, partial(_reset_queue, key, queued, now))
    return sum(queued)


@transaction.atomic
def _reset_queue(key: UUID, queued: list[int], now: datetime) -> None:
    """Queues the mails of a request, unless another worker does, and adds how many."""
    asked = PasswordReset.objects.select_for_update(skip_locked=True).filter(id=key).first()
    if asked is None:
        return
    people = User.objects.annotate(name=Lower("username"), address=Lower("email"))
    wanted = asked.wanted.lower()
    found = people.filter(Q(name=wanted) | Q(address=wanted), is_active=True)
    for user in found.exclude(email=""):
        recent = Mail.objects.filter(user=user, kind=PASSWORD_RESET, at__gt=now - RESET_INTERVAL)
        if settings.MAIL_ON and not recent.exists():
            Mail.objects.create(user=user, kind=PASSWORD_RESET, at=now, due=now)
            queued.append(1)
    asked.delete()
