"""Routes of budgets and price books under /api/v1."""

from django.urls import path

from billing.api.budgets import BudgetAlerts, BudgetOne, Budgets, Ladder
from billing.api.campaigns import CampaignOne, Campaigns
from billing.api.platform_budgets import PlatformAlerts, PlatformBudgets, PlatformLadder
from billing.api.prices import PriceBookOne, PriceBooks

urlpatterns = [
    path("budgets", Budgets.as_view(), name="api-budgets"),
    path("budgets/<uuid:budget_id>", BudgetOne.as_view(), name="api-budget"),
    path("budgets/<uuid:budget_id>/guardrails", Ladder.as_view(), name="api-ladder"),
    path("budgets/<uuid:budget_id>/alerts", BudgetAlerts.as_view(), name="api-budget-alerts"),
    path("platform-budgets", PlatformBudgets.as_view(), name="api-platform-budgets"),
    path(
        "platform-budgets/<uuid:budget_id>/guardrails",
        PlatformLadder.as_view(),
        name="api-platform-ladder",
    ),
    path(
        "platform-budgets/<uuid:budget_id>/alerts",
        PlatformAlerts.as_view(),
        name="api-platform-budget-alerts",
    ),
    path("campaigns", Campaigns.as_view(), name="api-campaigns"),
    path("campaigns/<uuid:campaign_id>", CampaignOne.as_view(), name="api-campaign"),
    path("price-books", PriceBooks.as_view(), name="api-price-books"),
    path("price-books/<int:version>", PriceBookOne.as_view(), name="api-price-book"),
]
