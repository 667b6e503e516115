"""Writes budgets: the amounts that may be spent in a period, at each level of the tree."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db import IntegrityError, connection, transaction

from billing.models import Account, Budget, Transfer
from billing.price_books import currency_latest
from billing.queries import OWNERS, budget_name
from billing.rules import (
    LEDGER_STEP,
    BudgetOwner,
    BudgetTerms,
    Period,
    ceil_to_cents,
    floor_to_cents,
    ledger_amount,
    money_text,
    period_text,
)
from billing.services.alerts import main_alert_move
from billing.services.ledger import OVERSPENT, account_of, constraint_of, current_figures
from billing.words import refusal_text
from tenants.audit import audit_record
from tenants.models import Project
from tenants.platform.errors import Refused, invalid
from tenants.platform.labels import labels_check, reference_check


def budget_set(
    *,
    actor_id: int | None,
    project: Project,
    period: Period,
    amount: Decimal,
    warn_percent: int | None = None,
    now: datetime,
) -> Budget:
    """Sets the project's own budget for the period to `amount`; see `budget_put`."""
    owner = BudgetOwner(project.tenant_id, project.id)
    terms = BudgetTerms(period, amount, warn_percent)
    return budget_put(actor_id=actor_id, owner=owner, terms=terms, now=now)


def budget_put(*, actor_id: int | None, owner: BudgetOwner, terms: BudgetTerms, now: datetime) -> Budget:
    """Sets the owner's budget for the period; creates it if missing.

    A new budget above or below a project counts what is spent and held already. The caller has
    checked the actor's right (None: the system).

    Raises:
        Refused: `budget_overlaps` (another period shares days), `budget_below_use`,
            `bad_period`, `bad_warning`, `bad_amount`.
    """
    _terms_check(terms)
    amount = ledger_amount(terms.amount)
    with transaction.atomic():
        budget, before = _budget_for(owner, terms.period)
        if terms.is_hard is False:
            _limit(budget, limited=False)
        budget_fund(budget, amount - before, now)
        if terms.is_hard or (terms.is_hard is None and budget.is_new):
            _limit(budget, limited=True)
        warned = budget.warn_percent
        _settings_write(budget, terms, is_changed=amount != before)
        if terms.warn_percent is not None:
            main_alert_move(actor_id=actor_id, budget=budget, before=warned, now=now)
        audit_record(
            tenant_id=owner.tenant_id,
            actor_id=actor_id,
            action="budget.set",
            target=("budget", budget.id),
            now=now,
            detail=_detail(budget, before, amount),
        )
    return budget


def budgets_lock(owner: BudgetOwner) -> None:
    """Makes other writers of the owner's budgets wait: no two create one for the same period."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [str(owner)])


def _terms_check(terms: BudgetTerms) -> None:
    if terms.amount < 0:
        raise invalid("bad_amount", refusal_text("budget_negative"), "amount")
    if terms.period.ends <= terms.period.starts:
        raise invalid("bad_period", refusal_text("budget_backward"), "ends")
    if terms.warn_percent is not None and not 1 <= terms.warn_percent <= 100:
        raise invalid("bad_warning", refusal_text("budget_warning"), "warn_percent")


def _budget_for(owner: BudgetOwner, period: Period) -> tuple[Budget, Decimal]:
    """The budget of exactly this period with its present amount; created if missing."""
    budgets_lock(owner)
    touching = list(
        Budget.objects.filter(**asdict(owner), starts__lt=period.ends, ends__gt=period.starts).select_related(
            "account", *OWNERS
        )
    )
    for budget in touching:
        if (budget.starts, budget.ends) == (period.starts, period.ends):
            return budget, current_figures(budget).amount
    if touching:
        raise _overlaps(touching[0])
    # It becomes limited when it has its amount: what stands is counted before.
    account = Account.objects.create(tenant_id=owner.tenant_id, kind="budget", currency=currency_latest())
    budget = Budget(
        **asdict(owner),
        level=owner.level,
        account=account,
        starts=period.starts,
        ends=period.ends,
    )
    budget.is_new = True
    budget.save(force_insert=True)
    return budget, Decimal(0)


def _limit(budget: Budget, *, limited: bool) -> None:
    """Makes the budget hard or soft.

    Raises:
        Refused: `budget_below_use`.
    """
    try:
        with transaction.atomic():
            Account.objects.filter(id=budget.account_id).update(limited=limited)
    except IntegrityError as error:
        if constraint_of(error) != OVERSPENT:
            raise
        raise _below_spent_and_held(budget) from error
    budget.account.limited = limited


def _settings_write(budget: Budget, terms: BudgetTerms, *, is_changed: bool) -> None:
    """Writes the settings that the terms name. A repeated budget repeats its latest amount."""
    named: dict[str, Any] = {
        name: value for name in ("warn_percent", "rolls_over") if (value := getattr(terms, name)) is not None
    }
    repeats = budget.repeat_amount is not None
    if terms.is_repeated or (terms.is_repeated is None and repeats and is_changed):
        named["repeat_amount"] = terms.amount
    elif terms.is_repeated is False:
        named["repeat_amount"] = None
    for name, value in named.items():
        setattr(budget, name, value)
    if named:
        budget.save(update_fields=list(named))


def _detail(budget: Budget, before: Decimal, amount: Decimal) -> dict[str, Any]:
    return {
        "level": budget.level,
        "of": budget_name(budget),
        "project": budget.project.slug if budget.project else None,
        "starts": budget.starts.isoformat(),
        "ends": budget.ends.isoformat(),
        "before": {"amount": str(before)},
        "after": {
            "amount": str(amount),
            "warn_percent": budget.warn_percent,
            "is_hard": budget.account.limited,
        },
    }


def _overlaps(budget: Budget) -> Refused:
    text = period_text(Period(budget.starts, budget.ends))
    return Refused(
        "budget_overlaps",
        refusal_text("budget_overlaps", budget=budget_name(budget), period=text),
        param="starts",
        owner="tenant_admin" if budget.tenant_id else "operator",
    )


def budget_fund(budget: Budget, difference: Decimal, now: datetime, note: str = "") -> None:
    """Transfers money from the tenant's source to the budget; a negative amount returns it.

    Raises:
        Refused: `budget_below_use`.
    """
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
        note=note,
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
        refusal_text("budget_below_use", used=money_text(used, effect.currency)),
        "budget",
        param="amount",
        numbers={"used": str(used), "amount": str(floor_to_cents(effect.amount))},
    )


def budget_labels_set(
    *,
    actor_id: int | None,
    budget: Budget,
    labels: Mapping[str, str] | None,
    external_ref: str | None,
    now: datetime,
) -> None:
    """Sets labels and reference; None keeps them. The caller has checked the actor's right.

    Raises:
        Refused: `bad_label`, `too_many_labels` or `bad_reference`.
    """
    before = {"labels": budget.labels, "external_ref": budget.external_ref}
    if labels is not None:
        budget.labels = labels_check(labels)
    if external_ref is not None:
        budget.external_ref = reference_check(external_ref)
    after = {"labels": budget.labels, "external_ref": budget.external_ref}
    if after != before:
        budget.save(update_fields=["labels", "external_ref"])
        audit_record(
            tenant_id=budget.tenant_id,
            actor_id=actor_id,
            action="budget.labels_set",
            target=("budget", budget.id),
            now=now,
            detail={"before": before, "after": after},
        )
