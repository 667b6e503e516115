"""The spend of the coming days from that of the days so far: by weekday, with a trend, and with a
range from back-tests. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

# Days of the week differ in a forecast from three weeks on.
LEAST_DAYS = 21
WINDOW = 56
HISTORY = 2 * WINDOW
HALF_LIFE_DAYS = 14.0
COVERAGE = 0.8
# A slope counts from so many times its standard error on. With 3, ranges of an organisation that
# grows by half a percent a day held in 50 of 100 cases (`tests.bench.forecast`).
CERTAIN = 1.5
# The least half-width of a range, as a part of the forecast: no range is zero wide.
LEAST_WIDTH = 0.05


@dataclass(frozen=True, slots=True)
class SpendRange:
    """The expected sum, and the range that holds it in 80 of 100 cases by `tests` back-tests."""

    middle: float
    low: float
    high: float
    tests: int


def spend_range(days: Sequence[float], weekday: int, horizon: int) -> SpendRange | None:
    """The sum of the next `horizon` days. `days` are full days, oldest first; `weekday` is that of
    the first coming day. None for fewer than three weeks.

    The width is the error that 80 % of the back-tests keep: the same forecast from each earlier
    day. Where the history is too short for tests of the whole horizon, tests of a shorter one are
    widened by the square root of the ratio.
    """
    if len(days) < LEAST_DAYS or horizon < 1:
        return None
    recent = list(days)[-HISTORY:]
    middle = _sum(recent, weekday, horizon)
    tested = min(horizon, max(1, (len(recent) - 7) // 2))
    errors = sorted(_errors(recent, weekday, tested))
    rank = min(len(errors), math.ceil(COVERAGE * (len(errors) + 1))) - 1
    width = errors[rank] * math.sqrt(horizon / tested)
    width = max(width, LEAST_WIDTH * middle, 0.01)
    return SpendRange(middle, max(0.0, middle - width), middle + width, len(errors))


def _errors(days: Sequence[float], weekday: int, horizon: int) -> list[float]:
    """The errors of the forecasts from each day that leaves enough days before and after it."""
    first = max(7, len(days) // 3)
    return [
        abs(sum(days[at : at + horizon]) - _sum(days[:at], (weekday - (len(days) - at)) % 7, horizon))
        for at in range(first, len(days) - horizon + 1)
    ]


def _sum(days: Sequence[float], weekday: int, horizon: int) -> float:
    recent = days[-WINDOW:]
    count = len(recent)
    factors = _factors(recent, weekday)
    usual = [factors[(weekday - count + number) % 7] for number in range(count)]
    line = _trend(recent, usual)
    level, slope = line or (_level(recent, usual), 0.0)
    middle = (count - 1) / 2
    return sum(
        max(0.0, level + slope * (count - middle + ahead)) * factors[(weekday + ahead) % 7]
        for ahead in range(horizon)
    )


def _level(days: Sequence[float], usual: Sequence[float]) -> float:
    """The spend of a usual day, with half the weight for each 14 days back."""
    weights = [math.pow(0.5, back / HALF_LIFE_DAYS) for back in range(len(days) - 1, -1, -1)]
    spent = sum(weight * day for weight, day in zip(weights, days, strict=True))
    return spent / sum(weight * each for weight, each in zip(weights, usual, strict=True))


def _trend(days: Sequence[float], usual: Sequence[float]) -> tuple[float, float] | None:
    """The level in the middle and the slope per day of usual days, by least squares; None unless
    the slope is certain."""
    count = len(days)
    if count < 14:
        return None
    rows = [
        (factor, factor * (number - (count - 1) / 2), day)
        for number, (factor, day) in enumerate(zip(usual, days, strict=True))
    ]
    first, mixed, second = (
        sum(one * other for one, other in pairs)
        for pairs in (
            [(a, a) for a, _, _ in rows],
            [(a, b) for a, b, _ in rows],
            [(b, b) for _, b, _ in rows],
        )
    )
    ours, theirs = sum(a * day for a, _, day in rows), sum(b * day for _, b, day in rows)
    whole = first * second - mixed**2
    slope = (first * theirs - mixed * ours) / whole
    level = (second * ours - mixed * theirs) / whole
    rest = sum((day - level * a - slope * b) ** 2 for a, b, day in rows)
    error = math.sqrt(rest / (count - 2) * first / whole)
    return (level, slope) if abs(slope) > CERTAIN * error else None


def _factors(days: Sequence[float], weekday: int) -> list[float]:
    """How each weekday compares with the mean; a week of the mean keeps few weeks from looking
    like a pattern."""
    weeks = len(days) // 7
    whole = days[len(days) - weeks * 7 :]
    mean = sum(whole) / len(whole) if whole else 0.0
    if weeks < 3 or not mean:
        return [1.0] * 7
    sums = [0.0] * 7
    for number, day in enumerate(whole):
        sums[(weekday - len(whole) + number) % 7] += day
    return [(each + mean) / ((weeks + 1) * mean) for each in sums]
