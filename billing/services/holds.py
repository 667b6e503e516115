"""Holds: money that a booking reserves, charged or released when the booking ends."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import OuterRef, Subquery

from billing.models import Account, Budget, Transfer
from billing.rules import (
    Period,
    ceil_to_cents,
    floor_to_cents,
    ledger_amount,
    midnight,
    money_text,
    period_text,
    split_by_seconds,
    uncovered_from,
)
from billing.services.ledger import OVERSPENT, account_of, constraint_of, current_figures
from tenants.models import Project
from tenants.platform.errors import Refused


@dataclass(frozen=True, slots=True)
class _BudgetShare:
    """The share of an amount that one budget holds."""

    budget: Budget
    amount: Decimal


@dataclass(frozen=True, slots=True)
class HoldRequest:
    """An amount to hold for a reference over [starts, ends)."""

    reference: UUID
    amount: Decimal
    starts: datetime
    ends: datetime


def hold_place(  # noqa: PLR0913 (a hold has exactly these facts; callers have no object for them)
    *,
    tenant_id: UUID,
    project_id: UUID,
    reference: UUID,
    amount: Decimal,
    starts: datetime,
    ends: datetime,
    now: datetime,
) -> None:
    """Holds `amount` in the budgets of [starts, ends), split by seconds at UTC midnights.

    A reference may have several holds (an extension adds one). Writes nothing for zero.

    Raises:
        Refused: `no_budget` or `budget_exceeded`; then nothing is held.
    """
    request = HoldRequest(reference, amount, starts, ends)
    refused = holds_place(tenant_id=tenant_id, project_id=project_id, requests=[request], now=now)
    if refused:
        raise refused[reference]


def holds_place(
    *, tenant_id: UUID, project_id: UUID, requests: Sequence[HoldRequest], now: datetime
) -> dict[UUID, Refused]:
    """Like `hold_place`, for many references of a project in one statement.

    Returns the refused references with their reasons; if money is short, earlier ones are served
    first.
    """
    refused: dict[UUID, Refused] = {}
    parts: dict[UUID, list[_BudgetShare]] = {}
    starts = min(request.starts for request in requests)
    budgets = _budgets(tenant_id, project_id, starts, max(request.ends for request in requests))
    for request in requests:
        try:
            parts[request.reference] = _parts(project_id, request, budgets)
        except Refused as refusal:
            refused[request.reference] = refusal
    holds = _holds(parts, now)
    try:
        with transaction.atomic():
            Transfer.objects.bulk_create(holds)
    except IntegrityError as error:
        if constraint_of(error) != OVERSPENT:
            raise
        refused |= _holds_place_each(parts, holds)
    return refused


def _holds_place_each(
    parts: dict[UUID, list[_BudgetShare]], holds: Sequence[Transfer]
) -> dict[UUID, Refused]:
    """Holds each reference that the budgets can pay; returns the refused ones."""
    refused: dict[UUID, Refused] = {}
    for reference, mine in parts.items():
        try:
            with transaction.atomic():
                Transfer.objects.bulk_create(h for h in holds if h.reference == reference)
        except IntegrityError as error:
            if constraint_of(error) != OVERSPENT:
                raise
            refused[reference] = _exceeded(mine)
    return refused


def holds_move(
    *, tenant_id: UUID, project_id: UUID, requests: Sequence[HoldRequest], now: datetime
) -> dict[UUID, Refused]:
    """Moves the holds of a project's bookings to the budgets of their planned windows.

    Returns the bookings whose new budgets are missing or have too little money, with the reason:
    their holds stay in the budgets of the requested window. Two statements find the holds that
    are already right, for which nothing is written.
    """
    refused: dict[UUID, Refused] = {}
    starts, ends = (
        min(request.starts for request in requests),
        max(request.ends for request in requests),
    )
    budgets = _budgets(tenant_id, project_id, starts, ends)
    placed: dict[UUID | None, list[Transfer]] = defaultdict(list)
    for hold in _open_holds(tenant_id, [request.reference for request in requests]):
        placed[hold.reference].append(hold)
    for request in requests:
        try:
            parts = _parts(project_id, request, budgets)
            wanted = sorted((part.budget.account_id, part.amount) for part in parts)
            if wanted == sorted((hold.debit_id, hold.amount) for hold in placed[request.reference]):
                continue
            with transaction.atomic():
                hold_release(tenant_id=tenant_id, reference=request.reference, now=now)
                hold_place(
                    tenant_id=tenant_id, project_id=project_id, reference=request.reference,
                    amount=request.amount, starts=request.starts, ends=request.ends, now=now,
                )  # fmt: skip
        except Refused as refusal:
            refused[request.reference] = refusal
    return refused


def hold_settle(*, tenant_id: UUID, reference: UUID, amount: Decimal, now: datetime) -> Decimal:
    """Charges `amount` to the open holds of the reference, oldest period first; ends them all.

    Never charges more than was held. Returns the charged amount: zero if an earlier call has ended
    the holds.
    """
    holds = _open_holds(tenant_id, [reference])
    return _settle(holds, _taken(holds, amount), now)


def hold_settle_partially(
    *, tenant_id: UUID, reference: UUID, amount: Decimal, keep: Decimal, now: datetime
) -> tuple[Decimal, Decimal]:
    """Charges `amount` now, oldest period first, and keeps `keep` on hold.

    The rest stays in the budgets that held it, the latest period first, so it always fits. Returns
    the charged and the held amount, together never more than was held.
    """
    with transaction.atomic():
        holds = _open_holds(tenant_id, [reference])
        taken = _taken(holds, amount)
        charged = _settle(holds, taken, now)
        kept: list[Transfer] = []
        rest = ledger_amount(keep)
        for hold, used in reversed(list(zip(holds, taken, strict=True))):
            again = min(rest, hold.amount - used)
            rest -= again
            if again:
                kept.append(_hold_copy(hold, again, now))
        Transfer.objects.bulk_create(sorted(kept, key=lambda each: each.debit_id))
    return charged, sum((each.amount for each in kept), Decimal(0))


def hold_release(*, tenant_id: UUID, reference: UUID, now: datetime) -> None:
    """Ends the open holds of the reference without a charge."""
    hold_settle(tenant_id=tenant_id, reference=reference, amount=Decimal(0), now=now)


def _budgets(tenant_id: UUID, project_id: UUID, starts: datetime, ends: datetime) -> list[Budget]:
    """The project's budgets in a window by start, each with its tenant's `spend` account."""
    last_instant = ends - timedelta(microseconds=1)
    spend = Account.objects.filter(
        tenant=OuterRef("tenant"), kind="spend", currency=OuterRef("account__currency")
    )
    return list(
        Budget.objects.filter(
            tenant_id=tenant_id,
            project_id=project_id,
            starts__lte=last_instant.astimezone(UTC).date(),
            ends__gt=starts.astimezone(UTC).date(),
        )
        .select_related("account", "project")
        .annotate(spend=Subquery(spend.values("id")[:1]))
        .order_by("starts")
    )


def _parts(project_id: UUID, request: HoldRequest, budgets: Sequence[Budget]) -> list[_BudgetShare]:
    """The share of each budget in the request's window; empty for an amount of zero.

    Raises:
        Refused: `no_budget`.
    """
    amount = ledger_amount(request.amount)
    if amount < 0 or request.ends <= request.starts:
        raise ValueError("a hold needs an amount of at least zero and a window")
    if not amount:
        return []
    periods = [Period(budget.starts, budget.ends) for budget in budgets]
    reach = [
        (budget, period)
        for budget, period in zip(budgets, periods, strict=True)
        if period.first_second < request.ends and period.last_second > request.starts
    ]
    periods = [period for _, period in reach]
    gap = uncovered_from(request.starts, request.ends, periods)
    if gap is not None:
        raise _no_budget(project_id, gap)
    shares = split_by_seconds(amount, request.starts, request.ends, periods)
    return [
        _BudgetShare(budget, share)
        for (budget, _), share in zip(reach, shares, strict=True)
        if share
    ]


def _holds(parts: dict[UUID, list[_BudgetShare]], now: datetime) -> list[Transfer]:
    """The transfers of each reference, in the order in which all writers lock budgets."""
    flat = [(reference, part) for reference, mine in parts.items() for part in mine]
    holds = [
        Transfer(
            tenant_id=part.budget.account.tenant_id,
            kind="hold",
            debit=part.budget.account,
            credit_id=_spend_id(part.budget),
            amount=part.amount,
            reference=reference,
            at=now,
        )
        for reference, part in flat
    ]
    return sorted(holds, key=lambda hold: hold.debit_id)


def _spend_id(budget: Budget) -> UUID:
    """The tenant's `spend` account in the budget's currency, created on first use."""
    found: UUID | None = getattr(budget, "spend", None)
    return found or account_of(budget.tenant_id, "spend", budget.account.currency).id


def _open_holds(tenant_id: UUID, references: Sequence[UUID]) -> list[Transfer]:
    return list(
        Transfer.objects.filter(
            tenant_id=tenant_id, reference__in=references, kind="hold", end__isnull=True
        ).order_by("debit__budget__starts", "at", "id")
    )


def _taken(holds: Sequence[Transfer], amount: Decimal) -> list[Decimal]:
    """The part of `amount` that each hold pays, in order."""
    rest = ledger_amount(amount)
    if rest < 0:
        raise ValueError("a charge can't be negative")
    taken = []
    for hold in holds:
        taken.append(min(rest, hold.amount))
        rest -= taken[-1]
    return taken


def _settle(holds: Sequence[Transfer], taken: Sequence[Decimal], now: datetime) -> Decimal:
    ends = [
        _ending_transfer(hold, charged, now) for hold, charged in zip(holds, taken, strict=True)
    ]
    # The trigger locks accounts in the order of rows; holds that have ended are skipped.
    ends.sort(key=lambda transfer: (transfer.debit_id, transfer.id))
    Transfer.objects.bulk_create(ends, ignore_conflicts=True)
    mine = Transfer.objects.filter(id__in=[end.id for end in ends], kind="settle")
    return sum(mine.values_list("amount", flat=True), Decimal(0))


def _hold_copy(hold: Transfer, amount: Decimal, now: datetime) -> Transfer:
    return Transfer(
        tenant_id=hold.tenant_id,
        kind="hold",
        debit_id=hold.debit_id,
        credit_id=hold.credit_id,
        amount=amount,
        reference=hold.reference,
        at=now,
    )


def _ending_transfer(hold: Transfer, charged: Decimal, now: datetime) -> Transfer:
    return Transfer(
        tenant_id=hold.tenant_id,
        kind="settle" if charged else "release",
        debit_id=hold.debit_id,
        credit_id=hold.credit_id,
        amount=charged or hold.amount,
        hold=hold,
        reference=hold.reference,
        at=now,
    )


def _no_budget(project_id: UUID, gap: datetime) -> Refused:
    project = Project.objects.get(id=project_id)
    return Refused(
        "no_budget",
        f"{project.name} has no budget from {gap.day} {gap:%b %Y} on."
        " The tenant's admin can set one; a booking that ends before then works now.",
        "budget",
        param="request",
        rule="R11",
        owner="tenant_admin",
        numbers={"project": project.slug, "from": gap.astimezone(UTC).date().isoformat()},
    )


def _exceeded(parts: Sequence[_BudgetShare]) -> Refused:
    """The refusal for the budget with the least money left, with its current figures."""
    figures = [(part, current_figures(part.budget)) for part in parts]
    part, effect = min(figures, key=lambda pair: pair[1].left - pair[0].amount)
    project, currency = part.budget.project, effect.currency
    left, needs = floor_to_cents(effect.left), ceil_to_cents(part.amount)
    return Refused(
        "budget_exceeded",
        f"{project.name} has {money_text(left, currency)} left for {period_text(effect.period)};"
        f" this needs {money_text(needs, currency)}. The tenant's admin can raise the budget;"
        " a shorter or smaller booking, a cheaper tier or a slice needs less.",
        "budget",
        param="request",
        rule="R10",
        owner="tenant_admin",
        frees_at=midnight(effect.ends),
        numbers={
            "project": project.slug,
            "currency": currency,
            "amount": str(floor_to_cents(effect.amount)),
            "spent": str(floor_to_cents(effect.spent)),
            "held": str(floor_to_cents(effect.held)),
            "left": str(left),
            "needs": str(needs),
            "short": str(max(Decimal("0.01"), ceil_to_cents(part.amount - effect.left))),
        },
    )
