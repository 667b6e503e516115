"""Reads prices, budgets and the ledger's consistency."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import (
    BooleanField,
    Case,
    Count,
    DecimalField,
    ExpressionWrapper,
    F,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    Value,
    When,
)
from django.db.models.functions import Coalesce

from billing.models import Budget, Guardrail, Transfer
from billing.rules import Period, cents_of, units_text
from tenants.models import Project
from tenants.platform.database.compiled import Compiled
from tenants.platform.database.look import ASKED_AT

PLATFORM_NAME = "The platform"
OWNERS = ("tenant", "lab", "project", "campaign", "person")
"""Who a budget can belong to, to read with it."""
_MONEY: "DecimalField[Any, Any]" = DecimalField(max_digits=20, decimal_places=6)


@dataclass(frozen=True, slots=True)
class UnitLimit:
    """The most that `count` units of progress may cost."""

    most: Decimal
    count: int
    unit: str

    @property
    def units(self) -> str:
        """The units, for people: `1,000 steps`."""
        return units_text(self.count, self.unit)


@dataclass(frozen=True, slots=True)
class BudgetFigures:
    """A budget's figures: amount = spent + held + left, exactly. [starts, ends) are UTC days."""

    budget_id: UUID
    project_id: UUID | None
    amount: Decimal
    spent: Decimal
    held: Decimal
    left: Decimal
    currency: str
    starts: date
    ends: date
    warn_percent: int
    level: str = "project"
    campaign_id: UUID | None = None
    person_id: int | None = None
    lab_id: UUID | None = None
    name: str = ""
    is_hard: bool = True
    is_repeated: bool = False
    rolls_over: bool = False
    forecast: Decimal | None = None
    """What is spent at the end of the period; None for too little history."""
    unit_limit: UnitLimit | None = None
    unit_cost: Decimal | None = None
    """What the units of the limit have cost so far; None: not known."""

    @property
    def period(self) -> Period:
        """The days of the budget."""
        return Period(self.starts, self.ends)

    @property
    def in_cents(self) -> "BudgetFigures":
        """The figures for people: in cents, and spent, held and left still add up to the amount. What is
        spent is rounded by itself, as statements do it, so that all pages show the same cent."""
        spent, held = cents_of(self.spent), cents_of(self.held)
        left = cents_of(self.spent + self.held + self.left) - spent - held
        return replace(self, amount=spent + held + left, spent=spent, held=held, left=left)

    @property
    def used_percent(self) -> Decimal:
        """Spent and held money in percent of the amount; 100 for an amount of zero."""
        if not self.amount:
            return Decimal(100)
        return (self.spent + self.held) * 100 / self.amount

    def share_of(self, measure: str, without: Decimal = Decimal(0)) -> Decimal:
        """`spent`, `committed` or `forecast` money in percent of the amount, without a part that
        is held. A forecast is never below what is spent and held. `unit_cost` is in percent of its own
        limit, and 0 while it is not known."""
        if measure == "unit_cost":
            limit, cost = self.unit_limit, self.unit_cost
            return Decimal(0) if limit is None or cost is None else cost * 100 / limit.most
        used = self.spent if measure == "spent" else self.spent + self.held - without
        if measure == "forecast" and self.forecast is not None:
            used = max(used, self.forecast)
        return used * 100 / self.amount if self.amount else Decimal(100)

    @property
    def is_warning(self) -> bool:
        """Whether the use has reached the warning level."""
        return self.used_percent >= self.warn_percent


@dataclass(frozen=True, slots=True)
class BalanceMismatch:
    """A stored balance that differs from the sum of its transfers."""

    tenant_id: UUID
    account_id: UUID
    field: str
    stored: Decimal
    recomputed: Decimal


def budget_figures(*, project_id: UUID, at: datetime) -> BudgetFigures | None:
    """The figures of the project's budget at the instant `at`, or None."""
    day = at.astimezone(UTC).date()
    budgets = Budget.objects.filter(level="project", project_id=project_id, starts__lte=day, ends__gt=day)
    return next(iter(_effects(budgets)), None)


