"""The shares of a hold, and its rows in the ledger: which budget pays for which days."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

from django.db.models import Min, OuterRef, Q, Subquery
from django.utils import timezone

from billing.models import Account, Budget, Transfer
from billing.platform_limits import platform_limits
from billing.queries import OWNERS
from billing.rules import Period, ledger_amount, midnight, split_by_seconds, uncovered_from
from billing.services.ledger import account_of
from billing.words import refusal_text
from tenants.models import Project
from tenants.platform.errors import Refused
from tenants.platform.reference import by_version


@dataclass(frozen=True, slots=True)
class BudgetShare:
    """The share of an amount that one budget holds, counted by other levels on `day`."""

    budget: Budget
    amount: Decimal
    period: Period
    day: date
    limits: tuple[Budget, ...]
    """The budgets of other levels that count it, too."""


@dataclass(frozen=True, slots=True)
class HoldRequest:
    """An amount to hold for a reference over [starts, ends), for a person and perhaps a campaign.

    The person and the campaign decide which budgets count it besides those of the project and the
    tenant.
    """

    reference: UUID
    amount: Decimal
    starts: datetime
    ends: datetime
    person_id: int | None = None
    campaign_id: UUID | None = None


def budgets_of_requests(tenant_id: UUID, project_id: UUID, requests: Sequence[HoldRequest]) -> list[Budget]:
    """The budgets of all levels in the requests' windows by start, each with its tenant's `spend`
    account."""
    starts, ends = min(each.starts for each in requests), max(each.ends for each in requests)
    first = starts.astimezone(UTC).date()
    last = (ends - timedelta(microseconds=1)).astimezone(UTC).date()
    people = {each.person_id for each in requests} | {None}
    campaigns = {each.campaign_id for each in requests} | {None}
    return [
        budget
        for budget in _budgets_read(tenant_id, project_id, first.replace(day=1))
        if budget.starts <= last
        and budget.ends > first
        and budget.person_id in people
        and budget.campaign_id in campaigns
    ]


@by_version
def _budgets_read(tenant_id: UUID, project_id: UUID, ending_after: date) -> tuple[Budget, ...]:
    """The budgets of the tenant and the project's lab, all of the project, and the periods of the
    platform's. Their balances are not for use."""
    labs = Project.objects.filter(id=project_id, lab__isnull=False).values("lab")
    spend = Account.objects.filter(
        tenant=OuterRef("tenant"), kind="spend", currency=OuterRef("account__currency")
    )
    own = (
        Budget.objects.filter(
            Q(level="tenant") | Q(project_id=project_id) | Q(lab__in=labs),
            tenant_id=tenant_id,
            ends__gt=ending_after,
        )
        .select_related("account", *OWNERS)
        .annotate(spend=Subquery(spend.values("id")[:1]))
        .order_by("starts")
    )
    above = (each for each in platform_limits() if each.ends > ending_after)
    return (*own, *above)


def shares_of(project_id: UUID, request: HoldRequest, budgets: Sequence[Budget]) -> list[BudgetShare]:
    """The share of each budget in the request's window; empty for an amount of zero.

    The window is split wherever a budget of any level begins or ends.

    Raises:
        Refused: `no_budget`.
    """
    amount = ledger_amount(request.amount)
    if amount < 0 or request.ends <= request.starts:
        raise ValueError("a hold needs an amount of at least zero and a window")
    if not amount:
        return []
    own = [budget for budget in budgets if budget.level == Budget.Level.PROJECT]
    reach = [budget for budget in own if _touches(budget, request)]
    gap = uncovered_from(request.starts, request.ends, [Period(each.starts, each.ends) for each in reach])
    if gap is not None:
        raise _no_budget(project_id, gap, request)
    limits = [each for each in budgets if _counts(each, request) and _touches(each, request)]
    cuts = {day for each in limits for day in (each.starts, each.ends)}
    pieces = [
        (budget, period) for budget in reach for period in Period(budget.starts, budget.ends).cut_at(cuts)
    ]
    shares = split_by_seconds(amount, request.starts, request.ends, [period for _, period in pieces])
    return [
        _share(budget, period, share, request, limits)
        for (budget, period), share in zip(pieces, shares, strict=True)
        if share
    ]


