"""Notices that an override ends soon, once for each."""

from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from allocation.models import Override
from tenants.failures import each_apart
from tenants.outbox import outbox_add

SOON = timedelta(days=7)
MOST_AT_ONCE = 500


def overrides_warn(now: datetime) -> int:
    """Notes for each override that ends within 7 days that people are to be notified; returns how
    many. One that was granted for less than that is not noted: its end was said just now."""
    found = _due(now).order_by("until", "id")[:MOST_AT_ONCE]
    return each_apart("ends of overrides", found, lambda row: _warn(row.id, now), now)


def _due(now: datetime) -> QuerySet[Override]:
    return Override.objects.filter(
        state=Override.State.GRANTED, warned=None, until__gt=now, until__lte=now + SOON
    )


@transaction.atomic
def _warn(key: UUID, now: datetime) -> int:
    row = _due(now).select_for_update(skip_locked=True).filter(id=key).first()
    if row is None:
        return 0
    row.warned = now
    row.save(update_fields=["warned"])
    if row.until is not None and row.starts is not None and row.until - row.starts > SOON:
        payload = {"override": str(row.id)}
        outbox_add(tenant_id=row.tenant_id, kind="override.ending", payload=payload, now=now)
    return 1