def running_budgets(at: datetime) -> list[BudgetFigures]:
    """The figures of all projects' budgets at the instant `at`. Runs inside `operator_tx`."""
    day = at.astimezone(UTC).date()
    return _effects(Budget.objects.filter(level="project", starts__lte=day, ends__gt=day))


def project_budget(project_id: UUID, at: datetime) -> Budget | None:
    """The project's own budget at the instant `at`."""
    day = at.astimezone(UTC).date()
    return Budget.objects.filter(
        level="project", project_id=project_id, starts__lte=day, ends__gt=day
    ).first()


def budgets_figures(*, tenant_id: UUID, project_ids: Iterable[UUID], period: Period) -> list[BudgetFigures]:
    """The figures of these projects' own budgets in the period, by project and start."""
    budgets = Budget.objects.filter(
        tenant_id=tenant_id,
        level="project",
        project_id__in=list(project_ids),
        starts__lt=period.ends,
        ends__gt=period.starts,
    )
    return _effects(budgets.order_by("project_id", "starts"))


def budget_figures_of(budget_ids: Iterable[UUID]) -> dict[UUID, BudgetFigures]:
    """The figures of these budgets, as they are now."""
    rows = _budgets_by_id(ASKED_AT, list(budget_ids))
    return {row.id: _effect(row, row.reversed_credits, row.corrected) for row in rows}


def tightest_figures(
    *, project_id: UUID, person_id: int, campaign_id: UUID | None, at: datetime
) -> BudgetFigures | None:
    """The figures of the hard budget with the least money left, of all levels that a booking of
    the person counts in; None if the project has no budget at `at`."""
    day = at.astimezone(UTC).date()
    project = Project.objects.get(id=project_id)
    budgets = Budget.objects.filter(
        Q(level="tenant") | Q(project_id=project_id) | Q(level="lab", lab=project.lab_id),
        Q(campaign=None) | Q(campaign_id=campaign_id),
        Q(person=None) | Q(person_id=person_id),
        tenant_id=project.tenant_id,
        starts__lte=day,
        ends__gt=day,
    )
    found = _effects(budgets)
    if not any(each.level == Budget.Level.PROJECT for each in found):
        return None
    own = next(each for each in found if each.level == Budget.Level.PROJECT)
    return min((each for each in found if each.is_hard), key=lambda each: each.left, default=own)


def reached(rung: Guardrail, figures: BudgetFigures, without: Decimal = Decimal(0)) -> bool:
    """Whether the rung acts at these figures."""
    return figures.share_of(rung.measure, without) >= rung.percent


def rungs_to_mark(now: datetime) -> QuerySet[Guardrail]:
    """The rungs that act and are not marked, or are marked and do not act: as `reached` has it, in
    one statement without the figures."""
    account, percent = "budget__account__", F("percent")
    returned = _returned("budget__account_id")
    used = F(f"{account}debits") + Case(
        When(measure="spent", then=Value(Decimal(0))), default=F(f"{account}pending")
    )
    above = 100 * used - percent * F(f"{account}credits") - (100 - percent) * returned
    forecast = 100 * F("budget__forecast") - percent * (F(f"{account}credits") - returned)
    # A rung above 100 % of nothing does not act.
    is_reached = (Q(above__gte=0) | Q(measure="forecast", above_forecast__gte=0)) & ~Q(
        percent__gt=100, **{f"{account}credits": returned}
    )
    of_units = Q(
        measure="unit_cost",
        budget__unit_cost__gte=F("budget__unit_most") * F("percent") / Value(Decimal(100)),
    )
    marked = ExpressionWrapper(Q(reached_at__isnull=False), output_field=BooleanField())
    return (
        Guardrail.objects.filter(budget__ends__gt=now.date())
        .alias(
            above=ExpressionWrapper(above, output_field=_MONEY),
            above_forecast=ExpressionWrapper(forecast, output_field=_MONEY),
        )
        .alias(
            is_reached=Case(
                When(of_units, then=Value(value=True)),
                When(~Q(measure="unit_cost") & is_reached, then=Value(value=True)),
                default=Value(value=False),
            )
        )
        .exclude(is_reached=marked)
    )


