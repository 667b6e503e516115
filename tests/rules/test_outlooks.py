"""Chances and ranges counted from what became of earlier bookings."""

from datetime import UTC, datetime, timedelta

import pytest

from allocation.rules.pause_risk import Outcomes, PauseRecord
from allocation.rules.start_range import MIN_STARTS, StartRange, start_range

NOW = datetime(2026, 11, 17, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)


def outcomes(ended: int, paused: int, *, gpu_class: str = "h100", quarter: int = 1) -> Outcomes:
    return Outcomes("spot", gpu_class, borrowed=False, quarter=quarter, ended=ended, paused=paused)


def test_two_pauses_of_41_alike_are_said_with_what_was_counted() -> None:
    risk = PauseRecord([outcomes(41, 2)]).risk("spot", "h100", borrowed=False, quarter=1)
    assert risk.thousandths == 1000 * 3 // 61
    alike = "same tier, class and time of day, not borrowed"
    assert risk.basis == f"2 of 41 similar bookings were paused: {alike}"


def test_nothing_seen_is_unknown_and_no_risk() -> None:
    risk = PauseRecord([]).risk("spot", "h100", borrowed=False, quarter=1)
    assert (risk.thousandths, risk.weighed, risk.ended) == (None, 50, 0)
    assert risk.basis == "too few past bookings to tell"


def test_with_too_few_alike_less_has_to_be_alike() -> None:
    rows = [outcomes(19, 9), outcomes(30, 0, quarter=2), outcomes(500, 500, gpu_class="a100")]
    record = PauseRecord(rows)
    of_class = record.risk("spot", "h100", borrowed=False, quarter=1)
    assert (of_class.paused, of_class.ended) == (9, 49)
    of_tier = record.risk("spot", "l40s", borrowed=False, quarter=1)
    assert (of_tier.paused, of_tier.ended) == (509, 549)
    assert record.risk("spot", "h100", borrowed=True, quarter=1).ended == 0
    assert record.risk("standard", "h100", borrowed=False, quarter=1).ended == 0


@pytest.mark.parametrize(
    ("lead", "late", "slack"),
    [
        (1, [], 30),
        (8, [], 120),
        (8, [(3_600, 1_800)] * (MIN_STARTS - 1), 120),
        (2, [(3_600, 1_800)] * 16 + [(3_600, 3_600)] * 4, 60),
        (2, [(3_600, 1_800)] * 15 + [(3_600, 3_600)] * 5, 120),
        (8, [(3_600, -600)] * MIN_STARTS, 120),
        (1.4, [], 30),
        (2.2, [], 35),
    ],
    ids=[
        "half an hour",
        "a quarter of the lead",
        "too few to learn from",
        "as late as 8 of 10 were, as a part of their lead",
        "and no less",
        "early starts",
        "a short lead",
        "rounded up to five minutes",
    ],
)
def test_an_expected_start_may_be_late_by_the_longest_of_three(
    lead: float, late: list[tuple[int, int]], slack: int
) -> None:
    starts = NOW + lead * HOUR
    found = start_range(starts, NOW, late)
    assert (found.earliest, found.latest - starts) == (starts, timedelta(minutes=slack))
    assert found.of == (len(late) if len(late) >= MIN_STARTS else 0)


def test_a_start_that_nobody_outside_delays_and_one_that_is_due_have_no_range() -> None:
    sure = start_range(NOW + HOUR, NOW, [(60, 600)] * MIN_STARTS, is_expected=False)
    assert sure == StartRange(NOW + HOUR, NOW + HOUR)
    assert start_range(NOW - HOUR, NOW, []) == StartRange(NOW - HOUR, NOW - HOUR)
