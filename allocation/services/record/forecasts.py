"""The forecasts of budgets at all levels, stored for ladders."""

from datetime import UTC, datetime

from allocation.queries.bookings.money.forecasts import forecasts_of
from billing.models import Budget


def forecasts_store(now: datetime) -> int:
    """Stores the forecast of each budget of today; returns how many have one."""
    today = now.astimezone(UTC).date()
    budgets = {each.id: each for each in Budget.objects.filter(starts__lte=today, ends__gt=today)}
    found = 0
    for key, each in forecasts_of(budgets.values(), now).items():
        budget, forecast = budgets[key], each.forecast
        budget.forecast, budget.forecast_low, budget.forecast_high = (
            (forecast.spend, forecast.low, forecast.high) if forecast else (None, None, None)
        )
        budget.forecast_at = now
        found += forecast is not None
    fields = ["forecast", "forecast_low", "forecast_high", "forecast_at"]
    Budget.objects.bulk_update(budgets.values(), fields, batch_size=500)
    return found
