"""Corrections of charges: a refund to the budgets that paid, or a further charge."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from uuid import UUID

from django.db import IntegrityError, transaction

from billing.models import Account, Transfer
from billing.rules import floor_to_cents, ledger_amount, money_text
from billing.services.ledger import OVERSPENT, constraint_of
from billing.words import refusal_text
from tenants.platform.errors import Refused, invalid


@transaction.atomic
def charge_refund(
    *, tenant_id: UUID, reference: UUID, amount: Decimal, note: str, now: datetime, fee: str = ""
) -> None:
    """Refunds `amount` to the budgets that paid, the latest first. With `fee`, of what was charged
    as this fee.

    Raises:
        Refused: `refund_too_large`.
    """
    rest, lines = ledger_amount(amount), []
    for charge, paid in reversed(_paid(tenant_id, reference, fee)):
        back = min(rest, paid)
        if back > 0:
            rest -= back
            lines.append(
                Transfer(
                    tenant_id=tenant_id,
                    kind="reverse",
                    debit_id=charge.spend,
                    credit_id=charge.budget,
                    amount=back,
                    reference=reference,
                    day=charge.day,
                    person_id=charge.person,
                    campaign_id=charge.campaign,
                    at=now,
                    note=note,
                    fee=fee,
                )
            )
    if rest > 0:
        raise invalid("refund_too_large", refusal_text("refund_too_large"), "amount")
    # The trigger locks accounts in the order of rows.
    Transfer.objects.bulk_create(sorted(lines, key=lambda line: line.credit_id))


@transaction.atomic
def charge_add(*, tenant_id: UUID, reference: UUID, amount: Decimal, note: str, now: datetime) -> None:
    """Charges `amount` to the budget that paid last, up to its remaining money.

    Raises:
        Refused: `budget_exceeded` or `never_held`.
    """
    holds = Transfer.objects.filter(tenant_id=tenant_id, reference=reference, kind="hold")
    last = holds.order_by("day", "at", "id").last()
    if last is None:
        raise Refused("never_held", refusal_text("never_held"))
    line = Transfer(
        tenant_id=tenant_id,
        kind="charge",
        debit_id=last.debit_id,
        credit_id=last.credit_id,
        amount=ledger_amount(amount),
        reference=reference,
        day=last.day,
        person_id=last.person_id,
        campaign_id=last.campaign_id,
        at=now,
        note=note,
    )
    try:
        with transaction.atomic():
            line.save(force_insert=True)
    except IntegrityError as error:
        if constraint_of(error) != OVERSPENT:
            raise
        raise _exceeded(last.debit_id) from error


@dataclass(frozen=True, slots=True)
class _Charge:
    """Where a charge was booked: accounts, day, and whose it was."""

    budget: UUID
    spend: UUID
    day: date
    person: int | None
    campaign: UUID | None


def _paid(tenant_id: UUID, reference: UUID, fee: str) -> list[tuple[_Charge, Decimal]]:
    """The paid amounts of the reference, or of one fee of it, the earliest day first."""
    paid: dict[_Charge, Decimal] = defaultdict(Decimal)
    rows = Transfer.objects.filter(
        tenant_id=tenant_id, reference=reference, kind__in=["settle", "charge", "reverse"]
    )
    for row in (rows.filter(fee=fee) if fee else rows).order_by("at", "id"):
        is_back = row.kind == "reverse"
        budget, spend = (row.credit_id, row.debit_id) if is_back else (row.debit_id, row.credit_id)
        if row.day is None:
            raise LookupError(f"the charge {row.id} has no day")
        charge = _Charge(budget, spend, row.day, row.person_id, row.campaign_id)
        paid[charge] += -row.amount if is_back else row.amount
    return sorted(paid.items(), key=lambda each: (each[0].day, each[0].budget))


def _exceeded(account_id: UUID) -> Refused:
    account = Account.objects.get(id=account_id)
    left = floor_to_cents(account.credits - account.debits - account.pending)
    return Refused(
        "budget_exceeded",
        refusal_text("correction_over_budget", left=money_text(left, account.currency)),
        "budget",
        param="amount",
        owner="tenant_admin",
        numbers={"left": str(left)},
    )
