"""Maintenance whose time has come or is over: programs are notified once."""

from collections.abc import Iterator
from datetime import datetime

from django.db import transaction
from django.db.models import Q

from allocation.models import Maintenance
from allocation.services.record.site_events import maintenance_event

PLANNED, STARTED, ENDED = (
    Maintenance.Event.PLANNED,
    Maintenance.Event.STARTED,
    Maintenance.Event.ENDED,
)


@transaction.atomic
def maintenance_announce(now: datetime) -> int:
    """Sends `maintenance.started` and `maintenance.ended` when they are due; returns how many."""
    due = Q(last_event=PLANNED, starts__lte=now) | Q(last_event=STARTED, ends__lte=now)
    rows = Maintenance.objects.select_for_update(of=("self",), skip_locked=True).filter(due)
    sent = 0
    for row in rows.select_related("rack", "node", "gpu__node").order_by("starts", "id"):
        for kind in _events_due(row, now):
            maintenance_event(kind, row, now)
            row.last_event = kind
            sent += 1
        row.save(update_fields=["last_event"])
    return sent


def _events_due(row: Maintenance, now: datetime) -> Iterator[Maintenance.Event]:
    """Both, if the portal was stopped in between."""
    if row.last_event == PLANNED:
        yield STARTED
    if row.ends <= now:
        yield ENDED
