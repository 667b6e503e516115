"""Notices to people whose API tokens expire soon."""

from datetime import datetime, timedelta

from django.db import transaction

from tenants.models import ApiToken
from tenants.services.members.messages import PeopleMessage, people_message_put

EXPIRING = "token.expiring"
BEFORE = timedelta(days=7)
LEAST_LIFE = timedelta(days=14)
"""Tokens with a shorter life get no notice."""
AT_ONCE = 500


@transaction.atomic
def tokens_expiring_notify(now: datetime) -> int:
    """Notifies the people of tokens that expire within a week, once; returns how many."""
    rows = ApiToken.objects.select_for_update(of=("self",), skip_locked=True)
    rows = rows.filter(revoked=None, warned=None, expires__gt=now, expires__lte=now + BEFORE)
    found = list(rows.order_by("expires", "id")[:AT_ONCE])
    for token in found:
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
    ApiToken.objects.bulk_update(found, ["warned"])
    return len(found)
