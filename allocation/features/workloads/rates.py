"""What finished runs of a workload have shown: how fast it is on each GPU class. Pure."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from statistics import quantiles

from allocation.points import WorkRate

# A first run judges nothing, and the speed of the last one may have been luck.
LEAST_RUNS = 3


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
