"""Rates and ends from reports."""

from datetime import UTC, datetime, timedelta

import pytest

from allocation.features.progress.rules import Pace, is_number_of_steps, metrics_fault, misses_by

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def run(*reports: tuple[float, float]) -> Pace:
    """The pace after reports of (minutes, steps)."""
    (first, begun), *more = reports
    pace = Pace.begun(NOW + first * MINUTE, begun)
    for minutes, step in more:
        pace = pace.moved(NOW + minutes * MINUTE, step)
    return pace


def test_the_first_report_has_no_rate_and_a_short_time_neither() -> None:
    assert run((0, 5)).per_second is None
    assert run((0, 5), (0.3, 900)).per_second is None
    assert run((0, 5), (10, 5)).per_second is None
    assert run((0, 5), (10, 605)).per_second == pytest.approx(1)


def test_the_rate_is_that_of_the_last_quarter_to_half_of_an_hour() -> None:
    slow = [(minute, 10.0 * minute) for minute in range(0, 61, 5)]
    fast = [(60 + minute, 600 + 100.0 * minute) for minute in range(5, 61, 5)]
    pace = run(*slow, *fast)
    assert pace.per_second == pytest.approx(100 / 60)
    age = (pace.at - pace.anchor_at) / MINUTE
    assert 15 <= age <= 30


def test_an_end_is_where_the_last_step_is_done() -> None:
    pace = run((0, 0), (10, 100))
    assert pace.ends(1_000) == NOW + 100 * MINUTE
    assert pace.ends(100) == NOW + 10 * MINUTE
    assert pace.ends(None) is None
    assert pace.ends(1e15) is None, "in ten years or more"
    assert run((0, 0)).ends(5) is None


@pytest.mark.parametrize(
    ("ends", "booked", "apart"),
    [(60, 60, 0), (64, 60, 0), (66, 60, 6), (54, 60, -6), (630, 600, 30), (629, 600, 0), (10, -5, 15)],
)
def test_an_end_is_worth_a_word_by_five_minutes_and_a_twentieth_of_what_is_left(
    ends: int, booked: int, apart: int
) -> None:
    assert misses_by(NOW + ends * MINUTE, NOW + booked * MINUTE, NOW) == apart * MINUTE


@pytest.mark.parametrize(
    ("metrics", "fault"),
    [
        ({"loss": 0.3, "val/acc@5": 1.0}, ""),
        ({"lo ss": 0.3}, "lo ss"),
        ({"": 0.3}, None),
        ({"x" * 41: 0.3}, "x" * 40),
        ({"loss": float("nan")}, "loss"),
        ({"loss": float("inf")}, "loss"),
        ({f"m{n}": 1.0 for n in range(16)}, ""),
        ({f"m{n}": 1.0 for n in range(17)}, "m16"),
    ],
)
def test_metrics_are_few_finite_numbers_with_short_names(
    metrics: dict[str, float], fault: str | None
) -> None:
    assert metrics_fault(metrics) == (fault or "")


def test_steps_are_finite_and_not_negative() -> None:
    assert is_number_of_steps(0)
    assert is_number_of_steps(1e15)
    assert not any(map(is_number_of_steps, (-1, 1.1e15, float("nan"), float("inf"))))
