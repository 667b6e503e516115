"""Prometheus metrics of use, waits and budgets. They name no tenant, so budgets are counted together."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, time, timedelta

from django.db.models import F, Min, Sum
from django.db.models.functions import Greatest

from allocation.models import Booking, WaitEntry
from allocation.queries.fleet.in_use import live_allocations
from allocation.rules.states import WAITING
from billing.queries import BudgetFigures, running_budgets
from billing.rules import UNITS_PER_GPU
from wire.exposition import Metric, Value

_USED = ((100, "all"), (80, "over_80"), (50, "over_50"), (0, "under_50"))
_QUANTILES = (0.5, 0.9, 1.0)
# A budget that has just begun has no pace yet.
_BEGUN = timedelta(days=1)


def use_metrics(now: datetime) -> Iterator[Metric]:
    """GPUs in use, how long the oldest waits, and how fast budgets are spent. Runs inside `operator_tx`."""
    rows = live_allocations(now).values_list("gpu__gpu_class_id").annotate(Sum("units"))
    used = tuple(
        Value(units / UNITS_PER_GPU, {"class": name}) for name, units in rows.order_by("gpu__gpu_class_id")
    )
    yield Metric("gpu_portal_gpus_in_use", "gauge", "GPUs that bookings have; slices by their size.", used)
    yield Metric(
        "gpu_portal_queue_age_seconds",
        "gauge",
        "How long the oldest booking has waited that could start.",
        (Value(_oldest_wait(now)),),
    )
    oldest = WaitEntry.objects.filter(slot__isnull=False).aggregate(at=Min("created_at"))["at"]
    age = 0.0 if oldest is None else (now - oldest).total_seconds()
    yield Metric(
        "gpu_portal_waiting_list_age_seconds",
        "gauge",
        "Age of the oldest entry of the waiting list.",
        (Value(age),),
    )
    yield from _budgets(running_budgets(now), now)


def _oldest_wait(now: datetime) -> float:
    """Seconds since the oldest waiting booking was asked for and could start; 0: nobody waits."""
    waiting = Booking.objects.filter(state__in=WAITING, not_before__lte=now, starts=None)
    since = waiting.aggregate(at=Min(Greatest(F("submitted"), F("not_before"))))["at"]
    return 0.0 if since is None else max(0.0, (now - since).total_seconds())


def _budgets(budgets: Sequence[BudgetFigures], now: datetime) -> Iterator[Metric]:
    counts = dict.fromkeys((name for _, name in _USED), 0)
    for each in budgets:
        counts[next((name for least, name in _USED if each.used_percent >= least), "under_50")] += 1
    values = tuple(Value(count, {"used": name}) for name, count in counts.items())
    yield Metric(
        "gpu_portal_budgets", "gauge", "Budgets of projects by what is spent and held of them.", values
    )
    paces = sorted(pace for each in budgets if (pace := burn(each, now)) is not None)
    at = (paces[min(len(paces) - 1, int(part * len(paces)))] for part in _QUANTILES if paces)
    yield Metric(
        "gpu_portal_budget_burn",
        "gauge",
        "Spent part of a budget over the past part of its period, of all projects: above 1 it ends early.",
        tuple(Value(pace, {"quantile": str(part)}) for part, pace in zip(_QUANTILES, at, strict=False)),
    )


def burn(budget: BudgetFigures, now: datetime) -> float | None:
    """The spent part of a budget over the part of its period that is over; None: it has just begun."""
    begins = datetime.combine(budget.starts, time(), UTC)
    past, whole = now - begins, datetime.combine(budget.ends, time(), UTC) - begins
    if past < _BEGUN or not budget.amount:
        return None
    return float(budget.spent / budget.amount) / (past / whole)
