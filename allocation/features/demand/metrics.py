"""Metrics of demand: how far off past forecasts were, and how often their bands held."""

from collections.abc import Iterator
from datetime import datetime

from allocation.features.demand.services import hits_read, newest_forecasts
from wire.exposition import Metric, Value


def demand_metrics(_now: datetime) -> Iterator[Metric]:
    """The error and the hits of kept forecasts in the last four weeks, by class, kind and distance."""
    errors, held = [], []
    for name, kinds in newest_forecasts().items():
        for kind, forecast in kinds.items():
            for row in hits_read(forecast):
                labels = {"gpu_class": name, "kind": kind, "hours_ahead": row.ahead}
                errors.append(Value(row.error, labels))
                held.append(Value(row.held / row.tested, labels))
    yield Metric(
        "gpu_portal_demand_error_gpus", "gauge", "GPUs by which forecasts were off on average.", tuple(errors)
    )
    yield Metric(
        "gpu_portal_demand_in_band",
        "gauge",
        "Part of the hours in the band, which is made for 0.8.",
        tuple(held),
    )
