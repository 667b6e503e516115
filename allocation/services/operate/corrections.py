"""Operators' corrections of charges, e.g. after a run that its node falsely ended: the latest ones,
what one of a booking can be, and how it is made."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from django.db import transaction

from allocation.access import LABEL
from allocation.models import Booking
from allocation.services.record.costs import paid_for
from allocation.services.record.history import Event
from allocation.services.runs.transition import booking_change
from allocation.words.events import event_text
from allocation.words.refusals import refusal_text
from billing.rules import cents_after, ledger_amount, money_text
from billing.services import charge_add, charge_refund
from tenants.audit import audit_entry, audit_write
from tenants.models import AuditEntry, User
from tenants.platform.errors import Refused, invalid
from tenants.services.input_values import name_read


@dataclass(frozen=True, slots=True)
class Correction:
    """Amount to refund, or with `more` to charge, and the reason, which the project can read."""

    amount: Decimal
    reason: str
    more: bool = False


LATEST = 50
"""Corrections that are listed."""


@dataclass(frozen=True, slots=True)
class CorrectionMade:
    """A correction: `amount` is above zero for a charge, and below for a refund. `paid` is what the
    booking had paid after it."""

    at: datetime
    operator: str
    booking: Booking
    amount: Decimal
    paid: Decimal
    reason: str


@dataclass(frozen=True, slots=True)
class CorrectionRoom:
    """What a booking that is over has paid: a correction can refund all of it, or charge `more`."""

    booking: Booking
    paid: Decimal
    more: Decimal


def corrections_latest() -> list[CorrectionMade]:
    """The latest corrections of all tenants, from the platform's log."""
    entries = AuditEntry.objects.filter(
        tenant=None, object_kind="booking", action="booking.corrected"
    ).select_related("actor")
    found = list(entries.order_by("-at", "-id")[:LATEST])
    bookings = Booking.objects.select_related("tenant", "project")
    by_id = bookings.in_bulk({UUID(entry.object_id) for entry in found})
    return [_made(entry, by_id[UUID(entry.object_id)]) for entry in found]


def _made(entry: AuditEntry, booking: Booking) -> CorrectionMade:
    after = entry.detail["after"]
    paid = Decimal(after["paid"])
    amount = paid - Decimal(entry.detail["before"]["paid"])
    operator = entry.actor.username if entry.actor else ""
    return CorrectionMade(entry.at, operator, booking, amount, paid, after["reason"])


def correction_room(booking: Booking) -> CorrectionRoom:
    """What a correction of the booking can be. Raises Refused `booking_not_over`."""
    if booking.charged is None:
        raise Refused(
            "booking_not_over",
            refusal_text("booking_not_over", booking=booking.label),
        )
    paid = paid_for(booking)
    return CorrectionRoom(booking, paid, booking.hold_amount - booking.late_refunded - paid)


def booking_named(tenant_slug: str, label: str) -> Booking:
    """A tenant's booking by its number, for operators. Raises Refused `no_such_booking`."""
    found = LABEL.fullmatch(label.strip())
    booking = None
    if found is not None:
        rows = Booking.objects.select_related("project", "tenant")
        booking = rows.filter(tenant__slug=tenant_slug, number=int(found[1])).first()
    if booking is None:
        raise invalid("no_such_booking", refusal_text("tenant_has_no_booking"), "booking")
    return booking


@transaction.atomic
def booking_correct(*, operator: User, booking: Booking, correction: Correction, now: datetime) -> Booking:
    """Refunds a booking that is over, or charges more for it, within the held amount.

    Raises:
        Refused: `bad_reason`, `bad_amount`, `booking_not_over`, `refund_too_large`,
            `charge_too_large` or `budget_exceeded`.
    """
    reason = _reason_read(correction.reason)
    amount = ledger_amount(correction.amount)
    booking = Booking.objects.select_for_update(of=("self",)).get(id=booking.id)
    if amount <= 0:
        raise invalid("bad_amount", refusal_text("amount_not_positive"), "amount")
    _within(correction_room(booking), amount, more=correction.more)
    write = charge_add if correction.more else charge_refund
    write(
        tenant_id=booking.tenant_id,
        reference=booking.id,
        amount=amount,
        note=reason,
        now=now,
    )
    _correct(operator, booking, amount if correction.more else -amount, reason, now)
    return booking


def _correct(operator: User, booking: Booking, change: Decimal, reason: str, now: datetime) -> None:
    """Writes the correction to the booking, the tenant's log and the platform's log."""
    code = "charge_corrected" if change > 0 else "refund_corrected"
    # As the line of the statement, so that all of them add up to what was paid.
    cents = abs(cents_after(paid_for(booking), change))
    text = event_text(code, amount=money_text(cents, booking.currency), why=reason)
    event = Event("corrected", text, operator.id, {"amount": str(change)})
    booking_change(booking, event=event, now=now, corrected=booking.corrected + change)
    paid = paid_for(booking)
    detail = {
        "label": booking.label,
        "before": {"paid": str(paid - change)},
        "after": {"paid": str(paid), "reason": reason},
    }
    audit_write(
        audit_entry(
            tenant_id=tenant_id,
            actor_id=operator.id,
            action="booking.corrected",
            target=("booking", booking.id),
            now=now,
            detail=detail,
        )
        for tenant_id in (None, booking.tenant_id)
    )


def _reason_read(text: str) -> str:
    try:
        return name_read(text, longest=200)
    except Refused as refusal:
        raise invalid("bad_reason", refusal_text("correction_reason"), "reason") from refusal


def _within(room: CorrectionRoom, amount: Decimal, *, more: bool) -> None:
    """Refuses a refund above the paid amount and a charge above the held amount."""
    currency = room.booking.currency
    if not more and amount > room.paid:
        sentence = refusal_text("refund_too_large", was=money_text(room.paid, currency))
        raise invalid("refund_too_large", sentence, "amount")
    if more and amount > room.more:
        sentence = refusal_text("charge_too_large", room=money_text(room.more, currency))
        raise invalid("charge_too_large", sentence, "amount")
