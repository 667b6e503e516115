"""Functions shared by the writers of the ledger."""

from typing import Any
from uuid import UUID

from django.db import IntegrityError

from billing.models import Account, Budget
from billing.queries import BudgetFigures, budget_figures_of

OVERSPENT = "account_never_overspent"


def account_of(tenant_id: UUID | None, kind: str, currency: str) -> Account:
    """The tenant's `source` or `spend` account, created on first use; None: the platform's."""
    facts: dict[str, Any] = {"tenant_id": tenant_id, "kind": kind, "currency": currency}
    account, _ = Account.objects.get_or_create(**facts)
    return account


def current_figures(budget: Budget) -> BudgetFigures:
    """The budget's figures as they are now."""
    return budget_figures_of([budget.id])[budget.id]


def constraint_of(error: IntegrityError) -> str | None:
    """The name of the violated constraint, as PostgreSQL reports it."""
    diagnosis = getattr(error.__cause__, "diag", None)
    return getattr(diagnosis, "constraint_name", None)
