"""What a plan says about borrowing, stored with the bookings."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Q, QuerySet

from allocation.models import Booking
from allocation.rules.states import OPEN
from allocation.services.record.history import Event
from allocation.services.runs.transition import Change, bookings_change
from allocation.services.snapshot.snapshot import instant
from allocation.words.events import event_text
from solver import Plan
from tenants.platform.database.compiled import Compiled


@dataclass(frozen=True, slots=True)
class BorrowingMark:
    """New values of one booking; see `Booking`."""

    booking: UUID
    borrowed_units: int
    at_risk_from: datetime | None
    reclaims_from: datetime | None


def _marked_rows(_: datetime, keys: Sequence[UUID]) -> QuerySet[Booking]:
    marked = Q(borrowed_units__gt=0) | Q(at_risk_from__isnull=False) | Q(reclaims_from__isnull=False)
    rows = Booking.objects.filter(marked | Q(id__in=keys), state__in=OPEN).order_by("id")
    return rows.only("borrowed_units", "at_risk_from", "reclaims_from")


_marked = Compiled(_marked_rows)


def borrowing_marks(plan: Plan, now: datetime) -> tuple[BorrowingMark, ...]:
    """Returns what differs from what is stored, in the order of ids."""
    borrows = {UUID(borrow.booking): borrow for borrow in plan.borrows}
    claims = {UUID(claim.booking): claim for claim in plan.claims}
    found = []
    for row in _marked(now, [*borrows, *claims]):
        borrow, claim = borrows.get(row.id), claims.get(row.id)
        risk = borrow.at_risk_from if borrow else None
        mark = BorrowingMark(
            row.id,
            borrow.borrowed if borrow else 0,
            None if risk is None else instant(risk),
            instant(claim.starts) if claim else None,
        )
        if mark != BorrowingMark(row.id, row.borrowed_units, row.at_risk_from, row.reclaims_from):
            found.append(mark)
    return tuple(found)


def borrowing_marks_write(marks: Iterable[BorrowingMark], now: datetime) -> None:
    """Writes the marks of bookings that are still open, and notifies owners whose borrowed GPUs are
    newly at risk. Many take as few statements as one."""
    by_id = {mark.booking: mark for mark in marks}
    if not by_id:
        return
    rows = Booking.objects.select_for_update(of=("self",)).order_by("id")
    found = rows.filter(id__in=list(by_id), state__in=OPEN)
    bookings_change([_change(each, by_id[each.id]) for each in found], now=now)


def _change(booking: Booking, mark: BorrowingMark) -> Change:
    event = None
    if mark.at_risk_from is not None and mark.at_risk_from != booking.at_risk_from:
        event = Event(
            "at_risk",
            event_text("at_risk", borrowed=mark.borrowed_units),
            detail={"at_risk_from": mark.at_risk_from.isoformat()},
        )
    facts = {
        "borrowed_units": mark.borrowed_units,
        "at_risk_from": mark.at_risk_from,
        "reclaims_from": mark.reclaims_from,
        "claimed_from": booking.claimed_from or mark.reclaims_from,
    }
    return Change(booking, event, None, facts)
