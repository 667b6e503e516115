"""What finished runs of a kind of work have shown: how fast it is on each GPU class."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import quantiles
from typing import Any
from uuid import UUID

from allocation.features.progress.models import Progress
from allocation.models import Booking
from allocation.points import WorkRate
from allocation.rules.states import State

# A first run judges nothing, and the speed of the last one may have been luck.
LEAST_RUNS = 3
# Newer runs count, because code and drivers change.
MOST_RUNS = 200
# The rate of a run is that of its last part, which has to be so long.
LEAST_MEASURED = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run on whole GPUs of one class, and its rate."""

    gpu_class: str
    unit: str
    per_gpu_hour: float
    at: datetime


def rates_of(runs: Iterable[Run]) -> dict[str, WorkRate]:
    """The rates by class, all in the unit that most runs have (of several the first by name)."""
    known = list(runs)
    units = Counter(run.unit for run in known)
    unit = min(units, key=lambda each: (-units[each], each), default="")
    by_class: dict[str, list[Run]] = {}
    for run in known:
        if run.unit == unit:
            by_class.setdefault(run.gpu_class, []).append(run)
    return {name: _rate(unit, rows) for name, rows in sorted(by_class.items()) if len(rows) >= LEAST_RUNS}


def _rate(unit: str, runs: list[Run]) -> WorkRate:
    low, middle, high = quantiles((run.per_gpu_hour for run in runs), n=4, method="inclusive")
    return WorkRate(unit, middle, low, high, len(runs), max(run.at for run in runs))


def work_rates_read(project_id: UUID, workload: str) -> Mapping[str, WorkRate]:
    """What is learnt of a kind of work in a project, from its newest finished runs."""
    rows = Progress.objects.filter(
        booking__project_id=project_id,
        booking__ask__workload=workload,
        booking__state=State.ENDED,
    )
    newest = rows.select_related("booking").order_by("-at", "booking_id")[:MOST_RUNS]
    return rates_of(run for row in newest if (run := run_of(row)) is not None)


def run_of(row: Progress) -> Run | None:
    """The run of a report; None: too short, on slices or shares, or of several classes."""
    pace, booking = row.pace, row.booking
    ask: Mapping[str, Any] = booking.ask
    is_whole = not (ask.get("profile") or ask.get("share") or ask.get("groups"))
    rate = pace.per_second
    if rate is None or not is_whole or not booking.planned_class or row.at - row.anchor_at < LEAST_MEASURED:
        return None
    return Run(booking.planned_class, row.unit, rate * 3_600 / ask["count"], row.at)


def before(booking: Booking) -> WorkRate | None:
    """What runs of the same work before have shown on the class of a booking."""
    workload = booking.ask.get("workload")
    return work_rates_read(booking.project_id, workload).get(booking.planned_class) if workload else None
