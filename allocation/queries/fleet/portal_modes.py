"""Current modes of the portal: planned outages and decision freezes."""

from datetime import datetime
from typing import Any

from django.db import connection
from django.utils.timezone import get_current_timezone

from allocation.models import Backup, Booking, PortalMode
from allocation.rules.states import State
from solver.reasons.catalogue import BY_CODE
from tenants.rules.moments import instant_text

RULE = BY_CODE["decisions_frozen"]
STOPPED = (State.REQUESTED, State.QUEUED, State.SCHEDULED, State.PAUSED)


def modes_in_force(now: datetime) -> list[PortalMode]:
    """The current modes, at most one of each kind."""
    return [mode for mode in PortalMode.objects.filter(ended_at=None) if mode.is_in_force(now)]


def mode_in_force(kind: str, now: datetime, *, locked: bool = False) -> PortalMode | None:
    """The current mode of a kind, or None."""
    rows = PortalMode.objects.filter(kind=kind, ended_at=None)
    mode = (rows.select_for_update() if locked else rows).first()
    return mode if mode is not None and mode.is_in_force(now) else None


def outage_is_closed() -> bool:
    """Whether members' changes may be refused now; each change asks this."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT FROM allocation_portalmode"
            " WHERE kind = %s AND ended_at IS NULL AND closed_at IS NOT NULL)",
            [PortalMode.Kind.OUTAGE],
        )
        return bool(cursor.fetchone()[0])


def decisions_frozen(now: datetime) -> PortalMode | None:
    """The current decision freeze, or None."""
    return mode_in_force(PortalMode.Kind.FREEZE, now)


def freeze_reason(booking: Booking, now: datetime) -> dict[str, Any] | None:
    """The freeze that keeps the booking from being decided or started, as a reason of a
    decision."""
    if booking.state not in STOPPED:
        return None
    freeze = decisions_frozen(now)
    if freeze is None:
        return None
    return {
        "rule": RULE.id,
        "code": RULE.code,
        "check": RULE.check,
        "sentence": freeze_sentence(freeze, now),
        "numbers": {},
        "frees_at": freeze.until.isoformat() if freeze.until else None,
    }


def freeze_sentence(freeze: PortalMode, now: datetime) -> str:
    """`Decisions have been frozen by an operator since 22 Nov 14:05 CET: …`."""
    since, reason = instant_text(freeze.since, get_current_timezone(), now), freeze.reason.rstrip(".")
    return f"Decisions have been frozen by an operator since {since}: {reason}."


def backup_age(now: datetime) -> int | None:
    """The age of the newest backup in seconds, or None without a backup."""
    newest = Backup.objects.values_list("at", flat=True).first()
    return None if newest is None else max(0, int((now - newest).total_seconds()))