@dataclass(frozen=True, slots=True)
class Stopped:
    """What a rung would have stopped in its budget's period so far."""

    bookings: int
    amount: Decimal
    first: datetime | None


def would_have_stopped(budget: Budget, measure: str, percent: int) -> Stopped:
    """Replays the budget's transfers against a rung that takes no new bookings.

    A booking counts as stopped if the share was reached when it was requested. The replay keeps
    the bookings that were made, so later ones see what was really used.
    """
    figures = budget_figures_of([budget.id])[budget.id]
    line = figures.amount * percent / 100
    spent = held = amount = Decimal(0)
    stopped: dict[UUID | None, datetime] = {}
    seen: set[UUID | None] = set()
    for row in _transfers_counted(budget).select_related("hold").order_by("at", "id"):
        used = spent if measure == "spent" else spent + held
        if row.kind == "hold" and row.reference not in seen:
            seen.add(row.reference)
            if used >= line:
                stopped[row.reference] = row.at
        if row.kind == "hold" and row.reference in stopped:
            amount += row.amount
        spent += {"settle": 1, "charge": 1, "reverse": -1}.get(row.kind, 0) * row.amount
        held += row.amount if row.kind == "hold" else -row.hold.amount if row.hold else 0
    return Stopped(len(stopped), amount, min(stopped.values(), default=None))


def open_holds(budget: Budget) -> Stopped:
    """The bookings that hold money which the budget counts."""
    rows = _transfers_counted(budget).filter(kind="hold", end=None)
    found = rows.aggregate(count=Count("reference", distinct=True), amount=Sum("amount"))
    return Stopped(found["count"], found["amount"] or Decimal(0), None)


def _transfers_counted(budget: Budget) -> QuerySet[Transfer]:
    """The transfers of bookings that the budget counts."""
    rows = Transfer.objects.filter(day__gte=budget.starts, day__lt=budget.ends)
    if budget.tenant_id is not None:
        rows = rows.filter(tenant_id=budget.tenant_id)
    if budget.lab_id is not None:
        rows = rows.filter(
            Q(debit__budget__project__lab=budget.lab_id)
            | Q(kind="reverse", credit__budget__project__lab=budget.lab_id)
        )
    if budget.project_id is not None:
        rows = rows.filter(
            Q(debit__budget__project=budget.project_id)
            | Q(kind="reverse", credit__budget__project=budget.project_id)
        )
    if budget.campaign_id is not None:
        rows = rows.filter(campaign=budget.campaign_id)
    if budget.person_id is not None:
        rows = rows.filter(person=budget.person_id)
    return rows


def money_held() -> tuple[int, Decimal]:
    """The number of bookings with held money and its sum, in all tenants. For operators."""
    held = Transfer.objects.filter(kind="hold", end=None).aggregate(
        count=Count("reference", distinct=True), amount=Sum("amount")
    )
    return held["count"], held["amount"] or Decimal(0)


def reference_totals(*, tenant_id: UUID, reference: UUID) -> tuple[Decimal, Decimal]:
    """The held and the charged amount of one reference, over all budgets."""
    rows = Transfer.objects.filter(tenant_id=tenant_id, reference=reference)
    held = rows.filter(kind="hold", end__isnull=True).aggregate(sum=Sum("amount"))["sum"]
    charged = rows.filter(kind="settle").aggregate(sum=Sum("amount"))["sum"]
    return held or Decimal(0), charged or Decimal(0)


def _effects(budgets: QuerySet[Budget]) -> list[BudgetFigures]:
    return [_effect(row, row.reversed_credits, row.corrected) for row in _with_sums(budgets)]


