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
    assert risk.basis == (
        "2 of 41 similar bookings were paused (same tier, class and time of day, not borrowed)"
    )


def test_nothing_seen_is_an_assumption_and_says_so() -> None:
    risk = PauseRecord([]).risk("spot", "h100", borrowed=False, quarter=1)
    assert (risk.thousandths, risk.ended) == (50, 0)
    assert risk.basis == "too few past bookings; assuming 5 %"


def test_with_too_few_alike_less_has_to_be_alike() -> None:
    rows = [outcomes(19, 9), outcomes(30, 0, quarter=2), outcomes(500, 500, gpu_class="a100")]
    record = PauseRecord(rows)
    of_class = record.risk("spot", "h100", borrowed=False, quarter=1)
    assert (of_class.paused, of_class.ended) == (9, 49)
    of_tier = record.risk("spot", "l40s", borrowed=False, quarter=1)
    assert (of_tier.paused, of_tier.ended) == (509, 549)
    assert record.risk("spot", "h100", borrowed=True, quarter=1).ended == 0
    assert record.risk("standard", "h100", borrowed=False, quarter=1).ended == 0


def test_a_range_is_what_8_of_10_kept_as_a_part_of_their_lead() -> None:
    kept = [(3_600, late) for late in range(-600, 1_400, 100)]
    found = start_range(NOW + 2 * HOUR, NOW, kept)
    assert found is not None
    assert found.of == 20
    assert found.earliest == NOW + 2 * HOUR - timedelta(seconds=1_000)
    assert found.latest == NOW + 2 * HOUR + timedelta(seconds=2_200)


def test_a_range_holds_the_promise_and_begins_no_earlier_than_now() -> None:
    found = start_range(NOW + HOUR, NOW, [(3_600, -7_200)] * MIN_STARTS)
    assert found is not None
    assert (found.earliest, found.latest) == (NOW, NOW + HOUR)


@pytest.mark.parametrize("count", [0, MIN_STARTS - 1])
@pytest.mark.parametrize(("lead", "slack"), [(1, 0.5), (8, 2)])
def test_too_few_to_learn_from_give_an_assumption(count: int, lead: int, slack: float) -> None:
    found = start_range(NOW + lead * HOUR, NOW, [(3_600, 0)] * count)
    assert found == StartRange(NOW + lead * HOUR, NOW + (lead + slack) * HOUR, of=0)
