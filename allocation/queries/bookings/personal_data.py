"""A person's own data, as they download it: the account, and what it has in each tenant."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from allocation.models import Booking
from allocation.points.people import OWN_DATA
from tenants.models import (
    ApiToken,
    AuditEntry,
    Notification,
    NotificationSettings,
    SignOnIdentity,
    Tenant,
    User,
)
from tenants.queries import own_roles
from tenants.services.sign_in.sessions import sessions_of

# Enough for years of a person; the answer says so where it is more.
MOST_ROWS = 20_000


def account_data(user: User, now: datetime) -> dict[str, Any]:
    """The account and its signed-in browsers."""
    return {
        "username": user.username,
        "first_name": user.first_name,
        "last_name": user.last_name,
        "email": user.email,
        "time_zone": user.time_zone,
        "mails": user.mails,
        "created": _time(user.date_joined),
        "sessions": [
            {
                "created": _time(each.created),
                "last_seen": _time(each.last_seen),
                "expires": _time(each.expires),
                "device": each.device,
                "address": each.address,
            }
            for each in sessions_of(user.credential, now)
        ],
    }


def tenant_data(user: User, tenant: Tenant) -> dict[str, Any]:
    """What the person has in the tenant, whose context is open."""
    place = {"tenant_id": tenant.id, "user_id": user.pk}
    settings = NotificationSettings.objects.filter(**place).first()
    return {
        "tenant": tenant.slug,
        "roles": [
            {"project": role.project or None, "role": role.role} for role in own_roles(user.pk, tenant)
        ],
        "is_connected_with_the_provider": SignOnIdentity.objects.filter(**place).exists(),
        "bookings": _bookings(user, tenant.id),
        "tokens": [
            {
                "name": each.name,
                "scopes": each.scopes,
                "created": _time(each.created),
                "expires": _time(each.expires),
                "revoked": _time(each.revoked),
                "last_used": _time(each.last_used),
                "last_address": each.last_address,
            }
            for each in ApiToken.objects.filter(**place).order_by("created", "id")
        ],
        **{name: read(tenant.id, user.pk) for name, read in OWN_DATA.items()},
        "notification_choices": settings.choices if settings else {},
        "notifications": [
            {"at": _time(each.at), "title": each.title, "text": each.text}
            for each in Notification.objects.filter(**place).order_by("-at")[:MOST_ROWS]
        ],
        "log": _log(user, tenant.id),
    }


def _bookings(user: User, tenant_id: UUID) -> list[dict[str, Any]]:
    rows: Iterable[Booking] = (
        Booking.objects.filter(tenant_id=tenant_id, owner=user)
        .select_related("project")
        .order_by("submitted", "id")[:MOST_ROWS]
    )
    return [
        {
            "booking": each.label,
            "name": each.name,
            "labels": each.labels,
            "project": each.project.slug,
            "tier": each.tier_id,
            "request": each.request_text,
            "ask": each.ask,
            "state": each.state,
            "submitted": _time(each.submitted),
            "starts": _time(each.starts),
        }
        for each in rows
    ]


def _log(user: User, tenant_id: UUID) -> list[dict[str, Any]]:
    rows = AuditEntry.objects.filter(tenant_id=tenant_id, actor_id=user.pk).order_by("-at", "-id")
    return [
        {
            "at": _time(each.at),
            "action": each.action,
            "kind": each.object_kind,
            "object": each.object_id,
        }
        for each in rows[:MOST_ROWS]
    ]


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