def _share(
    budget: Budget,
    period: Period,
    amount: Decimal,
    request: HoldRequest,
    limits: Sequence[Budget],
) -> BudgetShare:
    day = max(period.starts, request.starts.astimezone(UTC).date())
    counting = tuple(each for each in limits if each.starts <= day < each.ends)
    return BudgetShare(budget, amount, period, day, counting)


def _touches(budget: Budget, request: HoldRequest) -> bool:
    return midnight(budget.starts) < request.ends and midnight(budget.ends) > request.starts


def _counts(budget: Budget, request: HoldRequest) -> bool:
    """Whether a budget of another level counts the request."""
    return (
        budget.level != Budget.Level.PROJECT
        and budget.campaign_id in (None, request.campaign_id)
        and budget.person_id in (None, request.person_id)
    )


def _no_budget(project_id: UUID, gap: datetime, request: HoldRequest) -> Refused:
    """The refusal for days without a budget, from `gap` on, or until the next budget begins. Its limit are
    the seconds before that.

    A budget's days are UTC days, so elsewhere it ends within a day: the sentence has the moment, on a
    page in its reader's zone, and names the zone.
    """
    project = Project.objects.get(id=project_id)
    later = Budget.objects.filter(
        level=Budget.Level.PROJECT, project=project, starts__gt=gap.astimezone(UTC).date()
    )
    again = later.aggregate(starts=Min("starts"))["starts"]
    covered = max(0, int((gap - request.starts).total_seconds()))
    rest = "; a booking that ends before then works now" if covered else ""
    return Refused(
        "no_budget",
        refusal_text(
            "no_budget",
            project=project.name,
            since=_moment(gap),
            until=f"until {_moment(midnight(again))}" if again else "on",
            rest=rest,
        ),
        "budget",
        param="request",
        rule="R11",
        owner="tenant_admin",
        numbers={
            "project": project.slug,
            "from": gap.astimezone(UTC).date().isoformat(),
            "at": gap.astimezone(UTC).isoformat(),
            "asked": int((request.ends - request.starts).total_seconds()),
            "limit": covered,
        },
    )


def holds_of(
    requests: Sequence[HoldRequest], parts: dict[UUID, list[BudgetShare]], now: datetime
) -> list[Transfer]:
    """The transfers of each reference; the trigger locks their accounts in one order."""
    return [
        Transfer(
            tenant_id=part.budget.tenant_id,
            kind="hold",
            debit=part.budget.account,
            credit_id=_spend_id(part.budget),
            amount=part.amount,
            reference=request.reference,
            day=part.day,
            person_id=request.person_id,
            campaign_id=request.campaign_id,
            at=now,
        )
        for request in requests
        for part in parts.get(request.reference, ())
    ]


def _spend_id(budget: Budget) -> UUID:
    """The tenant's `spend` account in the budget's currency, created on first use."""
    found: UUID | None = getattr(budget, "spend", None)
    return found or account_of(budget.tenant_id, "spend", budget.account.currency).id


def hold_copy(hold: Transfer, amount: Decimal, now: datetime) -> Transfer:
    """A hold of another amount with the same facts."""
    return Transfer(
        tenant_id=hold.tenant_id,
        kind="hold",
        debit_id=hold.debit_id,
        credit_id=hold.credit_id,
        amount=amount,
        reference=hold.reference,
        day=hold.day,
        person_id=hold.person_id,
        campaign_id=hold.campaign_id,
        at=now,
    )


def hold_end(hold: Transfer, amount: Decimal, surcharge: Decimal, now: datetime, fee: str = "") -> Transfer:
    """The end of a hold: a charge of `amount`, or a release for zero."""
    return Transfer(
        tenant_id=hold.tenant_id,
        kind="settle" if amount else "release",
        debit_id=hold.debit_id,
        credit_id=hold.credit_id,
        amount=amount or hold.amount,
        surcharge=surcharge,
        fee=fee if amount else "",
        hold=hold,
        reference=hold.reference,
        day=hold.day,
        person_id=hold.person_id,
        campaign_id=hold.campaign_id,
        at=now,
    )


def _moment(at: datetime) -> str:
    local = timezone.localtime(at)
    return f"{local.day} {local:%b %Y %H:%M %Z}"
