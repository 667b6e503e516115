"""What a plan says of borrowing, kept on the bookings it is true of."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Q

from allocation.models import Booking
from allocation.rules.states import OPEN
from allocation.services.record.history import Event
from allocation.services.runs.transition import booking_change
from allocation.services.snapshot.snapshot import instant
from allocation.solver import UNITS_PER_GPU, Plan


@dataclass(frozen=True, slots=True)
class BorrowingMark:
    """New values of one booking; see `Booking`."""

    booking: UUID
    borrowed_units: int
    at_risk_from: datetime | None
    reclaims_from: datetime | None


def borrowing_marks(plan: Plan) -> tuple[BorrowingMark, ...]:
    """What differs from what is stored, in the order of ids."""
    borrows = {UUID(borrow.booking): borrow for borrow in plan.borrows}
    claims = {UUID(claim.booking): claim for claim in plan.claims}
    marked = (
        Q(borrowed_units__gt=0) | Q(at_risk_from__isnull=False) | Q(reclaims_from__isnull=False)
    )
    rows = Booking.objects.filter(marked | Q(id__in=[*borrows, *claims]), state__in=OPEN)
    found = []
    for row in rows.order_by("id"):
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
    """Writes them; whose borrowed GPUs are at risk from now on, or at another time, is told."""
    for mark in marks:
        booking = Booking.objects.select_for_update().get(id=mark.booking)
        was = booking.at_risk_from
        event = None
        if mark.at_risk_from is not None and mark.at_risk_from != was:
            event = Event(
                "at_risk",
                f"{mark.borrowed_units / UNITS_PER_GPU:.3g} borrowed GPU"
                f"{' is' if mark.borrowed_units == UNITS_PER_GPU else 's are'} asked for by those "
                "who lend, and may be paused.",
                detail={"at_risk_from": mark.at_risk_from.isoformat()},
            )
        booking_change(
            booking,
            event=event,
            now=now,
            borrowed_units=mark.borrowed_units,
            at_risk_from=mark.at_risk_from,
            reclaims_from=mark.reclaims_from,
        )
