"""Forecasts of hourly demand with a band that holds 8 in 10 values. Pure and deterministic.

`requests_ahead` takes the spread of what similar past hours had, because requests come in bursts.
`level_ahead` pools simple forecasts of a level by how well each did lately, as wide as their errors
of the last days, and is between that and what similar past hours had. Weekdays and hours are those
of UTC. A public holiday is as a Sunday.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

DAY, WEEK = 24, 168
AHEAD = 14 * DAY
LEAST_HOURS = 3 * DAY
# What is older says nothing.
MOST_HOURS = 8 * WEEK
LOW, MIDDLE, HIGH = 0.1, 0.5, 0.9
COVERAGE = HIGH - LOW


@dataclass(frozen=True, slots=True)
class Band:
    """The expected value of each coming hour, with the bounds of 8 in 10."""

    low: Floats
    middle: Floats
    high: Floats

    def within(self, least: Floats | float, most: float) -> "Band":
        """The band between what is there already and what there can be."""
        return Band(*(np.clip(each, least, most) for each in (self.low, self.middle, self.high)))


@dataclass(frozen=True)
class History:
    """What each full hour had, oldest first; `begins` is the first hour, in UTC."""

    values: Floats
    begins: datetime
    holidays: frozenset[date] = frozenset()

    @cached_property
    def recent(self) -> "History":
        """The last weeks, which a forecast takes into account."""
        gone = max(0, len(self.values) - MOST_HOURS)
        return History(self.values[gone:], self.begins + timedelta(hours=gone), self.holidays)

    @property
    def is_enough(self) -> bool:
        """Whether it is long enough for a forecast."""
        return len(self.values) >= LEAST_HOURS

    def calendar(self, hours: int) -> tuple[Ints, Ints]:
        """The hour of the day and the weekday of so many hours from the first on; holidays are 6."""
        number = np.arange(hours)
        day = (self.begins.hour + number) // DAY
        first = self.begins.date()
        kinds = [_weekday(first + timedelta(days=each), self.holidays) for each in range(int(day[-1]) + 1)]
        return (self.begins.hour + number) % DAY, np.asarray(kinds)[day]


def _weekday(day: date, holidays: frozenset[date]) -> int:
    return 6 if day in holidays else day.weekday()


@dataclass(frozen=True, slots=True)
class Likeness:
    """How much alike hours are, 0 to 1: by how many hours the times of day are apart, and by
    whether both are on working days or both on days off."""

    hours: float
    other_day: float

    def of(self, ones: "HourKinds", others: "HourKinds") -> Floats:
        """A row for each of the ones."""
        apart = _hours_apart(ones.hour[:, None], others.hour[None, :])
        same = np.where(ones.is_off[:, None] == others.is_off[None, :], 1.0, self.other_day)
        return np.asarray(np.exp(-0.5 * (apart / self.hours) ** 2) * same)


@dataclass(frozen=True, slots=True)
class HourKinds:
    """Hours by their time of day, and whether each is on a day off."""

    hour: Ints
    is_off: NDArray[np.bool_]

    def part(self, where: slice) -> "HourKinds":
        """Some of them."""
        return HourKinds(self.hour[where], self.is_off[where])


def _hours_apart(one: Ints, other: Ints) -> Ints:
    """How far apart times of day are, at most 12 hours."""
    return np.asarray(np.abs((one - other + DAY // 2) % DAY - DAY // 2))


# Requests. An hour counts by half as much for each so many hours back; more are far ahead.
NEAR, NEAR_BY_HOUR, FAR = 12.0, 1.5, 240.0
ALIKE = Likeness(hours=1.5, other_day=0.3)
# Any hour counts by this part of one that is alike.
ANY_HOUR = 0.3
# The profile: as many mean hours keep few days from looking like a pattern.
PROFILE_ALIKE = Likeness(hours=1.0, other_day=0.03)
PROFILE_HALF_LIFE, PROFILE_SHRINK = 336.0, 1.0


def requests_ahead(history: History, hours: int = AHEAD) -> Band:
    """The GPUs that will be asked for in each coming hour."""
    seen = _Ratios(history.recent, hours)
    ahead = np.arange(1, hours + 1, dtype=float)[:, None]
    half_life = np.minimum(FAR, NEAR + NEAR_BY_HOUR * ahead)
    # The newest hour of a history is one hour before the first that is forecast.
    recent = 0.5 ** ((seen.age[None, :] + ahead - 1) / half_life)
    return seen.band(recent * (ANY_HOUR + ALIKE.of(seen.coming, seen.past)))


class _Ratios:
    """Past hours, each divided by the usual value of its time of day and kind of day."""

    def __init__(self, history: History, hours: int) -> None:
        self.known = len(history.values)
        hour, weekday = history.calendar(self.known + hours)
        kinds = HourKinds(hour, weekday >= 5)
        self.past, self.coming = kinds.part(slice(self.known)), kinds.part(slice(self.known, None))
        self.age = np.arange(self.known, 0, -1, dtype=float)
        profile = _profile(history.values, 0.5 ** (self.age / PROFILE_HALF_LIFE), self.past)
        self._usual = profile[kinds.is_off.astype(int), hour]
        self._ratios = history.values / np.maximum(self._usual[: self.known], 1e-9)

    def band(self, weights: Floats) -> Band:
        """The quantiles of each coming hour, by its row of weights of the past ones."""
        found = _quantiles(self._ratios, weights, (LOW, MIDDLE, HIGH))
        return Band(*(found * self._usual[self.known :]))


def _profile(values: Floats, weights: Floats, past: HourKinds) -> Floats:
    """The mean of each hour of the day, of working days and of days off."""
    mean = float(weights @ values / weights.sum())
    rows = []
    for is_off in (False, True):
        each = HourKinds(np.arange(DAY), np.full(DAY, is_off))
        alike = PROFILE_ALIKE.of(each, past) * weights
        rows.append((alike @ values + PROFILE_SHRINK * mean) / (alike.sum(1) + PROFILE_SHRINK))
    return np.asarray(rows)


def _quantiles(values: Floats, weights: Floats, parts: Sequence[float]) -> Floats:
    """The quantiles of values by each row of weights: a row for each part."""
    order = np.argsort(values, kind="stable")
    sums = np.cumsum(weights[:, order], axis=1)
    places = (sums - weights[:, order] / 2) / sums[:, -1:]
    ranked = values[order]
    return np.asarray([[np.interp(part, row, ranked) for row in places] for part in parts])


# Levels. Errors are counted at these hours ahead; between them weights and widths are interpolated.
ANCHORS = (1, 2, 4, 8, 16, 24, 36, 48, 72, 96, 120, 144, 168, 240, 336)
# How fast a deviation of now fades, in hours, and how the weight of past weeks falls.
FADES = (12.0, 48.0, 240.0)
SEASON_DECAYS = (1.0, 0.5)
SEASONS = 4
LEVEL_HALF_LIFE = 168.0
LOSS_HALF_LIFE, ERROR_HALF_LIFE = 60.0, 60.0
# In the width of an hour, errors of another time of day count by this part.
OTHER_HOUR_ERRORS, ERROR_HOURS_ALIKE = 0.3, 2.0
# The power by which forecasts with a smaller loss weigh more.
SHARPNESS = 8.0
LEAST_TESTS = 48
# Past levels of like hours count by these parts, each with a half-life in hours. The part of the pool fades
# from all to `POOLED`, because the errors of days say little of weeks.
SPREADS = ((0.5, 60.0), (0.5, 168.0))
LEVELS_ALIKE, ANY_LEVEL = Likeness(hours=2.0, other_day=0.3), 0.1
POOLED, POOL_FADES = 0.6, 24.0
# No band is narrower than this part of the mean of the history.
LEAST_WIDTH = 0.02


class _Pool:
    """Simple forecasts of a level: the mean, that of the hour of the day, and the same hour of past
    weeks (of past days, where fewer than three weeks are known), each with a deviation of now that
    fades."""

    def __init__(self, history: History) -> None:
        self.values = history.values
        self.known = len(history.values)
        self.period = WEEK if self.known >= 3 * WEEK else DAY
        self.mean = _running_mean(self.values, LEVEL_HALF_LIFE)
        self.by_hour = _means_by_hour(self.values)
        self._places = self._seasons(history)

    def _seasons(self, history: History) -> Ints:
        """For each hour, known or coming, its place in the period: a holiday is as a Sunday."""
        hour, weekday = history.calendar(self.known + AHEAD)
        here = (np.arange(self.known + AHEAD) + history.begins.hour) // DAY * DAY - history.begins.hour + hour
        if self.period == DAY:
            return np.asarray(here)
        usual = (history.begins.weekday() + (here + history.begins.hour) // DAY) % 7
        return np.asarray(here + (weekday - usual) * DAY)

    def seasonal(self, targets: Ints, ahead: int, decay: float) -> Floats:
        """The mean of the same hour in the last periods that were known so many hours before."""
        first = -(-ahead // self.period)
        total = np.zeros(len(targets))
        weight = np.zeros(len(targets))
        for number in range(SEASONS):
            places = self._places[targets] - (first + number) * self.period
            # The Sunday of a holiday's own week may not have been yet.
            places = np.where(places > targets - ahead, places - self.period, places)
            is_known = (places >= 0) & (places < self.known)
            total += np.where(is_known, self.values[np.clip(places, 0, self.known - 1)], 0.0) * decay**number
            weight += is_known * decay**number
        return np.where(
            weight > 0, total / np.maximum(weight, 1e-9), self.mean[np.maximum(targets - ahead, 0)]
        )

    def forecasts(self, origins: Ints, ahead: int) -> Floats:
        """A row for each simple forecast of the hour `ahead` of each origin, the last known hour."""
        now = self.values[origins]
        bases = [(self.mean[origins], self.mean[origins])]
        bases += [
            (self.seasonal(origins + ahead, ahead, decay), self.seasonal(origins, 1, decay))
            for decay in SEASON_DECAYS
        ]
        hours = origins % DAY
        bases.append((self.by_hour[origins, (hours + ahead) % DAY], self.by_hour[origins, hours]))
        rows = [base + (now - usual) * np.exp(-ahead / fade) for base, usual in bases for fade in FADES]
        return np.asarray(np.maximum(np.asarray(rows), 0.0))


def level_ahead(history: History, hours: int = AHEAD) -> Band:
    """The level of each coming hour, such as GPUs in use, at most two weeks ahead: quantiles that are
    between those of the pool and those of past levels."""
    history = history.recent
    pooled, spread = _pooled(history, hours), _spread(history, hours)
    part = POOLED + (1 - POOLED) * np.exp(-np.arange(1, hours + 1) / POOL_FADES)
    pairs = ((pooled.low, spread.low), (pooled.middle, spread.middle), (pooled.high, spread.high))
    return Band(*(part * one + (1 - part) * other for one, other in pairs))


def _spread(history: History, hours: int) -> Band:
    """The quantiles of past levels by their usual value, those of recent and of like hours first."""
    seen = _Ratios(history, hours)
    recent = np.zeros(seen.known)
    for part, half_life in SPREADS:
        fading = 0.5 ** (seen.age / half_life)
        recent += part * fading / fading.sum()
    return seen.band((ANY_LEVEL + LEVELS_ALIKE.of(seen.coming, seen.past)) * recent)


def _pooled(history: History, hours: int) -> Band:
    """The forecast of the pool, as wide as its errors of the last days."""
    pool = _Pool(history)
    weights, widths, anchors = _back_tests(pool)
    now = np.asarray([pool.known - 1])
    ahead = np.arange(1, hours + 1)
    mixed = np.asarray([np.interp(ahead, anchors, column) for column in weights.T]).T
    middle = np.asarray([float(mixed[each - 1] @ pool.forecasts(now, int(each))[:, 0]) for each in ahead])
    # Beyond the last hour that could be tested, errors grow as those of a walk.
    by_hour = np.asarray([np.interp(ahead, anchors, column) for column in widths.T])
    width = by_hour[(pool.known - 1 + ahead) % DAY, ahead - 1] * np.sqrt(np.maximum(1.0, ahead / anchors[-1]))
    width = np.maximum(width, LEAST_WIDTH * float(pool.values.mean()))
    return Band(np.maximum(middle - width, 0.0), middle, middle + width)


def _back_tests(pool: _Pool) -> tuple[Floats, Floats, Ints]:
    """The weights of the simple forecasts by hours ahead, and the half-width of the band also by the
    hour of the day, counted from the first of the history."""
    weights: list[Floats] = []
    widths: list[Floats] = []
    anchors: list[int] = []
    floor = 0.1 * float(pool.values.mean()) + 1e-9
    first = pool.period
    for ahead in ANCHORS:
        origins = np.arange(first, pool.known - ahead)
        if len(origins) < LEAST_TESTS and anchors:
            break
        if not len(origins):
            origins = np.arange(pool.known - ahead)
        targets = origins + ahead
        found = pool.forecasts(origins, ahead)
        errors = np.abs(found - pool.values[targets])
        age = pool.known - 1.0 - targets
        # Each hour counts alike: one with a jump does not outweigh all others.
        losses = (errors / (errors.mean(0) + floor)) @ 0.5 ** (age / LOSS_HALF_LIFE)
        weight = np.exp(-SHARPNESS * (losses / max(losses.min(), 1e-9) - 1))
        weight /= weight.sum()
        missed = np.abs(weight @ found - pool.values[targets])
        kept = 0.5 ** (age / ERROR_HALF_LIFE)
        apart = _hours_apart(np.arange(DAY)[:, None], targets[None, :])
        alike = OTHER_HOUR_ERRORS + np.exp(-0.5 * (apart / ERROR_HOURS_ALIKE) ** 2)
        weights.append(weight)
        widths.append(_quantiles(missed, kept * alike, (COVERAGE,))[0])
        anchors.append(ahead)
    return np.asarray(weights), np.asarray(widths), np.asarray(anchors)


def _running_mean(values: Floats, half_life: float) -> Floats:
    """The mean until each hour, with half the weight for each half-life back."""
    keep = 0.5 ** (1 / half_life)
    means = np.empty(len(values))
    total = weight = 0.0
    for number, value in enumerate(values):
        total, weight = total * keep + float(value), weight * keep + 1
        means[number] = total / weight
    return means


def _means_by_hour(values: Floats) -> Floats:
    """The mean of each hour of the day until each hour, with half the weight for each week back."""
    keep = 0.5 ** (DAY / LEVEL_HALF_LIFE)
    means = np.empty((len(values), DAY))
    totals, weights = np.zeros(DAY), np.zeros(DAY)
    now = np.full(DAY, float(values[0]))
    for number, value in enumerate(values):
        place = number % DAY
        totals[place] = totals[place] * keep + float(value)
        weights[place] = weights[place] * keep + 1
        now[place] = totals[place] / weights[place]
        means[number] = now
    return means
