"""The dates of rules by another library, and the end of the search where a rule has none."""

import sys
from dataclasses import replace
from datetime import date, datetime, time
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from dateutil.rrule import DAILY, MONTHLY, WEEKLY, rrule, weekday
from hypothesis import strategies as st

from allocation.errors import AskError
from allocation.rules.recurrence import Recurrence, dates_of
from tests.rings import holds_for
from tests.rules.test_recurrence import dates, walls


@pytest.mark.parametrize(
    "rule",
    [
        "FREQ=MONTHLY;BYDAY=5MO;BYSETPOS=2;COUNT=2",
        "FREQ=MONTHLY;BYMONTHDAY=31;BYSETPOS=2;UNTIL=21991231",
        "FREQ=MONTHLY;BYDAY=5MO;BYMONTHDAY=1;COUNT=366",
        "FREQ=DAILY;INTERVAL=7;BYDAY=TU;COUNT=2",
    ],
)
def test_a_rule_without_dates_is_refused_after_few_months(rule: str) -> None:
    calls: list[str] = []
    profile = sys.getprofile()
    sys.setprofile(lambda frame, event, _: calls.append(event))
    try:
        with pytest.raises(AskError, match="no_dates"):
            dates(rule, "2026-12-07 09:00")
    finally:
        sys.setprofile(profile)
    # A search of the whole calendar makes some 500,000.
    assert len(calls) < 50_000


def test_sparse_rules_find_all_of_their_dates() -> None:
    # A February with five Mondays comes after 28 years, or after 40: 2100 is no leap year.
    found = dates("FREQ=MONTHLY;INTERVAL=12;BYDAY=5MO;UNTIL=21991231", "2028-02-01 09:00")
    assert walls(found) == [f"{year}-02-29 09:00" for year in (2044, 2072, 2112, 2140, 2168, 2196)]


def test_weekdays_and_numbered_ones_of_a_month_are_both_dates() -> None:
    found = dates("FREQ=MONTHLY;BYDAY=MO,2TU;COUNT=6", "2027-02-01 09:00")
    assert [each[8:10] for each in walls(found)] == ["01", "08", "09", "15", "22", "01"]


_OF_ORACLE = st.fixed_dictionaries(
    {
        "freq": st.sampled_from(("DAILY", "WEEKLY", "MONTHLY")),
        "interval": st.integers(1, 14),
        "days": st.sets(st.integers(0, 6), max_size=4),
        "nth": st.sets(st.tuples(st.sampled_from((1, 2, 4, 5, -1, -5)), st.integers(0, 6)), max_size=3),
        "month_days": st.sets(st.sampled_from((1, 15, 29, 30, 31, -1, -31)), max_size=3),
        "positions": st.sets(st.sampled_from((1, 2, 5, -1)), max_size=2),
        "week_starts": st.integers(0, 6),
        "first": st.dates(date(2026, 1, 1), date(2032, 12, 31)),
    }
)


@holds_for(_OF_ORACLE)
def test_dates_are_those_of_another_library(given: dict[str, Any]) -> None:
    is_month, has_days = given["freq"] == "MONTHLY", bool(given["days"])
    # dateutil takes weekdays and numbered ones together as a day that is both.
    nth = given["nth"] if is_month and not has_days else set()
    month_days = given["month_days"] if is_month else set()
    positions = given["positions"] if is_month and (has_days or nth or month_days) else set()
    first = datetime.combine(given["first"], time(9), ZoneInfo("UTC"))
    rule = Recurrence(
        given["freq"],
        given["interval"],
        tuple(sorted(given["days"])),
        until=date(2036, 12, 31),
        nth=tuple(nth),
        month_days=tuple(month_days),
        positions=tuple(positions),
        week_starts=given["week_starts"],
    )
    oracle = rrule(
        {"DAILY": DAILY, "WEEKLY": WEEKLY, "MONTHLY": MONTHLY}[given["freq"]],
        dtstart=first,
        interval=rule.interval,
        byweekday=[*rule.days, *(weekday(day, which) for which, day in nth)] or None,
        bymonthday=rule.month_days or None,
        bysetpos=rule.positions or None,
        wkst=rule.week_starts,
        until=datetime(2036, 12, 31, 23, 59, tzinfo=ZoneInfo("UTC")),
    )
    expected = list(islice(oracle, 40))
    if expected:
        assert list(dates_of(replace(rule, times=40), first, ZoneInfo("UTC")).starts) == expected
    else:
        with pytest.raises(AskError, match="no_dates"):
            dates_of(replace(rule, times=40), first, ZoneInfo("UTC"))
