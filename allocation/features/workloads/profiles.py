"""The profile of a workload on a GPU class: rate, use, memory, energy, money and bottleneck. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import islice
from statistics import median

from allocation.features.workloads.rates import Run, rates_of
from allocation.features.workloads.runs import FinishedRun
from allocation.points import WorkRate
from allocation.rules.nodes.diagnosis import Bottleneck, bottleneck_at_work

# A first run is never judged.
LEAST_JUDGED = 2
# Of the newest runs, because code changes.
JUDGED = 6
# The part of a run's time that has to be measured for a verdict on it.
ENOUGH = 0.5
SHORTEST_S = 600
IDLE_FROM = 0.5
# So many of the judged runs have to agree.
AGREED = 0.6
JOULES_PER_KWH = 3_600_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """The bottleneck of most of the judged runs, with the sentence and the evidence of the newest one of
    them. `confidence` is from 0 to 1; `agreed` of the `judged` runs have it."""

    kind: str
    sentence: str
    evidence: tuple[tuple[str, float], ...]
    confidence: float
    agreed: int
    judged: int


@dataclass(frozen=True, slots=True)
class Profile:
    """What finished runs of a workload have shown on a class. Medians of the runs that know the value;
    None: not known. `coverage` is the measured part of the time that they had GPUs, for memory
    `memory_coverage`. `slice` is a profile or `share`; empty: whole GPUs.
    """

    gpu_class: str
    slice: str
    gpus: int
    runs: tuple[FinishedRun, ...]
    rate: WorkRate | None
    coverage: float
    memory_coverage: float
    busy: float | None
    idle: float | None
    tensor: float | None
    bandwidth: float | None
    peak_memory_mb: int | None
    memory_total_mb: int | None
    cost_per_run: Decimal
    cost_per_unit: Decimal | None
    kwh_per_run: float | None
    kwh_per_unit: float | None
    verdict: Verdict | None

    @property
    def last(self) -> datetime:
        """The time of the newest run."""
        return self.runs[0].at

    @property
    def currency(self) -> str:
        """The currency of the newest run."""
        return self.runs[0].currency

    @property
    def gpu_hours(self) -> float:
        """Hours of the devices of all of its runs."""
        return sum(run.held for run in self.runs) / 3600

    @property
    def judged(self) -> tuple[FinishedRun, ...]:
        """The newest runs that were measured well enough to be judged, by their memory at least."""
        known = (run for run in self.runs if run.devices and max(run.coverage, run.memory_coverage) >= ENOUGH)
        return tuple(islice(known, JUDGED))


def profiles_of(runs: Iterable[FinishedRun]) -> list[Profile]:
    """The profiles of a workload by class, and by slice; the most runs first. `runs`: the newest first."""
    groups: dict[tuple[str, str], list[FinishedRun]] = {}
    for run in runs:
        groups.setdefault((run.gpu_class, run.slice), []).append(run)
    every = [run for rows in groups.values() for run in rows]
    rates = rates_of(rated_runs(every))
    found = [_profile(rows, rates) for rows in groups.values()]
    return sorted(found, key=lambda each: (-len(each.runs), each.gpu_class, each.slice))


def rated_runs(runs: Iterable[FinishedRun]) -> list[Run]:
    """The runs on whole GPUs that have a rate."""
    return [
        Run(run.gpu_class, run.unit, run.per_gpu_hour, run.at, run.driver)
        for run in runs
        if run.per_gpu_hour is not None
    ]


def verdict_of(runs: Sequence[FinishedRun]) -> Verdict | None:
    """The bottleneck that most of the newest runs have; None: fewer than two were measured well enough,
    or they differ."""
    found = (run_bottleneck(run) for run in runs if run.devices)
    judged = list(islice((each for each in found if each.kind != "unknown"), JUDGED))
    if len(judged) < LEAST_JUDGED:
        return None
    ((kind, agreed),) = Counter(each.kind for each in judged).most_common(1)
    if agreed < AGREED * len(judged):
        return None
    same = [each for each in judged if each.kind == kind]
    confidence = sum(each.confidence for each in same) / len(judged)
    first = same[0]
    return Verdict(kind, first.sentence, first.evidence, round(confidence, 2), agreed, len(judged))


def run_bottleneck(run: FinishedRun) -> Bottleneck:
    """The bottleneck of one run: idle if it was idle for half of the time, else that of its work."""
    signals = run.signals
    if run.idle is None or run.coverage < ENOUGH or run.held < SHORTEST_S:
        return Bottleneck("unknown", "There are too few readings for a diagnosis.")
    if run.idle >= IDLE_FROM or signals is None:
        return Bottleneck(
            "idle",
            f"Idle for {100 * run.idle:.0f} % of the measured time.",
            (("idle", round(run.idle, 3)),),
            round(run.coverage * (0.6 + 0.4 * min(1.0, (run.idle - IDLE_FROM) / 0.25)), 2),
        )
    return bottleneck_at_work(signals)


def _profile(runs: list[FinishedRun], rates: dict[str, WorkRate]) -> Profile:
    first = runs[0]
    rate = None if first.slice else rates.get(first.gpu_class)
    unit = rate.unit if rate else first.unit
    in_unit = [run for run in runs if run.unit == unit and (rate is None or _is_of_series(run, rate))]
    measured = [run for run in runs if run.devices]
    held = sum(run.held for run in measured)
    works = [signals for run in measured if run.coverage >= ENOUGH and (signals := run.signals) is not None]
    # Of one or two runs a figure is shown, and no rate is learnt.
    costs = [run.cost_per_unit for run in in_unit if run.cost_per_unit is not None]
    energy = [
        run.watts / run.per_hour / 1_000
        for run in in_unit
        if run.watts is not None and run.per_hour is not None
    ]
    whole = [run.watts * run.longest / JOULES_PER_KWH for run in runs if run.watts is not None]
    return Profile(
        gpu_class=first.gpu_class,
        slice=first.slice,
        gpus=Counter(run.gpus for run in runs).most_common(1)[0][0],
        runs=tuple(runs),
        rate=rate,
        coverage=sum(run.coverage * run.held for run in measured) / held if held else 0.0,
        memory_coverage=sum(run.memory_coverage * run.held for run in measured) / held if held else 0.0,
        busy=_median(signals.busy for signals in works),
        idle=_median(run.idle for run in measured if run.coverage >= ENOUGH),
        tensor=_median(signals.tensor for signals in works),
        bandwidth=_median(signals.bandwidth for signals in works),
        peak_memory_mb=max(
            (run.peak_memory_mb for run in runs if run.peak_memory_mb is not None), default=None
        ),
        memory_total_mb=max(
            (each.memory_total_mb for run in runs for each in run.devices if each.memory_total_mb),
            default=None,
        ),
        cost_per_run=median(run.paid for run in runs),
        cost_per_unit=median(costs) if costs else None,
        kwh_per_run=_median(whole),
        kwh_per_unit=_median(energy),
        verdict=None if first.slice else verdict_of(runs),
    )


def _is_of_series(run: FinishedRun, rate: WorkRate) -> bool:
    return run.at >= rate.since and (not run.driver or run.driver == rate.driver)


def _median(values: Iterable[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return median(known) if known else None
