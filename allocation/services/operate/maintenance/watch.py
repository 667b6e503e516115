"""Maintenance whose time has come or is over: programs are notified once."""

from collections.abc import Iterator
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from allocation.models import Maintenance
from allocation.services.record.site_events import maintenance_event
from tenants.failures import each_apart

PLANNED, STARTED, ENDED = (
    Maintenance.Event.PLANNED,
    Maintenance.Event.STARTED,
    Maintenance.Event.ENDED,
)


def maintenance_announce(now: datetime) -> int:
    """Sends `maintenance.started` and `maintenance.ended` when they are due; returns how many."""
    rows = _due(now).order_by("starts", "id")
    return each_apart("maintenance", rows, lambda row: _announce(row.id, now), now)


def _due(now: datetime) -> QuerySet[Maintenance]:
    due = Q(last_event=PLANNED, starts__lte=now) | Q(last_event=STARTED, ends__lte=now)
    return Maintenance.objects.filter(due)


@transaction.atomic
def _announce(key: UUID, now: datetime) -> int:
    rows = _due(now).select_for_update(of=("self",), skip_locked=True)
    row = rows.select_related("rack", "node", "gpu__node").filter(id=key).first()
    if row is None:
        return 0
    kinds = list(_events_due(row, now))
    for kind in kinds:
        maintenance_event(kind, row, now)
        row.last_event = kind
    row.save(update_fields=["last_event"])
    return len(kinds)


def _events_due(row: Maintenance, now: datetime) -> Iterator[Maintenance.Event]:
    """Both, if the portal was stopped in between."""
    if row.last_event == PLANNED:
        yield STARTED
    if row.ends <= now:
        yield ENDED
