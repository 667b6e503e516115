"""What a unit of progress of a campaign has cost so far, and the most that it may cost.

A booking counts with its price and its rate for the time of its present run, so a program that reports
late, or continues from a checkpoint, does not seem more expensive than it is. One that reports and does
nothing has cost its time. Bookings that are paused or over stay in the figure, so a limit that pauses
them does not lift itself.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Literal
from uuid import UUID

from django.db.models import Q

from allocation.features.progress.models import Progress
from allocation.features.progress.rules import LEAST
from allocation.words.refusals import refusal_text
from billing.access import require_budget_right
from billing.models import Budget, Campaign, Guardrail
from billing.queries import OWNERS, UnitLimit, unit_limit_of
from billing.rules import midnight
from billing.services import unit_limit_set
from tenants.access import Actor
from tenants.platform.errors import Refused, missing
from tenants.platform.terms import term, terms

# Between two reports of a campaign that change the figure.
OFTEN = timedelta(minutes=1)
MOST_RUNS = 2_000
_MOST_COST = Decimal(10**12)


@terms
class UnitLimitTerms:
    """The most that units of progress of a campaign may cost. At 80 % of it people are notified."""

    most: Decimal | None = term(
        "Spend at most",
        "Empty: no limit.",
        says="Null: no limit any more.",
        default=None,
        max_digits=15,
        decimal_places=6,
        min_value=Decimal("0.000001"),
        max_value=Decimal(1_000_000),
    )
    count: int = term("For this many units", default=1_000, min_value=1, max_value=1_000_000_000)
    unit: str = term("Unit", "What the programs count, such as step or epoch.", default="step", max_length=24)
    action: Literal["notify", "pause"] = term(
        "At the limit", says="`pause` pauses what runs, after its notice.", default="notify"
    )


@dataclass(frozen=True, slots=True)
class UnitCost:
    """What one unit has cost in the runs of a campaign; None: none was done yet."""

    unit: str
    cost: Decimal | None
    units: float
    spend: Decimal
    runs: int
    currency: str


@dataclass(frozen=True, slots=True)
class CampaignCosts:
    """The costs of a campaign by unit, in the period of its budget of today if it has one. `pauses`: what
    runs is paused at the limit."""

    campaign: Campaign
    budget: Budget | None
    limit: UnitLimit | None
    limit_cost: Decimal | None
    units: tuple[UnitCost, ...]
    pauses: bool = False


def campaign_costs(actor: Actor, campaign_id: UUID, now: datetime) -> CampaignCosts:
    """Returns what units of progress of a campaign cost. Raises Refused: `not_found`."""
    campaign = _campaign(actor, campaign_id)
    budget = _budget(campaign, now)
    if budget is None:
        return CampaignCosts(campaign, None, None, None, unit_costs(campaign.id))
    limit = unit_limit_of(budget)
    units = unit_costs(campaign.id, midnight(budget.starts))
    cost = None if limit is None else _cost_of(budget, limit.unit, limit.count)
    pauses = Guardrail.objects.filter(
        budget=budget, measure=Guardrail.Measure.UNIT_COST, action=Guardrail.Action.PAUSE
    )
    return CampaignCosts(campaign, budget, limit, cost, units, pauses.exists())


def campaign_limit_set(
    *, actor: Actor, campaign_id: UUID, terms: UnitLimitTerms, now: datetime
) -> CampaignCosts:
    """Sets the most that units of progress may cost, in the budget that the campaign has today.

    Raises:
        Refused: `not_found`, `not_allowed`, `no_campaign_budget` or `unit_limit`.
    """
    campaign = _campaign(actor, campaign_id)
    budget = _budget(campaign, now)
    if budget is None:
        raise Refused(
            "no_campaign_budget", refusal_text("no_campaign_budget", name=campaign.name), param="most"
        )
    require_budget_right(actor, budget.owner)
    limit = None if terms.most is None else UnitLimit(terms.most, terms.count, terms.unit)
    cost = None if limit is None else _cost_of(budget, limit.unit.strip(), limit.count)
    unit_limit_set(
        actor_id=actor.user_id, budget=budget, limit=limit, cost=cost, action=terms.action, now=now
    )
    return campaign_costs(actor, campaign_id, now)


def unit_costs(campaign_id: UUID, since: datetime | None = None) -> tuple[UnitCost, ...]:
    """Returns what a unit has cost in the newest runs of a campaign, by unit; from a report on."""
    rows = Progress.objects.filter(booking__campaign=campaign_id, booking__ready_at__isnull=False)
    if since is not None:
        rows = rows.filter(at__gte=since)
    found: Mapping[str, list[Progress]] = defaultdict(list)
    for row in rows.select_related("booking").order_by("-at", "booking")[:MOST_RUNS]:
        found[row.unit].append(row)
    return tuple(_cost(unit, found[unit]) for unit in sorted(found))


def unit_cost_store(campaign_id: UUID, now: datetime) -> None:
    """Keeps what units have cost where a budget of today limits it, at most once a minute."""
    today = now.astimezone(UTC).date()
    due = Budget.objects.filter(
        Q(unit_cost_at=None) | Q(unit_cost_at__lte=now - OFTEN),
        campaign=campaign_id,
        unit_most__isnull=False,
        starts__lte=today,
        ends__gt=today,
    )
    for budget in due:
        cost = _cost_of(budget, budget.unit, budget.unit_count or 1)
        due.filter(id=budget.id).update(unit_cost=cost, unit_cost_at=now)


def _cost_of(budget: Budget, unit: str, count: int) -> Decimal | None:
    """What so many units of the budget's campaign have cost in its period; None: none was done yet."""
    if budget.campaign_id is None:
        return None
    costs = {each.unit: each.cost for each in unit_costs(budget.campaign_id, midnight(budget.starts))}
    cost = costs.get(unit)
    return None if cost is None else min(_MOST_COST, round(cost * count, 6))


def _cost(unit: str, rows: Iterable[Progress]) -> UnitCost:
    spend, units, runs, currency = Decimal(0), 0.0, 0, ""
    for row in rows:
        ready, length = row.booking.ready_at, row.at - row.anchor_at
        if ready is None or length < LEAST or row.at <= ready:
            continue
        hours = (row.at - ready).total_seconds() / 3_600
        units += hours * 3_600 * max(0.0, row.step - row.anchor_step) / length.total_seconds()
        spend += row.booking.price_per_hour * Decimal(hours)
        runs, currency = runs + 1, row.booking.currency
    cost = spend / Decimal(units) if units > 0 else None
    return UnitCost(unit, cost, units, spend, runs, currency)


def _campaign(actor: Actor, campaign_id: UUID) -> Campaign:
    rows = Campaign.objects.filter(tenant_id=actor.tenant_id, id=campaign_id).select_related("project")
    found = rows.first()
    if found is None or not (actor.is_tenant_admin or actor.role_in(found.project_id)):
        raise missing("campaign")
    return found


def _budget(campaign: Campaign, now: datetime) -> Budget | None:
    today = now.astimezone(UTC).date()
    rows = Budget.objects.filter(level="campaign", campaign=campaign, starts__lte=today, ends__gt=today)
    return rows.select_related("account", *OWNERS).first()
