"""Metrics of notebooks. They name no tenant."""

from collections.abc import Iterator
from datetime import datetime

from django.db.models import Count

from allocation.features.notebooks.models import Notebook
from wire.exposition import Metric, Value


def notebook_metrics(now: datetime) -> Iterator[Metric]:
    """Open notebooks by their state."""
    rows = Notebook.objects.filter(ended_at=None).order_by()
    counted = rows.values_list("state").annotate(Count("id")).order_by("state")
    yield Metric(
        "gpu_portal_notebooks",
        "gauge",
        "Open notebooks by state.",
        tuple(Value(count, {"state": state}) for state, count in counted),
    )
