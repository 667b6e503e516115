"""What finished runs of a workload have shown: how fast it is on each GPU class. Pure."""

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import log
from statistics import median, quantiles

from allocation.points import WorkRate

# A first run judges nothing, and the speed of the last one may have been luck.
LEAST_RUNS = 3
# A jump: so many runs in a row, each beyond the median of those before by a factor and by deviations. With
# five runs before it, 2 % of histories of 60 runs that differ by chance alone show one.
RUNS_BEFORE, JUMP, DEVIATIONS = 5, 1.15, 4
# The median distance from a median, as a standard deviation.
OF_MEDIAN = 1.4826


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run on whole GPUs of one class, its rate, and the driver of its nodes (empty: not known)."""

    gpu_class: str
    unit: str
    per_gpu_hour: float
    at: datetime
    driver: str = ""


def rates_of(runs: Iterable[Run]) -> dict[str, WorkRate]:
    """The rates by class, all in the unit that most runs have (of several the first by name)."""
    known = list(runs)
    units = Counter(run.unit for run in known)
    unit = min(units, key=lambda each: (-units[each], each), default="")
    by_class: dict[str, list[Run]] = {}
    for run in known:
        if run.unit == unit:
            by_class.setdefault(run.gpu_class, []).append(run)
    found = {name: _rate(unit, rows) for name, rows in sorted(by_class.items())}
    return {name: rate for name, rate in found.items() if rate is not None}


def _rate(unit: str, runs: list[Run]) -> WorkRate | None:
    """The rate of the newest series; None: it has too few runs."""
    ordered = _with_drivers(sorted(runs, key=lambda run: (run.at, run.per_gpu_hour, run.driver)))
    driver = _driver(ordered)
    if driver is None:
        return None
    same = [run for run in ordered if run.driver == driver]
    starts = last_jump([run.per_gpu_hour for run in same])
    series = same[starts:]
    began = "jump" if starts else "driver" if len(same) < len(ordered) else ""
    low, middle, high = quantiles((run.per_gpu_hour for run in series), n=4, method="inclusive")
    return WorkRate(unit, middle, low, high, len(series), series[-1].at, series[0].at, began, driver)


def _with_drivers(ordered: Sequence[Run]) -> list[Run]:
    """The runs, the oldest first. One whose driver is not known has that of the run after it."""
    found: list[Run] = []
    after = next((run.driver for run in reversed(ordered) if run.driver), "")
    for run in reversed(ordered):
        after = run.driver or after
        found.append(replace(run, driver=after))
    return found[::-1]


def _driver(ordered: Sequence[Run]) -> str | None:
    """The driver that, from the newest run back, is the first to have enough runs: until a new one has them,
    that before counts."""
    seen: Counter[str] = Counter()
    for run in reversed(ordered):
        seen[run.driver] += 1
        if seen[run.driver] >= LEAST_RUNS:
            return run.driver
    return None


def _deviation(values: Sequence[float], middle: float) -> float:
    return OF_MEDIAN * median(abs(value - middle) for value in values)


def last_jump(rates: Sequence[float]) -> int:
    """The place of the first rate after the last jump; 0: there is none. Rates, the oldest first."""
    values = [log(max(rate, 1e-12)) for rate in rates]
    starts, place, before = 0, RUNS_BEFORE, sorted(values[:RUNS_BEFORE])
    while place + LEAST_RUNS <= len(values):
        middle = median(before)
        moved = [value - middle for value in values[place : place + LEAST_RUNS]]
        least = max(min(moved), -max(moved))
        if least > log(JUMP) and least > DEVIATIONS * _deviation(before, middle):
            starts, place = place, place + RUNS_BEFORE
            before = sorted(values[starts:place])
        else:
            insort(before, values[place])
            place += 1
    return starts
