"""Sets from when on the spend of a budget is unusual."""

from datetime import datetime
from decimal import Decimal

from billing.models import Budget
from billing.words import refusal_text
from tenants.audit import audit_record
from tenants.platform.errors import invalid

MOST_PERCENT = 1000


def variance_rule_set(
    *, actor_id: int, budget: Budget, percent: int | None, amount: Decimal, now: datetime
) -> None:
    """Notifies from `percent` more than expected on, if that is at least `amount`; None: never.

    Raises:
        Refused: `bad_percent` or `bad_amount`.
    """
    if percent is not None and not 1 <= percent <= MOST_PERCENT:
        raise invalid(
            "bad_percent",
            refusal_text("variance_percent", most_percent=MOST_PERCENT),
            "percent",
        )
    if not 0 <= amount < 10**9:
        raise invalid("bad_amount", refusal_text("variance_amount"), "amount")
    before = _values(budget)
    budget.variance_percent, budget.variance_amount = percent, amount
    budget.save(update_fields=["variance_percent", "variance_amount"])
    after = _values(budget)
    if after != before:
        audit_record(
            tenant_id=budget.tenant_id,
            actor_id=actor_id,
            action="budget.variance_rule_set",
            target=("budget", budget.id),
            now=now,
            detail={"before": before, "after": after},
        )


def variance_rule_copy(source: Budget, target: Budget) -> None:
    """Gives the budget of the next period the same thresholds."""
    target.variance_percent = source.variance_percent
    target.variance_amount = source.variance_amount
    target.save(update_fields=["variance_percent", "variance_amount"])


def _values(budget: Budget) -> dict[str, str | int | None]:
    return {"percent": budget.variance_percent, "amount": f"{budget.variance_amount:.2f}"}
