"""REST of progress: what programs send."""

from typing import Any
from uuid import UUID

from rest_framework import serializers

from allocation.features.progress.costs import (
    CampaignCosts,
    UnitLimitTerms,
    campaign_costs,
    campaign_limit_set,
)
from allocation.features.progress.points import ProgressOut, progress_shown
from allocation.features.progress.services import ProgressTerms, progress_set
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.models import Scope
from tenants.platform.rest.body import Shape
from tenants.platform.rest.fields import Money

rest = Endpoints(Scope.BOOK, in_project=True)
of_money = Endpoints(Scope.BUDGET)


@rest.put("bookings/<str:reference>/progress", "Say how far a run is", ProgressOut, terms=ProgressTerms)
def put_booking_progress(call: ApiView, terms: ProgressTerms, reference: str) -> dict[str, Any]:
    """Keeps the last report of a running booking, from its owner's account only. The answer has the
    rate, the expected end, and what a step costs."""
    row = progress_set(actor=call.actor, reference=reference, terms=terms, now=call.now)
    return progress_shown(row.booking, row)


class UnitLimitOut(Shape):
    """The most that so many units may cost, and what they have cost so far."""

    most = Money(max_digits=20)
    count = serializers.IntegerField()
    unit = serializers.CharField()
    cost = Money(max_digits=20, allow_null=True, help_text="Null: none was done yet.")


class UnitCostOut(Shape):
    """What one unit has cost, by prices and rates of the present run of each booking."""

    unit = serializers.CharField()
    cost = Money(allow_null=True, max_digits=20, decimal_places=9, help_text="Null: none was done yet.")
    currency = serializers.CharField()
    units = serializers.FloatField(help_text="Units that were done, at the last rate of each run.")
    runs = serializers.IntegerField()


class CampaignCostsOut(Shape):
    """What units of progress of a campaign cost, in the period of its budget if it has one."""

    campaign = serializers.UUIDField()
    slug = serializers.CharField()
    budget = serializers.UUIDField(allow_null=True, help_text="That of today; null: it has none.")
    limit = UnitLimitOut(allow_null=True)
    units = UnitCostOut(many=True)


def _costs(found: CampaignCosts) -> dict[str, Any]:
    limit = found.limit
    return {
        "campaign": found.campaign.id,
        "slug": found.campaign.slug,
        "budget": found.budget and found.budget.id,
        "limit": limit
        and {"most": limit.most, "count": limit.count, "unit": limit.unit, "cost": found.limit_cost},
        "units": [
            {
                "unit": each.unit,
                "cost": None if each.cost is None else round(each.cost, 9),
                "currency": each.currency,
                "units": each.units,
                "runs": each.runs,
            }
            for each in found.units
        ],
    }


@of_money.get(
    "campaigns/<uuid:campaign_id>/costs", "What units of progress of a campaign cost", CampaignCostsOut
)
def get_campaign_costs(call: ApiView, campaign_id: UUID) -> dict[str, Any]:
    """Reads what a unit has cost in the campaign's runs, by unit, and the most that it may cost."""
    return _costs(campaign_costs(call.actor, campaign_id, call.now))


@of_money.put(
    "campaigns/<uuid:campaign_id>/costs",
    "Set the most that units of progress may cost (project leads and tenant admins)",
    CampaignCostsOut,
    terms=UnitLimitTerms,
    operation="set_campaign_costs",
)
def put_campaign_costs(call: ApiView, terms: UnitLimitTerms, campaign_id: UUID) -> dict[str, Any]:
    """Sets the limit in the budget that the campaign has today, and in the next ones. At 80 % of it people
    are notified, at all of it the action follows; its rungs are in the ladder of the budget."""
    return _costs(campaign_limit_set(actor=call.actor, campaign_id=campaign_id, terms=terms, now=call.now))


urlpatterns = [*rest.urls, *of_money.urls]
