"""The refusal for money that is short: at which level, whose it is, and when it frees."""

from collections import defaultdict
from collections.abc import Sequence
from decimal import Decimal
from uuid import UUID

from billing.models import Budget
from billing.platform_limits import platform_short
from billing.queries import BudgetFigures, budget_figures_of
from billing.rules import ceil_to_cents, floor_to_cents, midnight, money_text, period_text
from billing.services.holding.shares import BudgetShare
from billing.words import refusal_text
from tenants.platform.errors import Refused


def budget_exceeded(parts: Sequence[BudgetShare]) -> Refused:
    """The refusal for the budget of any level that is short by most, with its current figures."""
    needs: dict[UUID, Decimal] = defaultdict(Decimal)
    budgets: dict[UUID, Budget] = {}
    for part in parts:
        for budget in (part.budget, *part.limits):
            needs[budget.id] += part.amount
            budgets[budget.id] = budget
    figures = budget_figures_of(each.id for each in budgets.values() if each.tenant_id)
    hard = [each for each in figures.values() if each.is_hard]
    effect = min(hard, key=lambda each: each.left - needs[each.budget_id], default=None)
    has_platform = len(figures) < len(needs)
    if effect is None or (has_platform and effect.left >= needs[effect.budget_id]):
        return platform_short()
    return _short(budgets[effect.budget_id], effect, needs[effect.budget_id])


# Who can raise the budget of a level, and as which owner of the rule.
RAISERS = {
    "platform": ("The operators", "operator"),
    "tenant": ("The organisation's admin", "tenant_admin"),
    "lab": ("The organisation's admin", "tenant_admin"),
    "project": ("The organisation's admin", "tenant_admin"),
    "campaign": ("The project's lead", "lead"),
    "person": ("The project's lead", "lead"),
}


def _short(budget: Budget, effect: BudgetFigures, amount: Decimal) -> Refused:
    left, needs = floor_to_cents(effect.left), ceil_to_cents(amount)
    currency = effect.currency
    raiser, owner = RAISERS[effect.level]
    return Refused(
        "budget_exceeded",
        refusal_text(
            "budget_exceeded",
            budget=budget_subject(effect, budget),
            left=money_text(left, currency),
            period=period_text(effect.period),
            needs=money_text(needs, currency),
            raiser=raiser,
        ),
        "budget",
        param="request",
        rule="R10",
        owner=owner,
        frees_at=midnight(effect.ends),
        numbers={
            "level": effect.level,
            "budget": str(effect.budget_id),
            "project": budget.project.slug if budget.project else None,
            "currency": currency,
            "amount": str(floor_to_cents(effect.amount)),
            "spent": str(floor_to_cents(effect.spent)),
            "held": str(floor_to_cents(effect.held)),
            "left": str(left),
            "needs": str(needs),
            "short": str(max(Decimal("0.01"), ceil_to_cents(amount - effect.left))),
        },
        more={
            "kind": "budget",
            "budget": str(effect.budget_id),
            "amount": str(max(Decimal("0.01"), ceil_to_cents(amount - effect.left))),
        },
    )


def budget_subject(effect: BudgetFigures, budget: Budget) -> str:
    """Whose money is short, as the subject of a sentence."""
    if effect.level == Budget.Level.LAB:
        return f"The lab {effect.name}"
    if effect.level == Budget.Level.CAMPAIGN:
        return f"The campaign {effect.name}"
    if effect.level == Budget.Level.PERSON and budget.project is not None:
        return f"{effect.name}’s part of {budget.project.name}"
    return effect.name
