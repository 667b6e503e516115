"""Addresses of the pages about money."""

from django.urls import path

from billing.web.budgets import budgets, campaign_new
from billing.web.prices import ops_prices, prices

urlpatterns = [
    path("t/<slug:tenant>/budgets", budgets, name="budgets"),
    path("t/<slug:tenant>/budgets/campaigns", campaign_new, name="campaign-new"),
    path("t/<slug:tenant>/prices", prices, name="prices"),
    path("ops/prices", ops_prices, name="ops-prices"),
]