def _with_sums(budgets: QuerySet[Budget]) -> QuerySet[Any]:
    return budgets.select_related(*OWNERS, "account").annotate(
        reversed_credits=_reversed("debit"), corrected=_reversed("credit")
    )


def _reversed(side: str) -> Coalesce:
    """The sum of reversals whose `side` is the budget's account."""
    sums = (
        Transfer.objects.filter(kind="reverse", **{side: OuterRef("account_id")})
        .order_by()
        .values(side)
        .annotate(sum=Sum("amount"))
        .values("sum")
    )
    return Coalesce(Subquery(sums), Value(Decimal(0)), output_field=_MONEY)


def _returned(account: str) -> Coalesce:
    """The sum of reversals of an account: of what it was given, and of what it was charged."""
    own = Q(debit=OuterRef(account)) | Q(credit=OuterRef(account))
    rows = Transfer.objects.filter(own, kind="reverse").order_by().values("kind")
    sums = rows.annotate(sum=Sum("amount")).values("sum")
    return Coalesce(Subquery(sums), Value(Decimal(0)), output_field=_MONEY)


_budgets_by_id = Compiled(lambda _, keys: _with_sums(Budget.objects.filter(id__in=keys)), keys="uuid")


def _effect(budget: Budget, reversed_credits: Decimal, corrected: Decimal) -> BudgetFigures:
    account = budget.account
    return BudgetFigures(
        budget_id=budget.id,
        level=budget.level,
        project_id=budget.project_id,
        campaign_id=budget.campaign_id,
        person_id=budget.person_id,
        lab_id=budget.lab_id,
        name=budget_name(budget),
        # Money returned to the source is not part of the amount; corrected charges are not spent.
        amount=account.credits - corrected - reversed_credits,
        spent=account.debits - corrected - reversed_credits,
        held=account.pending,
        left=account.credits - account.debits - account.pending,
        currency=account.currency,
        starts=budget.starts,
        ends=budget.ends,
        warn_percent=budget.warn_percent,
        is_hard=account.limited,
        is_repeated=budget.repeat_amount is not None,
        rolls_over=budget.rolls_over,
        forecast=budget.forecast,
        unit_limit=unit_limit_of(budget),
        unit_cost=budget.unit_cost,
    )


def unit_limit_of(budget: Budget) -> UnitLimit | None:
    """The most that units of progress may cost, if the budget limits that."""
    if budget.unit_most is None or budget.unit_count is None:
        return None
    return UnitLimit(budget.unit_most, budget.unit_count, budget.unit)


def budget_name(budget: Budget) -> str:
    """Whose budget it is: the name of the organisation, lab, project, campaign or person."""
    if budget.person is not None:
        return budget.person.display_name
    owner = budget.campaign or budget.project or budget.lab or budget.tenant
    return str(owner.name) if owner is not None else PLATFORM_NAME


_LEDGER_CHECK = """
WITH moved AS (
  SELECT account_id, sum(credits) AS credits, sum(debits) AS debits, sum(pending) AS pending
  FROM billing_movement GROUP BY account_id
)
SELECT account.tenant_id, account.id, figure.field, figure.stored, figure.recomputed
FROM billing_account AS account
LEFT JOIN moved ON moved.account_id = account.id
CROSS JOIN LATERAL (VALUES
  ('credits', account.credits, coalesce(moved.credits, 0)),
  ('debits', account.debits, coalesce(moved.debits, 0)),
  ('pending', account.pending, coalesce(moved.pending, 0))
) AS figure (field, stored, recomputed)
WHERE account.kind = 'budget' AND figure.stored <> figure.recomputed
ORDER BY account.id, figure.field
"""


def ledger_check() -> list[BalanceMismatch]:
    """Recomputes every budget account from its transfers; returns the mismatches.

    Only budgets keep running balances; accounts of kind source and spend would be locked by every
    booking. The result covers the rows that the caller's database role can read.
    """
    with connection.cursor() as cursor:
        cursor.execute(_LEDGER_CHECK)
        return [BalanceMismatch(*row) for row in cursor.fetchall()]
