"""A person's inbox: marks entries as read, and stores how the person wants to be notified."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from uuid import UUID

from django.core import signing
from django.db import transaction
from django.db.models import QuerySet

from tenants.access import Actor
from tenants.audit import actor_record, audit_record
from tenants.models import Notification, NotificationSettings, User
from tenants.platform.errors import Refused, invalid, missing
from tenants.platform.wall import tenant_tx
from tenants.queries import (
    notification_settings_of,
    notifications_of,
    operator_notifications,
)
from tenants.rules.notifications import MAIL_CHOICES, TYPES, Choice, choice_of
from tenants.words import refusal_text

RETENTION = timedelta(days=90)
_STOP = "notifications.stop"
_CLOCK = re.compile(r"([01]\d|2[0-3]):[0-5]\d", re.ASCII)


@dataclass(frozen=True, slots=True)
class NotificationTerms:
    """The choices per type, the quiet hours and the time of the daily mail."""

    choices: Mapping[str, Choice]
    quiet_from: time | None
    quiet_until: time | None
    daily_at: time


def notification_mark(*, actor: Actor, notification_id: UUID, is_read: bool, now: datetime) -> Notification:
    """Marks one entry as read or unread; idempotent. Raises Refused `not_found`."""
    own = notifications_of(actor.tenant_id, actor.user_id)
    return _mark(own, notification_id, now if is_read else None)


def notifications_mark_read(*, actor: Actor, now: datetime, only: Collection[UUID] | None = None) -> int:
    """Marks the given entries as read, or all; returns how many were unread.

    Raises:
        Refused: `not_found`, when one of them is not the actor's.
    """
    return _mark_read(notifications_of(actor.tenant_id, actor.user_id), now, only)


def operator_notification_mark(
    *, operator: User, notification_id: UUID, is_read: bool, now: datetime
) -> Notification:
    """The same for an entry of an operator; in `operator_tx`. Raises Refused `not_found`."""
    own = operator_notifications(operator.pk)
    return _mark(own, notification_id, now if is_read else None)


def operator_notifications_mark_read(
    *, operator: User, now: datetime, only: Collection[UUID] | None = None
) -> int:
    """Marks the given entries of an operator as read, or all; returns how many were unread. In
    `operator_tx`.

    Raises:
        Refused: `not_found`, when one of them is not the operator's.
    """
    return _mark_read(operator_notifications(operator.pk), now, only)


def _mark(own: QuerySet[Notification], notification_id: UUID, read: datetime | None) -> Notification:
    own.filter(id=notification_id, read__isnull=read is not None).update(read=read)
    found = own.filter(id=notification_id).first()
    if found is None:
        raise missing("notification")
    return found


def _mark_read(own: QuerySet[Notification], now: datetime, only: Collection[UUID] | None) -> int:
    if only is not None:
        own = own.filter(id__in=only)
        if own.count() != len(set(only)):
            raise missing("notification", "ids")
    return own.filter(read=None).update(read=now)


@transaction.atomic
def notification_settings_set(
    *, actor: Actor, terms: NotificationTerms, now: datetime
) -> NotificationSettings:
    """Stores the actor's choices in this tenant; types that are not named keep theirs.

    Raises:
        Refused: `bad_quiet_hours`, `always_in_app` or `unknown_type`.
    """
    _terms_check(terms)
    row = notification_settings_of(actor.tenant_id, actor.user_id)
    before = _values(row)
    chosen = {name: {"in_app": c.in_app, "mail": c.mail, "chat": c.chat} for name, c in terms.choices.items()}
    row, _ = NotificationSettings.objects.update_or_create(
        tenant_id=actor.tenant_id,
        user_id=actor.user_id,
        defaults={
            "choices": {**row.choices, **chosen},
            "quiet_from": terms.quiet_from,
            "quiet_until": terms.quiet_until,
            "daily_at": terms.daily_at,
        },
    )
    after = _values(row)
    if after != before:
        detail = {
            "before": {name: before[name] for name in after if before[name] != after[name]},
            "after": {name: after[name] for name in after if before[name] != after[name]},
        }
        actor_record(actor, "user.notifications_set", ("user", actor.user_id), now, detail)
    return row


def stop_token(tenant_id: UUID, user_id: int, name: str) -> str:
    """The secret of an address in a mail that ends mails of a type."""
    return signing.dumps([tenant_id.hex, user_id, name], salt=_STOP)


def stop_token_read(token: str) -> tuple[UUID, int, str] | None:
    """Whose mails of which type an address ends; None: the portal has not mailed it."""
    try:
        tenant, user_id, name = signing.loads(token, salt=_STOP)
    except signing.BadSignature:
        return None
    return (UUID(hex=tenant), user_id, name) if name in TYPES else None


def mails_stop(token: str, now: datetime) -> bool:
    """Ends the mails of a type for the owner of a mailed address; returns whether it is genuine. The inbox
    still gets them. Mail programs ask more than once."""
    found = stop_token_read(token)
    if found is None:
        return False
    tenant_id, user_id, name = found
    with tenant_tx(tenant_id):
        row = notification_settings_of(tenant_id, user_id)
        before = choice_of(row.choices, name)
        chosen = {"in_app": before.in_app, "mail": "never", "chat": before.chat}
        choices = {**row.choices, name: chosen}
        defaults = {"choices": choices, "quiet_from": row.quiet_from, "quiet_until": row.quiet_until}
        NotificationSettings.objects.update_or_create(
            tenant_id=tenant_id, user_id=user_id, defaults={**defaults, "daily_at": row.daily_at}
        )
        if before.mail != "never":
            audit_record(
                tenant_id=tenant_id,
                actor_id=user_id,
                action="user.notifications_set",
                target=("user", user_id),
                now=now,
                detail={"before": {name: before.mail}, "after": {name: "never"}},
            )
    return True


def notifications_sweep(now: datetime) -> int:
    """Removes entries that are older than 90 days; returns how many."""
    return Notification.objects.filter(at__lt=now - RETENTION).delete()[0]


def clock_read(text: str, param: str) -> time | None:
    """The time of day in a text such as `22:00`; None for an empty one.

    Raises:
        Refused: `bad_clock`.
    """
    text = text.strip()
    if not text:
        return None
    if not _CLOCK.fullmatch(text):
        raise invalid("bad_clock", refusal_text("bad_clock"), param)
    return time(int(text[:2]), int(text[3:]))


def _terms_check(terms: NotificationTerms) -> None:
    if (terms.quiet_from is None) != (terms.quiet_until is None):
        param = "quiet_from" if terms.quiet_from is None else "quiet_until"
        raise invalid("bad_quiet_hours", refusal_text("quiet_hours_half"), param)
    if terms.quiet_from is not None and terms.quiet_from == terms.quiet_until:
        raise invalid("bad_quiet_hours", refusal_text("quiet_hours_equal"), "quiet_until")
    for name, choice in terms.choices.items():
        if name not in TYPES or choice.mail not in MAIL_CHOICES:
            known = ", ".join(TYPES)
            raise invalid("unknown_type", refusal_text("unknown_type", known=known), "events")
        if not choice.in_app and not TYPES[name].is_optional:
            raise Refused(
                "always_in_app",
                refusal_text("always_in_app", label=TYPES[name].label),
                "invalid",
                "events",
                owner="operator",
            )


def _values(row: NotificationSettings) -> dict[str, str]:
    quiet = (row.quiet_from, row.quiet_until)
    values = {
        "quiet_hours": " to ".join(f"{each:%H:%M}" for each in quiet if each is not None),
        "daily_at": f"{row.daily_at:%H:%M}",
    }
    for name in TYPES:
        choice = choice_of(row.choices, name)
        values[name] = (
            f"{'inbox' if choice.in_app else 'no inbox'}, mail {choice.mail}, "
            f"{'chat' if choice.chat else 'no chat'}"
        )
    return values
