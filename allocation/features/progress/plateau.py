"""A metric of a run over its steps, and whether it has stopped getting better: pure code.

A verdict needs readings enough, and noise that would not hide an improvement. It decides nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import sqrt
from statistics import linear_regression, median

# Points are means of neighbouring readings, so that a run of any length has some dozens.
MOST_POINTS = 64
LEAST_READINGS = 30
LARGEST = 1e100
# From the median distance to the median to a standard deviation of normal noise.
TO_DEVIATION = 1.4826
# The standard error of a median is so much larger than that of a mean.
OF_MEDIAN = 1.2533
# The most that is believed of the likeness of neighbours.
MOST_ALIKE = 0.9
# An improvement by more errors than that is one.
SURE = 2.0
# What the last third may have brought at most, of all that was gained before.
NOTHING = 0.05


class Better(StrEnum):
    """Which values of a metric are better."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True, slots=True)
class Series:
    """Readings in their order: points of `stride` readings each, the last with `count` of them. `steps` is
    where each point begins."""

    values: tuple[float, ...] = ()
    steps: tuple[float, ...] = ()
    stride: int = 1
    count: int = 0

    @property
    def readings(self) -> int:
        """How many readings there were."""
        return max(0, len(self.values) - 1) * self.stride + self.count

    def with_reading(self, step: float, value: float) -> "Series":
        """The series with one more reading, unless it is no number to compute with."""
        if not abs(value) <= LARGEST:
            return self
        if self.values and self.count < self.stride:
            mean = self.values[-1] + (value - self.values[-1]) / (self.count + 1)
            return Series((*self.values[:-1], mean), self.steps, self.stride, self.count + 1)
        values, steps, stride = self.values, self.steps, self.stride
        if len(values) == MOST_POINTS:
            values = tuple((one + other) / 2 for one, other in zip(values[::2], values[1::2], strict=True))
            steps, stride = steps[::2], 2 * stride
        return Series((*values, value), (*steps, step), stride, 1)

    def until(self, step: float) -> "Series":
        """The series before a step at which a run continues from a checkpoint."""
        kept = sum(each < step for each in self.steps)
        if kept == len(self.values):
            return self
        return Series(self.values[:kept], self.steps[:kept], self.stride, self.stride if kept else 0)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a metric has stopped getting better, since which step, and its best point so far."""

    is_plateau: bool
    since: float
    best: float


def metric_by_default(metrics: Iterable[str]) -> str:
    """The metric that is watched unless somebody names one: `loss`, else the first that ends so, or none."""
    names = sorted(name for name in metrics if name.lower().endswith("loss"))
    return "loss" if "loss" in names else next(iter(names), "")


def verdict_of(series: Series, better: Better) -> Verdict | None:
    """Compares the last third with what was before; None: too few readings, none gained before, or too noisy.

    It is a plateau if the median of the last third is not better than that of the third before by more than
    noise explains, no point is clearly better than the best before, and both would have been seen: with its
    uncertainty the improvement is less than a twentieth of what the run had gained.
    """
    points = list(series.values if series.count == series.stride else series.values[:-1])
    if series.readings < LEAST_READINGS:
        return None
    down = [value if better is Better.LOWER else -value for value in points]
    third = len(down) // 3
    before, middle, last = down[:-third], down[-2 * third : -third], down[-third:]
    noise, error = _noise([_residuals(middle), _residuals(last)])
    gained = median(down[:third]) - median(middle)
    gained = max(gained, down[0] - median(middle) - SURE * noise)
    improved = median(middle) - median(last)
    is_seen = improved > SURE * error
    if gained <= SURE * error or (not is_seen and improved + SURE * error > NOTHING * gained):
        return None
    is_plateau = not is_seen and min(before) - min(last) <= SURE * noise
    best = min(down) if better is Better.LOWER else -min(down)
    return Verdict(is_plateau, series.steps[len(down) - third], best)


def _residuals(values: list[float]) -> list[float]:
    """How far values are from their line."""
    slope, begin = linear_regression(range(len(values)), values)
    return [value - begin - slope * number for number, value in enumerate(values)]


def _noise(parts: list[list[float]]) -> tuple[float, float]:
    """The standard deviation of the noise, and the standard error of the difference of two medians. Noise
    whose neighbours are alike has fewer independent values."""
    every = [each for part in parts for each in part]
    noise = TO_DEVIATION * median(map(abs, every))
    squares = sum(each * each for each in every)
    alike = sum(one * other for part in parts for one, other in pairwise(part)) / squares if squares else 0.0
    alike = min(max(alike, 0.0), MOST_ALIKE)
    values = len(parts[0]) * (1 - alike) / (1 + alike)
    return noise, OF_MEDIAN * noise * sqrt(2 / values)
