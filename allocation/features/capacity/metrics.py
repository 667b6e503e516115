"""Metrics of capacity. They name no tenant."""

from collections.abc import Iterator
from datetime import datetime

from django.db.models import Count, Q, Sum

from allocation.features.capacity.models import CapacityMachine, CapacitySpend
from allocation.features.capacity.turn import FAILED
from allocation.models import EventCounter
from wire.exposition import Metric, Value


def capacity_metrics(now: datetime) -> Iterator[Metric]:
    """Machines by provider and state, those that are wrong, and what this month costs."""
    rows = CapacityMachine.objects.exclude(state__in=("released", "lost"))
    counted = rows.values_list("provider", "state").annotate(Count("id")).order_by("provider", "state")
    yield Metric(
        "gpu_portal_machines",
        "gauge",
        "Machines of providers that may cost money.",
        tuple(Value(count, {"provider": name, "state": state}) for name, state, count in counted),
    )
    wrong = rows.filter(Q(state="orphan") | Q(state__in=("requested", "booting", "releasing"), due__lt=now))
    yield Metric(
        "gpu_portal_machines_wrong",
        "gauge",
        "Orphans, and machines that did not come or stay after they were given back.",
        (Value(wrong.count(), {}),),
    )
    month = now.date().replace(day=1)
    spends = CapacitySpend.objects.filter(month=month).values_list("provider").annotate(Sum("committed"))
    yield Metric(
        "gpu_portal_machines_cost",
        "gauge",
        "What machines that were requested this month cost, until the end of their paid periods.",
        tuple(Value(float(cost), {"provider": name}) for name, cost in spends.order_by("provider")),
    )
    failed = EventCounter.objects.filter(name__startswith=FAILED).order_by("name")
    yield Metric(
        "gpu_portal_provider_failures_total",
        "counter",
        "Turns in which a provider did not list its machines.",
        tuple(Value(row.count, {"provider": row.name.removeprefix(FAILED)}) for row in failed),
    )
