"""The nightly sample of replays, counted. For operators and metrics."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Max

from allocation.models import DecisionReplay
from wire.exposition import Metric, Value


@dataclass(frozen=True, slots=True)
class SampleReport:
    """The last nightly sample: when it was taken, and how many of its replays ended how."""

    at: datetime
    counts: dict[str, int]

    @property
    def total(self) -> int:
        """All replays of the sample."""
        return sum(self.counts.values())

    @property
    def same(self) -> int:
        """Replays that gave the stored plan again."""
        return self.counts.get(DecisionReplay.Outcome.SAME, 0)

    @property
    def waiting(self) -> int:
        """Replays without an outcome yet."""
        return self.counts.get("", 0)

    @property
    def bad(self) -> int:
        """Replays with another outcome than the stored plan."""
        return self.total - self.same - self.waiting


def sample_report() -> SampleReport | None:
    """Returns the last nightly sample; None before the first."""
    nightly = DecisionReplay.objects.filter(asked_by=None)
    at = nightly.aggregate(at=Max("asked_at"))["at"]
    if at is None:
        return None
    rows = nightly.filter(asked_at=at).values_list("outcome").annotate(count=Count("id"))
    return SampleReport(at, dict(rows.order_by("outcome")))


def replay_metrics(now: datetime) -> Iterator[Metric]:
    """Metrics of the last nightly sample. Runs inside `operator_tx`."""
    report = sample_report()
    counts = report.counts if report else {}
    yield Metric(
        "gpu_portal_decision_replays",
        "gauge",
        "Decisions of the last nightly sample by the outcome of their replay.",
        tuple(Value(counts.get(each, 0), {"outcome": each}) for each in DecisionReplay.Outcome),
    )
    age = (now - report.at).total_seconds() if report else None
    yield Metric("gpu_portal_decision_replays_age_seconds", "gauge", "Age of this sample.", (Value(age),))
