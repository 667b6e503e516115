"""The forecast: what a project rents by itself for hours in which GPUs are expected to be short.

An hour is short if by the middle of the newest forecast more GPUs are in use or waited for than the site
has. A plan is for the next time of short hours; hours for which the rule made a plan before, whatever became
of it, are not looked at again.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from math import ceil

from django.db.models import Q, QuerySet

from allocation.features.capacity.causes.renting import Need, plans_made, rule_note, rule_plan, rule_set
from allocation.features.capacity.models import CapacityPlan, ForecastRule
from allocation.features.capacity.rules import MOST_GPUS
from allocation.features.capacity.services import MOST_COST
from allocation.features.capacity.sprints import Mode
from allocation.points import ClassForecast, class_forecasts
from allocation.words.refusals import refusal_text
from tenants.access import Actor
from tenants.platform.errors import invalid
from tenants.platform.terms import term, terms

HOUR = timedelta(hours=1)
MOST_DAYS, DAY_HOURS = 14, 24
# A rule reads the forecast so often; a new one is made each hour.
EVERY = timedelta(minutes=15)
# An older forecast says nothing of now.
NEWEST = timedelta(hours=6)
# Short hours that are no further apart are of one plan: its machines come with bookings that wait.
APART = timedelta(hours=12)


@terms
class ForecastRuleTerms:
    """What a project rents of a class for hours in which GPUs are expected to be short."""

    mode: Mode = term("When a shortage is expected", says="`propose` waits for a lead, `rent` does not.")
    gpu_class: str = term("GPU class", says="Each class has a rule of its own.", max_length=40)
    hours: int = term(
        "Hours of shortage, at least",
        "Hours in which more GPUs are expected to be needed than the site has.",
        min_value=1,
        max_value=MOST_DAYS * DAY_HOURS,
    )
    days: int = term("Days to look ahead", "At most 14.", min_value=1, max_value=MOST_DAYS)
    count: int = term("GPUs at the same time, at most", "", min_value=1, max_value=MOST_GPUS)
    most_cost: Decimal = term(
        "Money in a month, at most",
        "For all that the rule rents in a calendar month (UTC).",
        says="In the currency of the offers.",
        max_digits=12,
        decimal_places=2,
        min_value=Decimal("0.01"),
        max_value=MOST_COST,
    )


@dataclass(frozen=True, slots=True)
class ShortHour:
    """An hour, and the GPUs that are expected to be short in it."""

    at: datetime
    gpus: float


def forecast_rule_set(*, actor: Actor, project: str, terms: ForecastRuleTerms, now: datetime) -> ForecastRule:
    """Sets what a project rents of a class for expected shortages.

    Raises:
        Refused: `not_found`, `not_allowed`, or `too_many_hours` for more hours than the days have.
    """
    if terms.hours > terms.days * DAY_HOURS:
        text = refusal_text("forecast_hours", days=terms.days, hours=terms.days * DAY_HOURS)
        raise invalid("too_many_hours", text, "hours")
    facts: dict[str, object] = {
        "mode": terms.mode,
        "hours": terms.hours,
        "days": terms.days,
        "gpus": terms.count,
        "most_cost": terms.most_cost,
        "checked": None,
    }
    return rule_set(
        ForecastRule, actor=actor, project=project, gpu_class=terms.gpu_class, facts=facts, now=now
    )


def forecasts_due(now: datetime) -> QuerySet[ForecastRule]:
    """The rules that have not read the forecast for a while."""
    rules = ForecastRule.objects.exclude(mode=ForecastRule.Mode.OFF)
    return rules.filter(Q(checked=None) | Q(checked__lte=now - EVERY))


def forecast_plan(rule_id: int, now: datetime) -> CapacityPlan | None:
    """Makes the plan of a rule for the next expected shortage, unless one is open; keeps on the rule why it
    made none."""
    plan = rule_plan(ForecastRule, rule_id, partial(_need, now=now), now)
    ForecastRule.objects.filter(id=rule_id).update(checked=now)
    return plan


def _need(rule: ForecastRule, now: datetime) -> Need | None:
    forecast = class_forecasts().get(rule.gpu_class_id)
    if forecast is None or forecast.starts < now - NEWEST:
        rule_note(rule, refusal_text("forecast_missing"))
        return None
    made = plans_made(rule).filter(until__gt=now).values_list("starts", "until")
    short = list(_without(short_hours(forecast, now, now + timedelta(days=rule.days)), list(made)))
    if len(short) < rule.hours:
        rule_note(rule, "")
        return None
    hours = list(_first_time(short))
    gpus = min(rule.gpus, ceil(max(each.gpus for each in hours)))
    why = refusal_text("forecast_found", hours=len(short), days=rule.days, gpus=gpus)
    seconds = len(hours) * HOUR.total_seconds()
    return Need(gpus, max(now, hours[0].at), hours[-1].at + HOUR, seconds, why)


def short_hours(forecast: ClassForecast, now: datetime, ends: datetime) -> Iterator[ShortHour]:
    """The hours from now on that begin before `ends` in which GPUs are expected to be short."""
    for number, wanted in enumerate(forecast.wanted):
        at = forecast.starts + number * HOUR
        if at + HOUR > now and at < ends and wanted > forecast.gpus:
            yield ShortHour(at, wanted - forecast.gpus)


def _without(hours: Iterable[ShortHour], times: Iterable[tuple[datetime, datetime]]) -> Iterator[ShortHour]:
    times = list(times)
    for each in hours:
        if not any(starts < each.at + HOUR and each.at < until for starts, until in times):
            yield each


def _first_time(hours: Iterable[ShortHour]) -> Iterator[ShortHour]:
    """The hours until a longer time in which nothing is short."""
    last: datetime | None = None
    for each in hours:
        if last is not None and each.at - last > APART:
            return
        last = each.at
        yield each
