"""The ledger's rows of holds: a new one, the rest of one, and its end."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from billing.models import Budget, Transfer
from billing.services.holding.shares import BudgetShare, HoldRequest
from billing.services.ledger import account_of


def holds_of(
    requests: Sequence[HoldRequest], parts: dict[UUID, list[BudgetShare]], now: datetime
) -> list[Transfer]:
    """The transfers of each reference; the trigger locks their accounts in one order."""
    return [
        Transfer(
            tenant_id=part.budget.tenant_id,
            kind="hold",
            debit=part.budget.account,
            credit_id=_spend_id(part.budget),
            amount=part.amount,
            reference=request.reference,
            day=part.day,
            person_id=request.person_id,
            campaign_id=request.campaign_id,
            at=now,
        )
        for request in requests
        for part in parts.get(request.reference, ())
    ]


def _spend_id(budget: Budget) -> UUID:
    """The tenant's `spend` account in the budget's currency, created on first use."""
    found: UUID | None = getattr(budget, "spend", None)
    return found or account_of(budget.tenant_id, "spend", budget.account.currency).id


def hold_copy(hold: Transfer, amount: Decimal, now: datetime) -> Transfer:
    """A hold of another amount with the same facts."""
    return Transfer(
        tenant_id=hold.tenant_id,
        kind="hold",
        debit_id=hold.debit_id,
        credit_id=hold.credit_id,
        amount=amount,
        reference=hold.reference,
        day=hold.day,
        person_id=hold.person_id,
        campaign_id=hold.campaign_id,
        at=now,
    )


def hold_end(
    hold: Transfer, amount: Decimal, surcharge: Decimal, now: datetime, fee: str = ""
) -> Transfer:
    """The end of a hold: a charge of `amount`, or a release for zero."""
    return Transfer(
        tenant_id=hold.tenant_id,
        kind="settle" if amount else "release",
        debit_id=hold.debit_id,
        credit_id=hold.credit_id,
        amount=amount or hold.amount,
        surcharge=surcharge,
        fee=fee if amount else "",
        hold=hold,
        reference=hold.reference,
        day=hold.day,
        person_id=hold.person_id,
        campaign_id=hold.campaign_id,
        at=now,
    )
