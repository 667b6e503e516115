"""Compares the spend of budgets with plan and usual days, once a day; announces what is unusual."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db import transaction
from django.db.models import Min

from allocation.models import ChargeSum, SpendVariance
from allocation.queries.bookings.money.spending import charges_counted
from allocation.queries.bookings.money.variances import (
    BookingSpend,
    bookings_on,
    spend_on,
    spend_sum,
)
from allocation.rules.variance import (
    CAUSES,
    ZERO,
    Spend,
    mean_prices,
    mix_change,
    usual_price,
    usual_share,
    variance_parts,
)
from billing.models import Budget
from billing.queries import OWNERS, budget_figures_of
from billing.rules import ledger_amount
from tenants.failures import each_apart
from tenants.outbox import outbox_add

VARIANCE = "budget.variance"
WEEKS, LEAST_WEEKS = 4, 2
USUAL_DAYS, LEAST_DAYS = 28, 7
LISTED = 5
MOST_PLACES = 4
DAY = timedelta(days=1)
Against = SpendVariance.Against


@dataclass(frozen=True, slots=True)
class _Compared:
    """What was spent, by booking, what is usual, and what was planned."""

    rows: Sequence[BookingSpend]
    actual: Spend
    usual: Spend
    planned: Decimal | None = None

    @property
    def expected(self) -> Decimal:
        """The plan, or else the usual spend."""
        return self.usual.total if self.planned is None else self.planned


def variances_store(now: datetime) -> int:
    """Compares the spend until yesterday of each budget; returns how many comparisons are new. Safe
    to run twice, and for several at once."""
    day = now.astimezone(UTC).date() - DAY
    budgets = Budget.objects.filter(starts__lte=day, ends__gt=day)
    stored = set(SpendVariance.objects.filter(day=day).values_list("budget_id", "against"))

    def compared(budget: Budget) -> int:
        return sum(
            _store(budget, day, against, compare, now)
            for against, compare in ((Against.WEEKDAY, _with_weekday), (Against.PLAN, _with_plan))
            if (budget.id, against) not in stored
        )

    rows = budgets.select_related(*OWNERS).order_by("id")
    return each_apart("variances", rows, compared, now)


def _store(
    budget: Budget,
    day: date,
    against: SpendVariance.Against,
    compare: Callable[[Budget, date], _Compared | None],
    now: datetime,
) -> bool:
    compared = compare(budget, day)
    if compared is None:
        return False
    actual, expected = compared.actual.total, compared.expected
    values = {
        "tenant_id": budget.tenant_id,
        "actual": actual,
        "expected": expected,
        "parts": _parts(compared),
        "is_unusual": _is_unusual(budget, actual, expected),
        "at": now,
    }
    with transaction.atomic():
        row, is_new = SpendVariance.objects.get_or_create(
            budget=budget, day=day, against=against, defaults=values
        )
        if is_new and row.is_unusual and not _is_announced(row):
            payload = _payload(row, budget)
            outbox_add(tenant_id=budget.tenant_id, kind=VARIANCE, payload=payload, now=now)
    return is_new


def _with_weekday(budget: Budget, day: date) -> _Compared | None:
    """Compares a day with the mean of the same weekday; None with too little history."""
    first = _first_charge(budget)
    before = [day - 7 * DAY * number for number in range(1, WEEKS + 1)]
    before = [each for each in before if first is not None and each >= first]
    if len(before) < LEAST_WEEKS:
        return None
    rows = bookings_on(budget, [day])
    usual = spend_on(budget, before).scaled(1, len(before))
    return _Compared(rows, spend_sum(rows), usual)


def _with_plan(budget: Budget, day: date) -> _Compared | None:
    """Compares the period so far with an even share of the amount; None without an amount.

    Without a week of history before the period, usual is what the plan pays for at actual prices.
    """
    amount = budget_figures_of([budget.id])[budget.id].amount
    if not amount:
        return None
    elapsed, whole = (day - budget.starts).days + 1, (budget.ends - budget.starts).days
    planned = ledger_amount(amount * elapsed / whole)
    days_so_far = [budget.starts + DAY * number for number in range(elapsed)]
    rows = bookings_on(budget, days_so_far, only_own=True)
    actual, first = spend_sum(rows), _first_charge(budget)
    known = 0 if first is None else min(USUAL_DAYS, (budget.starts - first).days)
    if known >= LEAST_DAYS:
        days = [budget.starts - DAY * number for number in range(1, known + 1)]
        usual = spend_on(budget, days).scaled(elapsed, known)
    else:
        usual = actual.scaled(planned, actual.total) if actual.total > 0 else Spend()
    return _Compared(rows, actual, usual, planned)


def _first_charge(budget: Budget) -> date | None:
    rows = ChargeSum.objects.filter(charges_counted(budget))
    first: date | None = rows.aggregate(day=Min("day"))["day"]
    return first


def _is_unusual(budget: Budget, actual: Decimal, expected: Decimal) -> bool:
    """Only more than expected is unusual; both thresholds have to be crossed."""
    if budget.variance_percent is None or actual <= expected:
        return False
    more = actual - expected
    return more >= budget.variance_amount and more * 100 >= expected * budget.variance_percent


def _is_announced(row: SpendVariance) -> bool:
    """A period that stays above its plan is announced once."""
    if row.against != Against.PLAN:
        return False
    before = SpendVariance.objects.filter(budget=row.budget_id, against=row.against, day=row.day - DAY)
    return before.filter(is_unusual=True).exists()


def _parts(compared: _Compared) -> list[dict[str, Any]]:
    amounts = variance_parts(compared.usual, compared.actual, compared.planned)
    return [
        {
            "cause": cause,
            "amount": f"{amounts[cause]:f}",
            "facts": _facts(cause, compared),
            **_listed(cause, compared),
        }
        for cause in CAUSES
        if amounts[cause]
    ]


def _facts(cause: str, compared: _Compared) -> dict[str, str]:
    usual, actual = compared.usual, compared.actual
    if cause == "plan":
        return {"usual": f"{usual.total:.2f}", "planned": f"{compared.expected:.2f}"}
    if cause == "volume":
        return _apart(usual.hours, actual.hours, 1)
    if cause in ("class", "tier"):
        of_class = cause == "tier"
        cell, before, after = mix_change(usual, actual, of_class=of_class)
        shares = _apart(before * 100, after * 100, 0)
        return {"name": cell[1] if of_class else cell[0], **shares} if shares else {}
    if cause == "price":
        return _apart(*mean_prices(usual, actual), 2)
    return {}


def _apart(before: Decimal, after: Decimal, places: int) -> dict[str, str]:
    """Both numbers with as many decimal places as show that they differ; empty if none do."""
    for more in range(places, MOST_PLACES + 1):
        texts = f"{before:.{more}f}", f"{after:.{more}f}"
        if texts[0] != texts[1]:
            return dict(zip(("before", "after"), texts, strict=True))
    return {}


def _listed(cause: str, compared: _Compared) -> dict[str, Any]:
    """The bookings behind a cause: those with the largest amounts, and how many there are."""
    found: dict[str, Decimal] = {}
    for row in compared.rows:
        amount = _share_of(cause, row, compared)
        if row.booking and amount:
            found[row.booking] = found.get(row.booking, ZERO) + amount
    ranked = sorted(found.items(), key=lambda each: (-abs(each[1]), each[0]))
    bookings = [{"booking": name, "amount": f"{each:f}"} for name, each in ranked[:LISTED]]
    return {"bookings": bookings, "count": len(ranked)}


def _share_of(cause: str, row: BookingSpend, compared: _Compared) -> Decimal:
    """What a booking was charged, if it is behind the cause; for `price` what it cost more."""
    if row.kind != "use" or cause in ("fees", "corrections"):
        return row.metered.amount if row.kind == cause else ZERO
    if cause == "price":
        usual = usual_price(compared.usual, compared.actual, row.cell)
        return ledger_amount(row.metered.amount - row.metered.hours * usual)
    if cause in ("class", "tier"):
        of_class = cause == "tier"
        now, was = (
            usual_share(each, row.cell, of_class=of_class) for each in (compared.actual, compared.usual)
        )
        return row.metered.amount if now > was else ZERO
    return row.metered.amount


def _payload(row: SpendVariance, budget: Budget) -> dict[str, Any]:
    figures = budget_figures_of([budget.id])[budget.id]
    return {
        "budget": str(budget.id),
        "variance": str(row.id),
        "project": str(budget.project_id) if budget.project_id else None,
        "level": budget.level,
        "name": figures.name,
        "day": row.day.isoformat(),
        "against": row.against,
        "currency": figures.currency,
        "actual": str(row.actual),
        "expected": str(row.expected),
        "parts": row.parts,
        "audience": "both",
    }
