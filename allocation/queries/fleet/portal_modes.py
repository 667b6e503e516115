"""What operators have told the whole portal to do now: planned outages and frozen decisions."""

from datetime import datetime
from typing import Any

from allocation.models import Backup, Booking, PortalMode
from allocation.reasons.catalogue import BY_CODE
from allocation.rules.states import State

RULE = BY_CODE["decisions_frozen"]
STOPPED = (State.REQUESTED, State.QUEUED, State.SCHEDULED, State.PAUSED)


def modes_in_force(now: datetime) -> list[PortalMode]:
    """Those in force, one of each kind at most."""
    return [mode for mode in PortalMode.objects.filter(ended_at=None) if mode.is_in_force(now)]


def mode_in_force(kind: str, now: datetime, *, locked: bool = False) -> PortalMode | None:
    """The one of a kind that is in force; None without."""
    rows = PortalMode.objects.filter(kind=kind, ended_at=None)
    mode = (rows.select_for_update() if locked else rows).first()
    return mode if mode is not None and mode.is_in_force(now) else None


def decisions_frozen(now: datetime) -> PortalMode | None:
    """The freeze in force, if an operator has frozen decisions."""
    return mode_in_force(PortalMode.Kind.FREEZE, now)


def freeze_reason(booking: Booking, now: datetime) -> dict[str, Any] | None:
    """Why the booking is not decided or started now, if that is a freeze; as a decision's reasons
    are."""
    if booking.state not in STOPPED:
        return None
    freeze = decisions_frozen(now)
    if freeze is None:
        return None
    return {
        "rule": RULE.id,
        "code": RULE.code,
        "check": RULE.check,
        "sentence": freeze_sentence(freeze),
        "numbers": {},
        "frees_at": freeze.until.isoformat() if freeze.until else None,
    }


def freeze_sentence(freeze: PortalMode) -> str:
    """`Decisions are frozen by the operator since 22 Nov 14:05 UTC because …`."""
    since, because = f"{freeze.since:%d %b %H:%M} UTC", freeze.reason.rstrip(".")
    return f"Decisions are frozen by the operator since {since} because: {because}."


def backup_age(now: datetime) -> int | None:
    """Seconds since the state that the newest backup holds; None before there is one."""
    newest = Backup.objects.values_list("at", flat=True).first()
    return None if newest is None else max(0, int((now - newest).total_seconds()))
