"""Ends of dates that repeat: the local time of each date, over changes of clocks."""

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import strategies as st

from allocation.rules.ask import AskDocument, Catalogue, ClassEntry, parse_ask
from allocation.rules.ask.line.text import document_text, window_text
from allocation.rules.recurrence import dates_of, recurrence_read
from tests.rings import holds_for

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Casablanca")
BERLIN = ZoneInfo("Europe/Berlin")
HOUR = 3600
CLASSES = Catalogue((ClassEntry("l40s", "L40S", (), 48_000, ()),))


def lengths(zone: str, first: str, last: str, rule: str) -> list[float]:
    """Hours of each date from a local time to a local time."""
    where = ZoneInfo(zone)
    begins, ends = (
        datetime.fromisoformat(each).replace(tzinfo=where).astimezone(UTC) for each in (first, last)
    )
    dates = dates_of(recurrence_read(rule), begins, where)
    both = zip(dates.starts, dates.at_local(ends), strict=True)
    return [(end - start).total_seconds() / HOUR for start, end in both]


@pytest.mark.parametrize(
    ("zone", "first", "last", "hours"),
    [
        ("Europe/Berlin", "2027-03-26 22:00", "2027-03-27 06:00", [8, 7, 8]),
        ("Europe/Berlin", "2027-03-27 22:00", "2027-03-28 06:00", [7, 8, 8]),
        ("Europe/Berlin", "2026-10-24 22:00", "2026-10-25 06:00", [9, 8, 8]),
        ("America/New_York", "2026-10-31 20:00", "2026-11-01 08:00", [13, 12, 12]),
        ("America/New_York", "2027-03-12 20:00", "2027-03-13 08:00", [12, 11, 12]),
        ("Australia/Lord_Howe", "2026-10-03 22:00", "2026-10-04 06:00", [7.5, 8, 8]),
        ("Australia/Lord_Howe", "2027-04-03 22:00", "2027-04-04 06:00", [8.5, 8, 8]),
        ("Africa/Casablanca", "2027-02-06 22:00", "2027-02-07 06:00", [9, 8, 8]),
        ("Asia/Kathmandu", "2027-03-27 22:00", "2027-03-28 06:00", [8, 8, 8]),
    ],
)
def test_nights_end_at_the_same_local_time(zone: str, first: str, last: str, hours: list[float]) -> None:
    assert lengths(zone, first, last, "FREQ=DAILY;COUNT=3") == hours


def test_whole_days_meet_over_a_change_of_clocks() -> None:
    assert lengths("Europe/Berlin", "2027-03-27 00:00", "2027-03-28 00:00", "FREQ=DAILY;COUNT=3") == [
        24,
        23,
        24,
    ]


@pytest.mark.parametrize("zone", ZONES)
def test_an_explicit_first_start_stays_where_it_is(zone: str) -> None:
    """Each quarter of an hour around the changes of clocks of two years; some exist twice."""
    where, rule = ZoneInfo(zone), recurrence_read("FREQ=DAILY;COUNT=2")
    hours = [datetime(2026, 9, 1, tzinfo=UTC) + timedelta(hours=each) for each in range(17_520)]
    offsets = [hour.astimezone(where).utcoffset() for hour in hours]
    changes = [hours[at] for at in range(1, len(hours)) if offsets[at] != offsets[at - 1]]
    assert len(changes) == (0 if zone == "Asia/Kathmandu" else 4)
    for first in (each + timedelta(minutes=15 * step) for each in changes for step in range(-8, 9)):
        dates = dates_of(rule, first, where)
        assert dates.starts[0] == first
        assert dates.at_local(first + timedelta(hours=1))[0] == first + timedelta(hours=1)


def test_the_second_half_past_two_stays_the_second() -> None:
    first = datetime(2026, 10, 25, 1, 30, tzinfo=UTC)
    dates = dates_of(recurrence_read("FREQ=DAILY;COUNT=2"), first, BERLIN)
    assert [f"{each:%d %H:%M}" for each in dates.starts] == ["25 01:30", "26 01:30"]
    again = dates_of(recurrence_read("FREQ=DAILY;COUNT=2"), first - timedelta(hours=1), BERLIN)
    assert [f"{each:%d %H:%M}" for each in again.starts] == ["25 00:30", "26 01:30"]


