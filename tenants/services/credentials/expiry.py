"""Notices to people whose API tokens expire soon."""

from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from tenants.failures import each_apart
from tenants.models import ApiToken
from tenants.services.members.messages import PeopleMessage, people_message_put

EXPIRING = "token.expiring"
BEFORE = timedelta(days=7)
LEAST_LIFE = timedelta(days=14)
"""Tokens with a shorter life get no notice."""
AT_ONCE = 500


def tokens_expiring_notify(now: datetime) -> int:
    """Notifies the people of tokens that expire within a week, once; returns how many."""
    found = _due(now).order_by("expires", "id")[:AT_ONCE]
    return each_apart("ends of tokens", found, lambda token: _notify(token.id, now), now)


def _due(now: datetime) -> QuerySet[ApiToken]:
    return ApiToken.objects.filter(revoked=None, warned=None, expires__gt=now, expires__lte=now + BEFORE)


@transaction.atomic
def _notify(key: UUID, now: datetime) -> int:
    token = _due(now).select_for_update(of=("self",), skip_locked=True).filter(id=key).first()
    if token is None:
        return 0
    if token.expires - token.created >= LEAST_LIFE:
        message = PeopleMessage(
            kind=EXPIRING,
            title=f"Your token {token.name} expires soon",
            text="Make a new one before, and replace it in your programs.",
            path="settings",
            audience="people",
            people=[token.user_id],
            until=token.expires,
        )
        people_message_put(token.tenant_id, message, now)
    token.warned = now
    token.save(update_fields=["warned"])
    return 1
