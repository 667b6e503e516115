"""The cost lines of a booking."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from allocation.models import Booking, Pause
from allocation.services.record.costs import (
    booking_cost,
    booking_spent,
    cancellation_cost,
    paid_for,
)
from allocation.services.runs.late_shares import late_fee
from allocation.web.bookings.page_context import PageContext
from allocation.web.parts.times import clock
from billing.rates import Spell
from billing.rules import cents_after, cents_apart, cents_of, money_text


@dataclass(frozen=True, slots=True)
class CostLine:
    """One line of the bill."""

    name: str
    amount: str
    strong: bool = False


def spent_so_far(booking: Booking, now: datetime) -> Decimal:
    """Returns the cost of the time used so far, or the final charge."""
    if booking.charged is not None:
        return booking.charged
    return booking_spent(booking, booking.released_at or min(now, booking.planned_ends or now))


def booking_costs(booking: Booking, ctx: PageContext) -> tuple[CostLine, ...]:
    """Returns the cost lines of a booking."""

    def money(amount: Decimal) -> str:
        return money_text(amount, booking.currency)

    so_far = spent_so_far(booking, ctx.now)
    held, used = cents_of(booking.hold_amount), so_far - booking.late_fees - booking.setup_paid
    parts = (booking.setup_paid, booking.late_fees, used, booking.hold_amount - so_far)
    setup, late, used, rest = cents_apart(parts)
    runs = run_costs(booking, ctx.pauses, ctx)
    if booking.charged is not None:
        fee = money(booking_cost(booking, Spell(booking.fee_seconds)))
        fees = (CostLine("No-show fee", fee),) if booking.fee_seconds else ()
        return (
            *runs,
            *_fees(booking, booking.setup_paid, booking.late_fees),
            *fees,
            CostLine("Held at the end" if runs else "Held when booked", money(held)),
            CostLine("Returned", money(held - cents_of(booking.charged))),
            CostLine("Charged", money(booking.charged), strong=not _corrections(booking)),
            *_corrections(booking),
        )
    return (
        *runs,
        *_fees(booking, setup, late),
        CostLine("Used so far", money(used)),
        CostLine("Remaining", money(rest)),
        CostLine("Held (maximum)", money(held), strong=True),
        *_corrections(booking),
    )


def _corrections(booking: Booking) -> tuple[CostLine, ...]:
    name = "Refunded by the operator" if booking.corrected < 0 else "Charged by the operator"
    if booking.charged is None:
        by_operator, by_undo = booking.corrected, booking.late_refunded
    else:
        # What was charged, in cents, and these lines add up to what was paid.
        after_undo = booking.charged - booking.late_refunded
        by_undo = -cents_after(booking.charged, -booking.late_refunded)
        by_operator = cents_after(after_undo, booking.corrected)
    amounts = ((name, abs(by_operator)), ("Refunded by an undo", by_undo))
    found = [CostLine(n, money_text(amount, booking.currency)) for n, amount in amounts if amount]
    if found and booking.charged is not None:
        paid = money_text(paid_for(booking), booking.currency)
        found.append(CostLine("Total paid", paid, strong=True))
    return tuple(found)


def _fees(booking: Booking, setup: Decimal, late: Decimal) -> tuple[CostLine, ...]:
    """What was charged besides time."""
    fees = (("Set-up", setup), ("Given up late", late))
    return tuple(CostLine(name, money_text(fee, booking.currency)) for name, fee in fees if fee)


def returned_text(booking: Booking, now: datetime) -> str:
    """Returns the money that a release or cancellation returns."""
    cost = cancellation_cost(booking, now) + late_fee(booking, None, now)
    return money_text(max(Decimal(0), booking.hold_amount - cost), booking.currency)


def run_costs(booking: Booking, pauses: Sequence[Pause], ctx: PageContext) -> list[CostLine]:
    """Returns a cost line for each run that a pause ended, and its credit."""
    found = []
    for pause in pauses:
        if pause.emptied_at is None:
            continue
        until = pause.notified_at
        if pause.relation:
            until = pause.acknowledged_at or pause.deadline
        began, paused = clock(pause.ready_at, ctx.zone), clock(until, ctx.zone)
        name = f"Run {pause.number}, {began} – {paused}"
        found.append(CostLine(name, money_text(pause.charged + pause.credit, booking.currency)))
        if pause.credit:
            credit = money_text(-pause.credit, booking.currency)
            found.append(CostLine("Credit for redone work", credit))
    return found
