"""Changes of planned and running maintenance: its window, its deadline and its reason."""

from copy import copy
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from allocation.models import Maintenance
from allocation.services.nodes.reach import nodes_check
from allocation.services.operate.maintenance.plan import (
    COUNTED,
    MaintenanceTerms,
    Preview,
    cause_of,
    change_count,
    deadline_read,
    history_note,
    length_check,
    maintenance_lock,
    nodes_under,
    overlapping,
    preview_of,
    reason_read,
    window_check,
)
from allocation.services.record.site_events import maintenance_changed_event
from allocation.services.runs.interrupt import drain_notify
from allocation.words.fleet import fleet_text
from allocation.words.refusals import refusal_text
from tenants.audit import platform_record
from tenants.models import User
from tenants.outbox import task_request
from tenants.platform.errors import Refused, invalid

FIELDS = ("starts", "ends", "drain_by", "reason")


@dataclass(frozen=True, slots=True)
class MaintenanceChange:
    """What becomes different; None stays. Without `drain_by`, a deadline at the start moves with
    the start."""

    starts: datetime | None = None
    ends: datetime | None = None
    drain_by: datetime | None = None
    reason: str | None = None


def maintenance_change(
    *, operator: User, maintenance: Maintenance, change: MaintenanceChange, now: datetime
) -> Maintenance:
    """Changes one maintenance, or one date of a series. The next decision keeps the new window
    free; owners of running work in it are notified. Without a difference nothing is written.

    Raises:
        Refused: `blackout_over`, `maintenance_running`, and as `maintenance_plan`.
    """
    row = maintenance_lock(maintenance, now)
    nodes_check(operator, nodes_under(row))
    before = _values(row)
    changed = _changed(row, change, now)
    after = _values(changed)
    if before == after:
        return row
    change_count(changed, now)
    changed.save(update_fields=[*FIELDS, *COUNTED])
    facts = {"operator": operator.username, "reason": changed.reason}
    window = {"starts": f"{changed.starts:%d %b %H:%M}", "ends": f"{changed.ends:%d %b %H:%M}"}
    history_note(changed, fleet_text("maintenance_changed", **facts, **window), now)
    platform_record(
        operator_id=operator.id,
        action="maintenance.changed",
        target=("maintenance", changed.id),
        now=now,
        before={"where": changed.where, **before},
        after={"where": changed.where, **after},
    )
    # Who was notified of the same deadline is not notified again.
    known = overlapping(row) if row.drain_by == changed.drain_by else Q(pk=None)
    drain_notify(overlapping(changed) & ~known, changed.drain_by, cause_of(changed), now)
    maintenance_changed_event(changed, before, now)
    task_request("allocation.cycle")
    return changed


def maintenance_change_preview(
    *, maintenance: Maintenance, change: MaintenanceChange, now: datetime
) -> Preview:
    """Solves the current calendar with the maintenance as it is and as it would be. Saves nothing.

    Raises:
        Refused: as `maintenance_change`.
    """
    row = maintenance_lock(maintenance, now)
    return preview_of([_changed(row, change, now)], row, now)


def _changed(row: Maintenance, change: MaintenanceChange, now: datetime) -> Maintenance:
    """A changed copy of the locked row. Not saved."""
    starts = change.starts or row.starts
    follows = change.drain_by is None and row.drain_by == row.starts
    terms = MaintenanceTerms(
        starts=starts,
        ends=change.ends or row.ends,
        reason=row.reason if change.reason is None else change.reason,
        drain_by=starts if follows else change.drain_by or row.drain_by,
    )
    if row.starts <= now:
        _running_check(row, terms, now)
    else:
        window_check(terms, now)
        _series_check(row, terms)
    found = copy(row)
    found.starts, found.ends = terms.starts, terms.ends
    found.drain_by, found.reason = deadline_read(terms), reason_read(terms.reason)
    return found


def _running_check(row: Maintenance, terms: MaintenanceTerms, now: datetime) -> None:
    if terms.starts != row.starts:
        raise Refused("maintenance_running", refusal_text("maintenance_running", where=row.where))
    if terms.ends <= now:
        raise invalid("window_past", refusal_text("maintenance_end_past"), "ends")
    length_check(terms)


def _series_check(row: Maintenance, terms: MaintenanceTerms) -> None:
    if row.series is None:
        return
    others = Maintenance.objects.filter(series=row.series, ended_at=None).exclude(id=row.id)
    if others.filter(starts__lt=terms.ends, ends__gt=terms.starts).exists():
        raise invalid("series_overlap", refusal_text("maintenance_overlap"), "starts")


def _values(row: Maintenance) -> dict[str, str]:
    return {
        "starts": row.starts.isoformat(),
        "ends": row.ends.isoformat(),
        "drain_by": row.drain_by.isoformat(),
        "reason": row.reason,
    }
