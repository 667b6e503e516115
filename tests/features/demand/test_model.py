"""Forecasts of demand: what they hold, what they take into account, and that they are repeatable."""

import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import TypeAlias

import numpy as np
import pytest

from allocation.features.demand.model import (
    AHEAD,
    DAY,
    LEAST_HOURS,
    WEEK,
    Band,
    Floats,
    History,
    level_ahead,
    requests_ahead,
)
from tests.bench.demand import Job, compared, hours_of

MONDAY = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)
Forecast: TypeAlias = Callable[[History], Band]


def office(weeks: int, seed: str, growth: float = 0.0, *, in_bursts: bool = False) -> Floats:
    """Busy on working days from 8 to 18 o'clock, with noise or in bursts, and a growth by week."""
    draw = random.Random(seed)  # noqa: S311 (the same draws each time)
    values = []
    for hour in range(weeks * WEEK):
        busy = 8 <= hour % DAY < 18 and hour // DAY % 7 < 5
        level = (20.0 if busy else 5.0) * (1 + growth * hour / WEEK)
        values.append(level * (draw.expovariate(1) if in_bursts else max(0.0, draw.gauss(1, 0.2))))
    return np.asarray(values)


@pytest.mark.turn
@pytest.mark.parametrize(
    ("kind", "growth", "gain"), [("in_use", 0.0, 0), ("in_use", 0.1, 12), ("requested", 0.1, 5)]
)
def test_bands_hold_and_losses_are_smaller(kind: str, growth: float, gain: int) -> None:
    """Three unseen series of ten weeks with a pattern: 8 in 10 hours are in the band, and the loss is
    smaller than with the same hour of four weeks, which are as good where nothing changes."""
    draws = [office(10, f"{growth} {each}", growth, in_bursts=kind == "requested") for each in range(3)]
    found = [compared(kind, MONDAY, values, 6 * WEEK, 41) for values in draws]
    assert all(0.70 <= each["held"] <= 0.90 for each in found), found
    assert all(each["better_percent"] > gain for each in found), found


@pytest.mark.parametrize("forecast", [level_ahead, requests_ahead])
def test_hours_of_a_week_differ(forecast: Forecast) -> None:
    """A working hour of each of the 14 days is expected busy, a night is not, and a Saturday is not."""
    band = forecast(History(office(6, "hours"), MONDAY))
    assert len(band.middle) == AHEAD
    days = band.middle.reshape(14, DAY)
    for number, day in enumerate(days):
        busy = day[9:17].mean()
        assert busy == pytest.approx(20 if number % 7 < 5 else 5, rel=0.25), number
        assert day[:6].mean() == pytest.approx(5, rel=0.25), number


@pytest.mark.parametrize("forecast", [level_ahead, requests_ahead])
def test_a_holiday_is_as_a_sunday(forecast: Forecast) -> None:
    """A coming Wednesday that is a holiday is quiet, and the Thursday after it is not."""
    off = frozenset({date(2026, 2, 18)})
    plain = forecast(History(office(6, "off"), MONDAY))
    other = forecast(History(office(6, "off"), MONDAY, off))
    wednesday, thursday = slice(2 * DAY + 9, 2 * DAY + 17), slice(3 * DAY + 9, 3 * DAY + 17)
    assert other.middle[wednesday].mean() < 0.5 * plain.middle[wednesday].mean()
    assert other.middle[thursday].mean() == pytest.approx(plain.middle[thursday].mean(), rel=0.05)


def test_a_past_holiday_does_not_lower_the_same_weekday() -> None:
    """The level of last Wednesday's holiday is not expected again this Wednesday."""
    values = office(6, "past")
    wednesday = slice(5 * WEEK + 2 * DAY, 5 * WEEK + 3 * DAY)
    values[wednesday] = 5.0
    off = frozenset({(MONDAY + timedelta(days=37)).date()})
    known = requests_ahead(History(values, MONDAY, off)).middle.reshape(14, DAY)[2, 9:17].mean()
    assert known > requests_ahead(History(values, MONDAY)).middle.reshape(14, DAY)[2, 9:17].mean()


def test_a_jump_of_the_level_is_followed_within_days() -> None:
    """Two days after everything doubled, tomorrow is expected higher than before the jump."""
    values = office(6, "jump")
    values[-2 * DAY :] *= 2
    assert level_ahead(History(values, MONDAY)).middle[:DAY].mean() > 1.3 * values[-9 * DAY : -8 * DAY].mean()


@pytest.mark.parametrize("hours", [LEAST_HOURS, LEAST_HOURS + 7, 5 * DAY, WEEK, 2 * WEEK + 1, 3 * WEEK])
@pytest.mark.parametrize("forecast", [level_ahead, requests_ahead])
def test_short_and_empty_histories_have_finite_bands(forecast: Forecast, hours: int) -> None:
    """From three days on there is a band in order, also of nothing at all."""
    for values in (office(3, "short")[:hours], np.zeros(hours)):
        band = forecast(History(values, MONDAY + 5 * HOUR))
        for each in (band.low, band.middle, band.high):
            assert np.isfinite(each).all()
        assert (band.low <= band.middle).all()
        assert (band.middle <= band.high).all()
        assert (band.low >= 0).all()


def test_the_same_history_gives_the_same_bytes() -> None:
    """Nothing but the history counts: not what is older than eight weeks, and no clock."""
    values = office(9, "same")
    first = level_ahead(History(values, MONDAY))
    again = level_ahead(History(values[WEEK:].copy(), MONDAY + timedelta(weeks=1)))
    assert first.middle.tobytes() == again.middle.tobytes()
    assert first.high.tobytes() == again.high.tobytes()


def test_a_band_is_between_what_is_booked_and_what_there_is() -> None:
    """What is booked already is the least, the GPUs of the class are the most."""
    band = Band(np.asarray([1.0, 1.0]), np.asarray([2.0, 2.0]), np.asarray([9.0, 9.0]))
    held = band.within(np.asarray([3.0, 0.0]), 8.0)
    assert held.low.tolist() == [3.0, 1.0]
    assert held.middle.tolist() == [3.0, 2.0]
    assert held.high.tolist() == [8.0, 8.0]


def test_hours_of_jobs_are_means() -> None:
    """Two GPUs from 0:30 to 2:15 are 1, 2 and 0.5 on average, and are asked for in the first hour."""
    found = hours_of([Job(0.5, 2.25, 2.0)], 4)
    assert found["in_use"].tolist() == pytest.approx([1.0, 2.0, 0.5, 0.0])
    assert found["requested"].tolist() == [2.0, 0.0, 0.0, 0.0]
