"""Repeats budgets for their next period, and adds to it what was left of the last one."""

from dataclasses import asdict
from datetime import UTC, datetime

from django.db import transaction

from billing.models import Budget
from billing.queries import budget_figures_of
from billing.rules import BudgetTerms, Period, period_after, period_text
from billing.services.budgets import budget_fund, budget_put, budgets_lock
from billing.services.guardrails import ladder_copy
from billing.services.variance_rules import variance_rule_copy
from tenants.failures import each_apart
from tenants.platform.errors import Refused


def budgets_renew(now: datetime) -> int:
    """Creates the next budgets and moves what is left; returns how many it touched.

    A repeated budget has its next one as soon as it begins, because bookings are made ahead. What
    is left moves after the last day: what bookings still hold stays in the period that holds it,
    and moves when they release it. Safe to run twice, and for several at once.
    """
    today = now.astimezone(UTC).date()
    due = Budget.objects.filter(repeat_amount__isnull=False, starts__lte=today)
    repeated = due.select_related("account").order_by("starts", "id")
    over = Budget.objects.filter(rolls_over=True, ends__lte=today).order_by("starts", "id")
    return each_apart("renewals", repeated, lambda budget: _repeat(budget, now), now) + each_apart(
        "budgets rolled over", over, lambda budget: _roll_over(budget, now), now
    )


def _repeat(budget: Budget, now: datetime) -> bool:
    if budget.repeat_amount is None or _next_of(budget) is not None:
        return False
    terms = BudgetTerms(
        period=period_after(Period(budget.starts, budget.ends)),
        amount=budget.repeat_amount,
        is_hard=budget.account.limited,
        is_repeated=True,
        rolls_over=budget.rolls_over,
    )
    try:
        with transaction.atomic():
            following = budget_put(actor_id=None, owner=budget.owner, terms=terms, now=now)
            ladder_copy(budget, following)
            variance_rule_copy(budget, following)
    except Refused:
        # Somebody has set other budgets for these days; theirs count.
        return False
    return True


def _roll_over(budget: Budget, now: datetime) -> bool:
    following = _next_of(budget)
    if following is None:
        return False
    with transaction.atomic():
        budgets_lock(budget.owner)
        left = budget_figures_of([budget.id])[budget.id].left
        if left <= 0:
            return False
        text = period_text(Period(budget.starts, budget.ends))
        budget_fund(budget, -left, now, f"Rolled over from {text}")
        budget_fund(following, left, now, f"Rolled over from {text}")
    return True


def _next_of(budget: Budget) -> Budget | None:
    """The owner's budget that begins where this one ends."""
    found = Budget.objects.filter(**asdict(budget.owner), starts=budget.ends)
    return found.select_related("account").first()
