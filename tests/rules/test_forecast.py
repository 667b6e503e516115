"""Forecasts of spending: the range that is promised, on three kinds of tenants."""

from collections.abc import Callable
from random import Random

import pytest

from allocation.rules.forecast import spend_range

Days = list[float]


def seasonal(random: Random, count: int) -> Days:
    """Work days cost four times as much as the weekend."""
    return [max(0, random.gauss(100, 20)) * (0.3 if n % 7 >= 5 else 1.2) for n in range(count)]


def bursty(random: Random, count: int) -> Days:
    """One day in five costs much more."""
    return [random.expovariate(1 / (400 if random.random() < 0.2 else 30)) for _ in range(count)]


def growing(random: Random, count: int) -> Days:
    """Each day costs one more."""
    return [max(0, random.gauss(50 + n, 15)) for n in range(count)]


@pytest.mark.parametrize("tenant", [seasonal, bursty, growing])
def test_the_range_holds_the_spend_in_70_to_90_of_100_cases(
    tenant: Callable[[Random, int], Days],
) -> None:
    random, held, history, horizon = Random(1), 0, 90, 14  # noqa: S311 (not a secret)
    cases = 100
    for _ in range(cases):
        days = tenant(random, history + horizon)
        found = spend_range(days[:history], history % 7, horizon)
        assert found is not None
        held += found.low <= sum(days[history:]) <= found.high
    assert 0.7 * cases <= held <= 0.9 * cases


def test_weekdays_and_a_trend_are_followed() -> None:
    weeks = [100.0] * 5 + [0.0] * 2
    weekend = spend_range(weeks * 8, 0, 7)
    assert weekend is not None
    assert weekend.middle == pytest.approx(500, rel=0.02)
    friday_on = spend_range([*weeks * 8, *[100.0] * 4], 4, 3)
    assert friday_on is not None
    assert friday_on.middle < 150
    rising = spend_range([float(n) for n in range(60)], 4, 10)
    assert rising is not None
    assert rising.middle == pytest.approx(sum(range(60, 70)), rel=0.05)


def test_a_range_is_never_zero_wide_and_needs_three_weeks() -> None:
    flat = spend_range([10.0] * 30, 0, 10)
    assert flat is not None
    assert flat.low < flat.middle < flat.high
    nothing = spend_range([0.0] * 30, 0, 10)
    assert nothing is not None
    assert (nothing.low, nothing.middle) == (0, 0)
    assert nothing.high > 0
    assert spend_range([10.0] * 20, 0, 10) is None
