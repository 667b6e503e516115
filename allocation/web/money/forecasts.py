"""Forecasts in words, on every page that shows one."""

from allocation.queries.bookings.money.forecasts import BudgetForecast
from allocation.queries.bookings.money.projects import FORECAST_DAYS, Forecast
from billing.queries import BudgetFigures
from billing.rules import money_text


def forecast_words(found: BudgetForecast | None) -> tuple[str, str]:
    """The forecast and its range, or why there is none; None outside the days of the budget."""
    if found is None:
        return "none", "only for a budget of today"
    if found.forecast is None:
        return "none yet", missing_words(found.observed)
    figures = found.figures
    return money_text(found.forecast.spend, figures.currency), range_words(found.forecast, figures)


def missing_words(observed: int) -> str:
    """Why there is no forecast after so many full days of charges."""
    days = "none" if not observed else "1 day" if observed == 1 else f"{observed} days"
    return f"needs {FORECAST_DAYS} days of charges; {days} so far"


def range_words(forecast: Forecast, figures: BudgetFigures) -> str:
    """The 80 % range, or why there is none."""
    if forecast.low < forecast.high:
        low, high = (money_text(each, figures.currency) for each in (forecast.low, forecast.high))
        return f"{low} to {high} in 8 of 10 cases"
    if forecast.spend == figures.spent + figures.held:
        return "already spent or held"
    return "no range: recent days cost the same"
