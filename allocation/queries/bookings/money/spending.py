"""What projects have spent, from the sums that the ledger keeps."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, timedelta
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

from django.db.models import Case, F, Q, Sum, When
from django.db.models.functions import Coalesce, TruncDate

from allocation.models import ChargeSum
from billing.models import Budget, Transfer
from billing.rules import midnight
from tenants.models import Project, Tier, User

ZERO = Decimal(0)
RENTED = "Rented machines"
"""Names the charges that are of no booking, and so of no person, tier or class."""
CHARGED_BEFORE = timedelta(days=400)
"""Longer before its start than any booking is charged."""
PAID = Coalesce(F("charged"), F("settled")) + F("corrected") - F("late_refunded")
"""What budgets count as spent of a booking: its charges, also before it is over, with corrections and
refunds."""


@dataclass(frozen=True, slots=True)
class SpendShare:
    """The charges of one person or tier in the period, or of rented machines."""

    name: str
    amount: Decimal


def charged_by_day_in(budget: Budget, since: date, until: date) -> dict[date, Decimal]:
    """Charges minus corrections per UTC day of [since, until), of all that the budget counts."""
    rows = ChargeSum.objects.filter(charges_counted(budget), day__gte=since, day__lt=until)
    return _by_day(rows)


def spent_by_day(budget: Budget, until: date) -> dict[date, Decimal]:
    """What is spent of the budget by UTC day before `until`; all days add up to it.

    A charge is of the budget on whose day its money was held: on the first of a month, most are of the
    month before, and the fee for a booking that was cancelled early can be of the next one.
    """
    rows = ChargeSum.objects.filter(day__gte=budget.starts - CHARGED_BEFORE, day__lt=until)
    if budget.level == Budget.Level.PROJECT:
        found = _by_day(rows.filter(account=budget.account_id))
    elif budget.campaign_id is not None or budget.person_id is not None:
        found = dict(_spent_by_transfers(budget, until, Q()))
    else:
        within = Q(account__budget__starts__gte=budget.starts, account__budget__ends__lte=budget.ends)
        found = _by_day(rows.filter(charges_counted(budget) & within))
        longer = Q(starts__lt=budget.starts) | Q(ends__gt=budget.ends)
        for day, amount in _spent_by_transfers(budget, until, longer):
            found[day] = found.get(day, ZERO) + amount
    early = sum((found.pop(day) for day in [*found] if day < budget.starts), ZERO)
    if early:
        found[budget.starts] = found.get(budget.starts, ZERO) + early
    return found


def _spent_by_transfers(budget: Budget, until: date, which: Q) -> Iterable[tuple[date, Decimal]]:
    """Spend by day of projects' budgets, read from their transfers. The sums by day don't have the day on
    which money was held, nor the person and the campaign of a rented machine."""
    accounts = Budget.objects.filter(
        which,
        level=Budget.Level.PROJECT,
        starts__lt=budget.ends,
        ends__gt=budget.starts,
    )
    for name in ("tenant_id", "project_id"):
        if value := getattr(budget, name):
            accounts = accounts.filter(**{name: value})
    if budget.lab_id is not None:
        accounts = accounts.filter(project__lab=budget.lab_id)
    paying = list(accounts.values_list("account_id", flat=True))
    if not paying:
        return ()
    rows = Transfer.objects.filter(
        Q(kind="reverse", credit__in=paying) | Q(kind__in=("settle", "charge"), debit__in=paying),
        reference__isnull=False,
        day__gte=budget.starts,
        day__lt=budget.ends,
        at__lt=midnight(until),
    )
    if budget.campaign_id is not None:
        rows = rows.filter(campaign=budget.campaign_id)
    if budget.person_id is not None:
        rows = rows.filter(person=budget.person_id)
    signed = Case(When(kind="reverse", then=-F("amount")), default=F("amount"))
    days = rows.annotate(paid_on=TruncDate("at", tzinfo=UTC)).values("paid_on").annotate(total=Sum(signed))
    return days.values_list("paid_on", "total")


def charges_counted(budget: Budget) -> Q:
    """The kept sums of charges that the budget counts."""
    found = Q() if budget.tenant_id is None else Q(tenant=budget.tenant_id)
    if budget.lab_id is not None:
        found &= Q(account__budget__project__lab=budget.lab_id)
    if budget.project_id is not None:
        found &= Q(account__budget__project=budget.project_id)
    if budget.campaign_id is not None:
        found &= Q(campaign=budget.campaign_id)
    if budget.person_id is not None:
        found &= Q(owner=budget.person_id)
    return found


def spend_by_person(*, project: Project, budget_id: UUID) -> list[SpendShare]:
    """Charges from the budget by owner, highest first."""
    sums = _shares(project, budget_id, "owner_id")
    people = User.objects.in_bulk([key for key in sums if key])
    return _ranked((people[key].display_name if key else RENTED, total) for key, total in sums.items())


def spend_by_tier(*, project: Project, budget_id: UUID) -> list[SpendShare]:
    """Charges from the budget by tier, highest first."""
    sums = _shares(project, budget_id, "tier")
    tiers = Tier.objects.in_bulk(list(sums))
    return _ranked((tiers[key].name if key else RENTED, total) for key, total in sums.items())


def _by_day(rows: Any) -> dict[date, Decimal]:  # noqa: ANN401
    return dict(rows.values("day").annotate(total=Sum("exact")).values_list("day", "total"))


def _shares(project: Project, budget_id: UUID, column: Literal["owner_id", "tier"]) -> dict[Any, Decimal]:
    """Charges minus corrections of the project by a column; those of no booking under None or ''."""
    rows = ChargeSum.objects.filter(account__budget=budget_id, account__budget__project=project)
    return dict(rows.values(column).annotate(total=Sum("exact")).values_list(column, "total"))


def _ranked(sums: Iterable[tuple[str, Decimal]]) -> list[SpendShare]:
    by_name: dict[str, Decimal] = defaultdict(lambda: ZERO)
    for name, amount in sums:
        by_name[name] += amount
    ranked = sorted(by_name.items(), key=lambda each: (-each[1], each[0]))
    return [SpendShare(name, amount) for name, amount in ranked]
