"""The stored changes of a booking: open ones, closed ones, and the terms that one gives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from allocation.models import Approval, Booking, BookingChange, Decision
from allocation.rules.states import State
from allocation.services.record.history import Event
from allocation.services.record.terms import Terms
from allocation.services.runs.transition import booking_change, booking_move
from allocation.words.changes import differences_text
from allocation.words.events import event_text
from allocation.words.reasons import reason_data
from billing.services import hold_release
from solver.reasons.reason import Reason
from tenants.access import Actor
from tenants.models import Tier


@dataclass(frozen=True, slots=True)
class Accept:
    """What the asker accepts of a stronger change. Without bounds: no start that is later than the
    last one that was announced, and none that is worth less."""

    start_by: datetime | None = None
    strength: str = ""
    cost_at_most: Decimal | None = None


NO_BOUNDS = Accept()

WAITED_FOR = ("change_no_room", "change_weaker")
"""Why a change was not possible, if waiting can help."""

# The sentences about a change that takes another one back.
_UNDO = {"changed": "undone", "change_asked": "undo_asked"}


def is_change_open(booking: Booking) -> bool:
    """Returns whether a change waits for its decision."""
    return BookingChange.objects.filter(booking=booking, state__in=BookingChange.OPEN).exists()


def change_open(booking: Booking) -> BookingChange | None:
    """The open change of a booking, locked; None: it has none."""
    rows = BookingChange.objects.select_for_update(of=("self",))
    return rows.filter(booking=booking, state__in=BookingChange.OPEN).first()


def change_close(change: BookingChange, state: str, now: datetime, **facts: object) -> None:
    """Closes a locked change, releases the money that is held for it, and withdraws what it asks
    approvers."""
    if change.state == BookingChange.State.AWAITING_APPROVAL:
        asked = Approval.objects.filter(change=change, state=Approval.State.OPEN)
        asked.update(state=Approval.State.WITHDRAWN, decided=now)
    hold_release(tenant_id=change.tenant_id, reference=change.id, now=now)
    for name, value in {"state": state, "decided_at": now, **facts}.items():
        setattr(change, name, value)
    change.save(update_fields=["state", "decided_at", *facts])


def restores_of(booking: Booking) -> dict[str, Any]:
    """What an undo gives back besides the terms: the rank, the approval, and the planned run."""
    times = {name: getattr(booking, name) for name in ("ranked_at", "planned_starts")}
    return {
        **{name: moment.isoformat() if moment else None for name, moment in times.items()},
        "approved_hash": booking.approved_hash,
        "strength": booking.planned_strength or "",
        "is_scheduled": booking.state == State.SCHEDULED,
        "late_fees": str(booking.late_fees),
    }


def late_fee_of(change: BookingChange, booking: Booking) -> Decimal:
    """What the booking's last change cost because it gave up granted time late."""
    return booking.late_fees - Decimal(change.restores["late_fees"])


def rank_of(change: BookingChange) -> datetime | None:
    """The place in the queue of a booking after its change was made."""
    if change.undoes is None:
        return change.asked_at
    before = change.undoes.restores["ranked_at"]
    return datetime.fromisoformat(before) if before else None


@dataclass(frozen=True, slots=True)
class Kept:
    """Why a booking stays as it is. Without an event of its own the reasons are written as one."""

    reasons: tuple[Reason, ...]
    decision: Decision | None = None
    alternatives: Sequence[Mapping[str, object]] = ()
    event: Event | None = None


def change_keep(booking: Booking, change: BookingChange, kept: Kept, now: datetime) -> None:
    """Closes a locked change: the locked booking stays as it is."""
    why = [reason_data(each) for each in kept.reasons]
    change_close(
        change,
        BookingChange.State.KEPT,
        now,
        decision=kept.decision,
        reasons=why,
        alternatives=list(kept.alternatives),
    )
    event = kept.event
    if event is None:
        detail = {"change": change.id.hex, "decision": kept.decision.id if kept.decision else None}
        because = why[1] if len(why) > 1 else ""
        text = event_text("change_kept", because=why[0], why=because)
        event = Event("change_kept", text, detail=detail)
    booking_change(booking, event=event, now=now, extension_until=None)


def change_wait(booking: Booking, change: BookingChange, kept: Kept, now: datetime) -> None:
    """Leaves a locked change open, because it waits for room; says so the first time."""
    why = [reason_data(each) for each in kept.reasons]
    change.reasons, change.alternatives = why, list(kept.alternatives)
    change.decision = kept.decision
    change.save(update_fields=["reasons", "alternatives", "decision"])
    text = event_text("change_waits", because=why[-1])
    until = change.keep_trying_until
    detail = {"change": change.id.hex, "until": until.isoformat() if until else None}
    booking_change(booking, event=Event("change_waits", text, detail=detail), now=now)


def terms_apply(booking: Booking, terms: Terms, event: Event, now: datetime, **facts: object) -> None:
    """Writes new terms of a locked booking under a new revision, with the event.

    A `state` among the facts is a step to another state.
    """
    tier = booking.tier if booking.tier_id == terms.tier else Tier.objects.get(slug=terms.tier)
    values = {**terms.facts(), "tier": tier, "revision": booking.revision + 1, **facts}
    to = values.pop("state", None)
    if isinstance(to, State):
        booking_move(booking, to, event=event, now=now, **values)
    else:
        booking_change(booking, event=event, now=now, **values)


def change_event(kind: str, change: BookingChange, actor: Actor) -> Event:
    """The event of a change that a person made or asked for."""
    name = _UNDO[kind] if change.undoes_id else kind
    text = event_text(name, actor=actor.name, what=differences_text(change.differences))
    detail = {"change": change.id.hex, "differences": change.differences}
    return Event(kind, text, actor.user_id, detail)
