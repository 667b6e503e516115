"""Limits at some times: nights, weekends and dates by the clocks of a zone, DST nights too."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import strategies as st

from tenants.rules.limit_times import FOREVER, Times, limit_steps
from tests.rings import holds_for

BERLIN = "Europe/Berlin"
NIGHT = Times(first_hour=22, end_hour=6, zone=BERLIN)


def utc(day: int, hour: int, month: int = 3) -> datetime:
    return datetime(2026, month, day, hour, tzinfo=UTC)


@pytest.mark.parametrize(
    ("times", "since", "spans"),
    [
        # The clocks go forward on 29 March at 2:00: that night has seven hours.
        (NIGHT, utc(27, 12), [(utc(27, 21), utc(28, 5)), (utc(28, 21), utc(29, 4))]),
        # And back on 25 October at 3:00: nine hours.
        (NIGHT, utc(23, 12, 10), [(utc(23, 20, 10), utc(24, 4, 10)), (utc(24, 20, 10), utc(25, 5, 10))]),
        # An hour that the clocks skip is the moment of the jump.
        (
            Times(first_hour=2, end_hour=4, weekdays=(6,), zone=BERLIN),
            utc(28, 12),
            [(utc(29, 1), utc(29, 2))],
        ),
        # Of an hour that comes twice the first counts.
        (
            Times(first_hour=2, end_hour=4, weekdays=(6,), zone=BERLIN),
            utc(24, 12, 10),
            [(utc(25, 0, 10), utc(25, 3, 10))],
        ),
        (
            Times(weekdays=(5, 6), zone=BERLIN),
            utc(28, 12),
            [(utc(28, 12), utc(28, 23)), (utc(28, 23), utc(29, 22))],
        ),
        # The last day is the last on which it begins.
        (
            Times(date(2026, 3, 28), date(2026, 3, 28), (), 22, 6, BERLIN),
            utc(27, 12),
            [(utc(28, 21), utc(29, 4))],
        ),
        (Times(first_day=date(2026, 3, 29)), utc(28, 12), [(utc(29, 0), utc(30, 0))]),
    ],
    ids=["short night", "long night", "skipped", "twice", "weekend", "one date", "from a date"],
)
def test_spans_by_the_clocks(times: Times, since: datetime, spans: list[tuple[datetime, datetime]]) -> None:
    found = list(times.spans(since, since + timedelta(hours=60)))
    assert found[: len(spans)] == spans


hours = st.integers(0, 23)
times_of = st.builds(
    Times,
    first_day=st.none() | st.dates(date(2026, 3, 20), date(2026, 4, 5)),
    last_day=st.none() | st.dates(date(2026, 3, 25), date(2026, 4, 9)),
    weekdays=st.lists(st.integers(0, 6), max_size=3).map(tuple),
    first_hour=hours,
    end_hour=hours.map(lambda hour: hour + 1),
    zone=st.sampled_from([BERLIN, "UTC", "America/New_York"]),
)


def applies(times: Times, moment: datetime) -> bool:
    """Asks the clocks: the hour that they show, and the day on which it has begun."""
    local = moment.astimezone(ZoneInfo(times.zone))
    for days in (0, 1):
        day = local.date() - timedelta(days=days)
        hour = local.hour + 24 * days
        ends = times.end_hour + (24 if times.end_hour <= times.first_hour else 0)
        if (
            times.first_hour <= hour < ends
            and (not times.weekdays or day.weekday() in times.weekdays)
            and (times.first_day is None or day >= times.first_day)
            and (times.last_day is None or day <= times.last_day)
        ):
            return True
    return False


@holds_for(
    st.none() | st.integers(0, 9),
    st.lists(st.tuples(st.integers(0, 9), times_of), max_size=3),
    few=60,
    many=1_000,
)
def test_of_all_that_apply_the_lowest_counts_at_each_hour(
    base: int | None, rows: list[tuple[int, Times]]
) -> None:
    since, until = utc(26, 0), utc(31, 0)
    steps = limit_steps(base, rows, since, until)
    known: list[int | None]
    for quarter in range(0, 4 * 24 * 5, 3):
        moment = since + timedelta(minutes=15 * quarter)
        known = [step.limit for step in steps if step.starts <= moment < step.ends]
        expected = min((limit for limit, times in rows if applies(times, moment)), default=base)
        assert (known or [base]) == [expected], moment


def test_later_than_planned_the_strictest_of_all_hours_counts() -> None:
    until = utc(30, 0)
    low, high = (2, NIGHT), (9, Times(weekdays=(5, 6)))
    for base, rows, limit in (
        (4, [low], 2),
        (4, [high], None),
        (4, [low, high], 2),
        (4, [(9, Times())], 9),
        (None, [high], 9),
        (4, [(2, Times(last_day=date(2026, 3, 20)))], None),
    ):
        last = [step for step in limit_steps(base, rows, utc(28, 0), until) if step.ends == FOREVER]
        assert [step.limit for step in last] == ([] if limit is None else [limit]), rows