def test_the_line_of_a_request_names_the_second_of_two_equal_times() -> None:
    first = datetime(2026, 10, 25, 1, 30, tzinfo=UTC)
    now = datetime(2026, 10, 20, tzinfo=UTC)
    for starts in (first - timedelta(hours=1), first):
        asked = parse_ask(
            f"1 l40s 2h at {starts:%Y-%m-%dT%H:%M}Z", catalogue=CLASSES, now=now, zone=BERLIN
        ).document()
        for line in (
            document_text(asked, BERLIN),
            document_text(asked, BERLIN, says_end=True),
            window_text("1 l40s", (starts, starts + timedelta(hours=2)), BERLIN),
        ):
            read = parse_ask(line, catalogue=CLASSES, now=now, zone=BERLIN)
            assert read.document() == asked, line


LOCAL = st.tuples(
    st.sampled_from(ZONES),
    st.dates(date(2026, 1, 1), date(2030, 1, 1)),
    st.times(),
    st.integers(15, 20 * 60),
    st.sampled_from(["FREQ=DAILY;COUNT=9", "FREQ=WEEKLY;COUNT=30", "FREQ=MONTHLY;COUNT=12"]),
)


@holds_for(LOCAL, few=150, many=4_000)
def test_each_date_ends_at_the_local_time_of_the_first(
    drawn: tuple[str, date, time, int, str],
) -> None:
    zone, day, clock, minutes, rule = drawn
    where = ZoneInfo(zone)
    wall = datetime.combine(day, clock.replace(second=0, microsecond=0))
    first, last = (
        each.replace(tzinfo=where).astimezone(UTC) for each in (wall, wall + timedelta(minutes=minutes))
    )
    dates = dates_of(recurrence_read(rule), first, where)
    if last <= first or dates.starts[0] != first:
        return
    ends = dates.at_local(last)
    assert ends[0] == last
    ends_at = last.astimezone(where).time()
    for starts, end in zip(dates.starts, ends, strict=True):
        assert starts < end
        change = abs((end - starts) - (last - first))
        assert change <= timedelta(hours=2), "the clocks change by an hour, at the first and here"
        local = end.astimezone(where)
        shown = datetime.combine(local.date(), ends_at, tzinfo=where)
        exists = shown.astimezone(UTC).astimezone(where).time() == ends_at
        begun = starts.astimezone(where).time() == first.astimezone(where).time()
        assert local.time() == ends_at or not exists or not begun


@pytest.mark.parametrize(
    ("line", "starts", "hours"),
    [
        ("1 l40s 2027-03-27 22-6", "2027-03-20 22:00", 8),
        ("1 l40s 2027-03-20 22-6", "2027-03-27 22:00", 7),
        ("1 l40s 2027-10-29 22-6", "2027-10-30 22:00", 9),
        ("1 l40s 2027-10-29 22-6", "2027-10-30 21:00", 8),
        ("1 l40s at 2027-10-29 22:00 for 8h", "2027-10-30 22:00", 8),
        ("1 l40s 2027-03-27 01:30-02:30", "2027-03-28 01:30", 1),
    ],
)
def test_another_start_at_the_same_local_time_keeps_a_named_end(line: str, starts: str, hours: float) -> None:
    now = datetime(2027, 2, 20, 12, tzinfo=UTC)
    ask = parse_ask(line, catalogue=CLASSES, now=now, zone=BERLIN).document()
    moved = ask.starting(datetime.fromisoformat(starts).replace(tzinfo=BERLIN).astimezone(UTC))
    assert moved.duration == hours * HOUR
    assert AskDocument.from_json(moved.to_json()) == moved


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("1 l40s 9-11 on 2027-03-28 02:30", ["1 l40s 9-11 on 2027-03-28"]),
        (
            "1 l40s 9-11 am 28.3.2027 um 10:00",
            ["1 l40s 9-11 am 28.3.2027", "1 l40s am 28.3.2027 um 10:00 1h"],
        ),
        ("1 l40s 22-6 tomorrow 23:00", ["1 l40s 22-6 tomorrow", "1 l40s tomorrow 23:00 1h"]),
    ],
)
def test_hours_next_to_a_time_keep_its_day(line: str, offered: list[str]) -> None:
    parsed = parse_ask(line, catalogue=CLASSES, now=datetime(2027, 3, 10, 9, tzinfo=UTC), zone=BERLIN)
    assert [each.code for each in parsed.problems] == ["said_twice"]
    assert [each.text for each in parsed.problems[0].repairs] == offered
