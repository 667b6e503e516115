"""The latest change of a booking, as its page shows it."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Any
from uuid import UUID

from django.db.models import F

from allocation.models import Approval, Booking, BookingChange
from allocation.rules.ask.line.text import alternative_text, duration_text
from allocation.rules.changes import Strength
from allocation.services.bookings.change.kept import can_wait
from allocation.services.bookings.change.undo import undoable_change
from allocation.web.parts.approvals import step_words
from allocation.web.parts.times import moment_words
from allocation.words.amounts import class_name
from allocation.words.changes import NAMES, TIMES, value_text
from allocation.words.reasons import sentence_for

# For this long after it was answered the page says that a change was not possible.
SHOWN = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class ShownChange:
    """An open change, or one that was not possible. `waits`: how long it waits for room;
    `can_wait`: it can be asked for again, to wait."""

    title: str
    is_open: bool
    decides: str
    differences: tuple[str, ...]
    reasons: tuple[str, ...]
    alternatives: tuple[str, ...]
    waits: str = ""
    can_wait: bool = False


def undo_lines(booking: Booking, zone: tzinfo, now: datetime) -> list[str]:
    """Returns what the last change changed, if it can be undone now; else nothing."""
    change = undoable_change(booking, now)
    return difference_lines(change.differences, zone, now) if change is not None else []


def shown_change(booking: Booking, zone: tzinfo, now: datetime) -> ShownChange | None:
    """Returns the latest change that needed a decision; None if it was made, or long ago."""
    rows = BookingChange.objects.filter(booking=booking, strength=Strength.STRONGER)
    # Of two that were asked for in one second, the open one.
    change = rows.order_by("-asked_at", F("decided_at").desc(nulls_first=True)).first()
    if change is None:
        return None
    is_open = change.state in BookingChange.OPEN
    is_kept = change.state == BookingChange.State.KEPT
    if not is_open and not (is_kept and change.decided_at and now - change.decided_at < SHOWN):
        return None
    decides = ""
    if change.state == BookingChange.State.AWAITING_APPROVAL:
        decides = _who_decides(change, zone, now)
    waits = ""
    is_waiting = change.is_waiting or (change.is_sooner and is_open)
    if is_waiting and change.keep_trying_until is not None:
        until = moment_words(change.keep_trying_until, zone, now)
        waits = f"It is made as soon as there is room, until {until}. The booking stays as it is."
    return ShownChange(
        title=_open_title(change) if is_open else "The change was not possible",
        is_open=is_open,
        decides=decides,
        differences=tuple(wish_lines(change, zone, now)),
        reasons=tuple(sentence_for(booking.ask, each) for each in change.reasons),
        alternatives=tuple(_alternative(each, zone, now) for each in change.alternatives),
        waits=waits,
        can_wait=is_kept and can_wait(change, booking, now),
    )


def open_changes(bookings: Iterable[Booking], zone: tzinfo, now: datetime) -> dict[UUID, str]:
    """Returns for each booking with an open change what it is:
    `A change waits for room: Number: 1 → 3`."""
    rows = BookingChange.objects.filter(
        booking__in=[each.id for each in bookings],
        strength=Strength.STRONGER,
        state__in=BookingChange.OPEN,
    )
    return {
        row.booking_id: f"{_open_title(row)}: {'; '.join(wish_lines(row, zone, now))}"
        for row in rows.order_by("asked_at")
    }


def _open_title(change: BookingChange) -> str:
    if change.state == BookingChange.State.AWAITING_APPROVAL:
        return "A change waits for its approval"
    if change.is_sooner and change.keep_trying_until is not None:
        return "It waits for an earlier start"
    return "A change waits for room" if change.is_waiting else "A change is being decided"


def wish_lines(change: BookingChange, zone: tzinfo, now: datetime) -> list[str]:
    """Returns what an open change asks for."""
    is_open = change.state in BookingChange.OPEN
    if not (change.is_sooner and is_open and change.start_by):
        return difference_lines(change.differences, zone, now)
    since = datetime.fromisoformat(change.target["not_before"])
    last = moment_words(change.start_by, zone, now)
    return [f"Any start from {moment_words(since, zone, now)} to {last}, as its fixed window"]


def _who_decides(change: BookingChange, zone: tzinfo, now: datetime) -> str:
    """Who decides the open request for its approval, by which rule and until when."""
    rows = change.approvals.filter(state=Approval.State.OPEN).select_related("project")
    approval = rows.first()
    if approval is None:
        return ""
    who = step_words(approval.present_step, approval.project.name)
    until = moment_words(approval.decide_by, zone, now)
    rules = ", ".join(rule["name"] for rule in approval.rules)
    return f"{who} decides by {until}, by the rule {rules}. The booking stays as it is until then."


def difference_lines(differences: dict[str, Any], zone: tzinfo, now: datetime) -> list[str]:
    """Returns what a change changes, such as `Number: 2 → 4`."""
    return [
        f"{str(NAMES.get(name, name)).capitalize()}: {_words(name, before, zone, now)} → "
        f"{_words(name, after, zone, now)}"
        for name, (before, after) in differences.items()
    ]


def _alternative(each: dict[str, Any], zone: tzinfo, now: datetime) -> str:
    """`tomorrow 11:00, 2 H100 80 GB for 3h`."""
    starts, ends = _time(each["starts"]), _time(each["ends"])
    rows = [{**row, "gpu_class": class_name(row["gpu_class"])} for row in each.get("groups") or [each]]
    shape = alternative_text({"groups": rows})
    length = duration_text(int((ends - starts).total_seconds()))
    return f"{moment_words(starts, zone, now)}, {shape} for {length}"


def _words(name: str, value: Any, zone: tzinfo, now: datetime) -> str:  # noqa: ANN401 (JSON)
    is_time = name in TIMES and value
    return moment_words(_time(value), zone, now) if is_time else value_text(name, value)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
