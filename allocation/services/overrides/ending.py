"""Notices that an override ends soon, once for each."""

from datetime import datetime, timedelta

from django.db import transaction

from allocation.models import Override
from tenants.outbox import outbox_add

SOON = timedelta(days=7)
MOST_AT_ONCE = 500


def overrides_warn(now: datetime) -> int:
    """Notes for each override that ends within 7 days that people are to be notified; returns how
    many. One that was granted for less than that is not noted: its end was said just now."""
    rows = Override.objects.select_for_update(skip_locked=True).filter(
        state=Override.State.GRANTED, warned=None, until__gt=now, until__lte=now + SOON
    )
    with transaction.atomic():
        found = list(rows.order_by("until", "id")[:MOST_AT_ONCE])
        for row in found:
            row.warned = now
            row.save(update_fields=["warned"])
            if row.until is not None and row.starts is not None and row.until - row.starts > SOON:
                outbox_add(
                    tenant_id=row.tenant_id,
                    kind="override.ending",
                    payload={"override": str(row.id)},
                    now=now,
                )
    return len(found)
