"""Writes budgets: the amounts that projects may spend in a period."""

from datetime import datetime
from decimal import Decimal

from django.db import IntegrityError, connection, transaction

from billing.models import Account, Budget, Transfer
from billing.rules import (
    LEDGER_STEP,
    Period,
    ceil_to_cents,
    floor_to_cents,
    ledger_amount,
    money_text,
    period_text,
)
from billing.services.ledger import OVERSPENT, account_of, constraint_of, current_figures
from tenants.audit import audit_record
from tenants.models import Project
from tenants.platform.errors import Refused, invalid


def budget_set(
    *,
    actor_id: int | None,
    project: Project,
    period: Period,
    amount: Decimal,
    warn_percent: int = 80,
    now: datetime,
) -> Budget:
    """Sets the project's budget for the period to `amount`; creates it if missing.

    The caller has checked that the actor administers the tenant (None: the system).

    Raises:
        Refused: `budget_overlaps` (another period shares days), `budget_below_use`,
            `bad_period`, `bad_warning`.
    """
    amount = ledger_amount(amount)
    if amount < 0:
        raise invalid("bad_amount", "A budget can't be negative.", "amount")
    if period.ends <= period.starts:
        raise invalid("bad_period", "The budget must end after it starts.", "ends")
    if not 1 <= warn_percent <= 100:
        raise invalid("bad_warning", "Warn at 1 to 100 percent.", "warn_percent")
    with transaction.atomic():
        budget, before = _budget_for(project, period)
        _fund(budget, amount - before, now)
        Budget.objects.filter(id=budget.id).update(warn_percent=warn_percent)
        budget.warn_percent = warn_percent
        audit_record(
            tenant_id=project.tenant_id,
            actor_id=actor_id,
            action="budget.set",
            target=("budget", budget.id),
            now=now,
            detail={
                "project": project.slug,
                "starts": period.starts.isoformat(),
                "ends": period.ends.isoformat(),
                "before": str(before),
                "amount": str(amount),
                "warn_percent": warn_percent,
            },
        )
    return budget


def _budget_for(project: Project, period: Period) -> tuple[Budget, Decimal]:
    """The budget of exactly this period with its present amount; created if missing."""
    with connection.cursor() as cursor:
        # Prevents two admins from creating two budgets for the same new period at once.
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [str(project.id)])
    touching = list(
        Budget.objects.filter(
            project=project, starts__lt=period.ends, ends__gt=period.starts
        ).select_related("account", "project")
    )
    for budget in touching:
        if (budget.starts, budget.ends) == (period.starts, period.ends):
            return budget, current_figures(budget).amount
    if touching:
        raise _overlaps(touching[0])
    account = Account.objects.create(tenant_id=project.tenant_id, kind="budget", limited=True)
    return (
        Budget.objects.create(
            tenant_id=project.tenant_id,
            project=project,
            account=account,
            starts=period.starts,
            ends=period.ends,
        ),
        Decimal(0),
    )


def _overlaps(budget: Budget) -> Refused:
    text = period_text(Period(budget.starts, budget.ends))
    return Refused(
        "budget_overlaps",
        f"{budget.project.name} already has a budget for {text}. Change that one,"
        " or choose days outside it.",
        param="starts",
        owner="tenant_admin",
    )


def _fund(budget: Budget, difference: Decimal, now: datetime) -> None:
    """Transfers money from the tenant's source to the budget; a negative amount returns it."""
    if abs(difference) < LEDGER_STEP:
        return
    source = account_of(budget.tenant_id, "source", budget.account.currency)
    to_budget = difference > 0
    transfer = Transfer(
        tenant_id=budget.tenant_id,
        kind="fund" if to_budget else "reverse",
        debit=source if to_budget else budget.account,
        credit=budget.account if to_budget else source,
        amount=abs(difference),
        at=now,
    )
    try:
        with transaction.atomic():
            transfer.save(force_insert=True)
    except IntegrityError as error:
        if constraint_of(error) != OVERSPENT:
            raise
        raise _below_spent_and_held(budget) from error


def _below_spent_and_held(budget: Budget) -> Refused:
    effect = current_figures(budget)
    used = ceil_to_cents(effect.spent + effect.held)
    return Refused(
        "budget_below_use",
        f"{money_text(used, effect.currency)} of this budget are spent or held by bookings;"
        " it cannot be lower than that. Cancel bookings first, or choose a higher amount.",
        "budget",
        param="amount",
        numbers={"used": str(used), "amount": str(floor_to_cents(effect.amount))},
    )
