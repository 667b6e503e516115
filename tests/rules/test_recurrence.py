"""Dates that repeat: wall clock time over changes of clocks, and the days that do not exist."""

from calendar import monthrange
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import strategies as st

from allocation.errors import AskError
from allocation.rules.ask import MAX_TEXT_LENGTH, Catalogue, parse_ask
from allocation.rules.ask.when.recurrence_words import recurrence_line, recurrence_words
from allocation.rules.recurrence import (
    DAYS,
    MAX_DATES,
    MAX_RULE_LENGTH,
    Dates,
    Recurrence,
    dates_of,
    dates_overlap,
    recurrence_read,
)
from tests.rings import holds_for

BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")


def dates(rule: str, first: str, zone: ZoneInfo = BERLIN) -> Dates:
    """Dates from a wall clock time on."""
    local = datetime.fromisoformat(first).replace(tzinfo=zone)
    return dates_of(recurrence_read(rule), local.astimezone(UTC), zone)


def walls(found: Dates, zone: ZoneInfo = BERLIN) -> list[str]:
    return [f"{each.astimezone(zone):%Y-%m-%d %H:%M}" for each in found.starts]


# (zone, rule, first, UTC times): each over a change of clocks, or where others have one.
CLOCKS = {
    "Berlin goes to winter": (
        "Europe/Berlin",
        "FREQ=DAILY;COUNT=3",
        "2026-10-24 09:00",
        ["2026-10-24 07:00", "2026-10-25 08:00", "2026-10-26 08:00"],
    ),
    "Berlin has no 02:30 in spring: it is moved on": (
        "Europe/Berlin",
        "FREQ=DAILY;COUNT=3",
        "2027-03-27 02:30",
        ["2027-03-27 01:30", "2027-03-28 01:30", "2027-03-29 00:30"],
    ),
    "Berlin has 02:30 twice in autumn: the first is meant": (
        "Europe/Berlin",
        "FREQ=DAILY;COUNT=3",
        "2026-10-24 02:30",
        ["2026-10-24 00:30", "2026-10-25 00:30", "2026-10-26 01:30"],
    ),
    "New York goes to summer": (
        "America/New_York",
        "FREQ=WEEKLY;COUNT=2",
        "2027-03-08 09:00",
        ["2027-03-08 14:00", "2027-03-15 13:00"],
    ),
    "New York has no 02:30 in spring": (
        "America/New_York",
        "FREQ=WEEKLY;COUNT=2",
        "2027-03-07 02:30",
        ["2027-03-07 07:30", "2027-03-14 07:30"],
    ),
    "Lord Howe moves by half an hour": (
        "Australia/Lord_Howe",
        "FREQ=DAILY;COUNT=2",
        "2026-10-03 09:00",
        ["2026-10-02 22:30", "2026-10-03 22:00"],
    ),
    "Lord Howe has no 02:15 that night": (
        "Australia/Lord_Howe",
        "FREQ=DAILY;COUNT=3",
        "2026-10-03 02:15",
        ["2026-10-02 15:45", "2026-10-03 15:45", "2026-10-04 15:15"],
    ),
    "Kathmandu never moves": (
        "Asia/Kathmandu",
        "FREQ=MONTHLY;COUNT=3",
        "2026-09-15 00:00",
        ["2026-09-14 18:15", "2026-10-14 18:15", "2026-11-14 18:15"],
    ),
    "Kiritimati is a day ahead": (
        "Pacific/Kiritimati",
        "FREQ=WEEKLY;BYDAY=MO;COUNT=2",
        "2026-11-23 01:00",
        ["2026-11-22 11:00", "2026-11-29 11:00"],
    ),
}


@pytest.mark.parametrize("case", CLOCKS)
def test_wall_clock_time_is_kept_over_changes_of_clocks(case: str) -> None:
    zone, rule, first, expected = CLOCKS[case]
    found = dates(rule, first, ZoneInfo(zone))
    assert [f"{each:%Y-%m-%d %H:%M}" for each in found.starts] == expected


def test_weekdays_begin_with_the_first_that_comes() -> None:
    found = dates("FREQ=WEEKLY;BYDAY=MO,WE;COUNT=3", "2026-11-24 09:00")
    assert walls(found) == ["2026-11-25 09:00", "2026-11-30 09:00", "2026-12-02 09:00"]


def test_every_second_week_counts_weeks_from_monday() -> None:
    found = dates("FREQ=WEEKLY;INTERVAL=2;BYDAY=SU,MO;COUNT=3", "2026-11-25 09:00")
    assert walls(found) == ["2026-11-29 09:00", "2026-12-07 09:00", "2026-12-13 09:00"]


def test_until_is_a_day_of_the_asker_and_included() -> None:
    found = dates("FREQ=DAILY;UNTIL=20261126", "2026-11-24 23:30")
    assert walls(found)[-1] == "2026-11-26 23:30"
    assert len(found.starts) == 3


def test_a_31st_that_a_month_does_not_have_is_left_out_and_said() -> None:
    found = dates("FREQ=MONTHLY;UNTIL=20270531", "2026-12-31 09:00")
    assert walls(found) == ["2026-12-31 09:00", "2027-01-31 09:00", "2027-03-31 09:00", "2027-05-31 09:00"]
    assert found.skipped == ("2027-02-31", "2027-04-31")


def test_the_29th_of_february_is_there_in_a_leap_year_only() -> None:
    found = dates("FREQ=MONTHLY;INTERVAL=12;COUNT=2", "2028-02-29 09:00")
    assert walls(found) == ["2028-02-29 09:00", "2032-02-29 09:00"]
    assert found.skipped == ("2029-02-29", "2030-02-29", "2031-02-29")


# (rule, first, days of the calendar): read off a printed calendar.
MONTHS = {
    "second Tuesdays": (
        "FREQ=MONTHLY;BYDAY=2TU;COUNT=3",
        "2026-11-22 09:00",
        ["2026-12-08", "2027-01-12", "2027-02-09"],
    ),
    "last Fridays, and the first is the day itself": (
        "FREQ=MONTHLY;BYDAY=-1FR;COUNT=3",
        "2026-11-27 09:00",
        ["2026-11-27", "2026-12-25", "2027-01-29"],
    ),
    "every Monday of every second month": (
        "FREQ=MONTHLY;INTERVAL=2;BYDAY=MO;COUNT=6",
        "2026-11-22 09:00",
        ["2026-11-23", "2026-11-30", "2027-01-04", "2027-01-11", "2027-01-18", "2027-01-25"],
    ),
    "the first, the fifteenth and the last day": (
        "FREQ=MONTHLY;BYMONTHDAY=1,15,-1;COUNT=4",
        "2026-11-22 09:00",
        ["2026-11-30", "2026-12-01", "2026-12-15", "2026-12-31"],
    ),
    "the last weekday": (
        "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;COUNT=3",
        "2027-01-01 09:00",
        ["2027-01-29", "2027-02-26", "2027-03-31"],
    ),
    "a Friday the 13th": (
        "FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13;COUNT=2",
        "2026-11-22 09:00",
        ["2027-08-13", "2028-10-13"],
    ),
}


@pytest.mark.parametrize("case", MONTHS)
def test_days_of_a_month_are_those_of_the_calendar(case: str) -> None:
    rule, first, days = MONTHS[case]
    found = dates(rule, first)
    assert walls(found) == [f"{day} 09:00" for day in days]
    assert found.skipped == ()


def test_a_second_sunday_keeps_the_clock_over_a_change_of_clocks() -> None:
    found = dates("FREQ=MONTHLY;BYDAY=-1SU;COUNT=3", "2026-09-01 02:30")
    assert [f"{each:%m-%d %H:%M}" for each in found.starts] == ["09-27 00:30", "10-25 00:30", "11-29 01:30"]
    spring = dates("FREQ=MONTHLY;BYDAY=-1SU;COUNT=2", "2027-03-01 02:30")
    assert walls(spring) == ["2027-03-28 03:30", "2027-04-25 02:30"], "moved on by what is skipped"


def test_a_fifth_friday_or_a_30th_that_a_month_does_not_have_is_left_out_and_said() -> None:
    found = dates("FREQ=MONTHLY;BYDAY=5FR;COUNT=2", "2026-11-01 09:00")
    assert walls(found) == ["2027-01-29 09:00", "2027-04-30 09:00"]
    assert found.skipped == ("2026-11 5FR", "2026-12 5FR", "2027-02 5FR", "2027-03 5FR")
    found = dates("FREQ=MONTHLY;BYMONTHDAY=15,30;UNTIL=20270331", "2027-01-20 09:00")
    assert walls(found)[1:3] == ["2027-02-15 09:00", "2027-03-15 09:00"]
    assert found.skipped == ("2027-02-30",)


def test_a_rule_that_never_matches_comes_to_an_end() -> None:
    with pytest.raises(AskError, match="no_dates"):
        dates("FREQ=MONTHLY;INTERVAL=12;BYMONTHDAY=31;COUNT=2", "2026-11-22 09:00")


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("FREQ=SECONDLY;COUNT=5", "not_a_rule"),
        ("FREQ=YEARLY;COUNT=5", "not_a_rule"),
        ("FREQ=DAILY;COUNT=1000000000", "series_too_long"),
        ("FREQ=DAILY;COUNT=0", "not_a_rule"),
        ("FREQ=DAILY;COUNT=-1", "not_a_rule"),
        ("FREQ=DAILY", "no_end"),
        ("FREQ=DAILY;COUNT=3;UNTIL=20270101", "end_twice"),
        ("FREQ=DAILY;UNTIL=20270231", "not_a_rule"),
        ("FREQ=DAILY;UNTIL=20270101T000000+0100", "not_a_rule"),
        ("FREQ=DAILY;UNTIL=20270101T0000Z", "not_a_rule"),
        ("FREQ=DAILY;UNTIL=20270101T246000Z", "not_a_rule"),
        ("FREQ=DAILY;UNTIL=2027-01-01", "not_a_rule"),
        ("FREQ=WEEKLY;WKST=XX;COUNT=3", "not_a_rule"),
        ("FREQ=WEEKLY;WKST=2MO;COUNT=3", "not_a_rule"),
        ("FREQ=MONTHLY;BYDAY=6MO;COUNT=3", "not_a_rule"),
        ("FREQ=MONTHLY;BYDAY=0MO;COUNT=3", "not_a_rule"),
        ("FREQ=MONTHLY;BYMONTHDAY=32;COUNT=3", "not_a_rule"),
        ("FREQ=MONTHLY;BYMONTHDAY=0;COUNT=3", "not_a_rule"),
        ("FREQ=MONTHLY;BYSETPOS=1;COUNT=3", "not_a_rule"),
        ("FREQ=WEEKLY;BYMONTHDAY=3;COUNT=3", "not_a_rule"),
        ("FREQ=WEEKLY;BYDAY=MO,TU;BYSETPOS=-1;COUNT=3", "not_a_rule"),
        ("FREQ=WEEKLY;BYDAY=2MO;COUNT=3", "not_a_rule"),
        ("FREQ=DAILY;FREQ=DAILY;COUNT=3", "not_a_rule"),
        ("FREQ=DAILY;BYHOUR=3;COUNT=3", "not_a_rule"),
        ("FREQ=DAILY;INTERVAL=٣;COUNT=3", "not_a_rule"),
        ("", "not_a_rule"),
        ("FREQ=DAILY;COUNT=3;" + "X" * 200, "not_a_rule"),
    ],
)
def test_what_is_not_understood_is_refused_and_never_guessed(rule: str, code: str) -> None:
    with pytest.raises(AskError) as error:
        recurrence_read(rule)
    assert error.value.code == code


def test_a_series_has_at_most_366_dates_and_at_least_one() -> None:
    assert len(dates(f"FREQ=DAILY;COUNT={MAX_DATES}", "2026-11-24 09:00").starts) == MAX_DATES
    with pytest.raises(AskError, match="series_too_long"):
        dates("FREQ=DAILY;UNTIL=20280101", "2026-11-24 09:00")
    with pytest.raises(AskError, match="no_dates"):
        dates("FREQ=DAILY;UNTIL=20261101", "2026-11-24 09:00")


def test_dates_that_overlap_are_seen_to_the_second() -> None:
    found = dates("FREQ=DAILY;COUNT=3", "2026-11-24 09:00")
    assert not dates_overlap(found.starts, found.after(86_400))
    assert dates_overlap(found.starts, found.after(86_401))
    spring = dates("FREQ=DAILY;COUNT=3", "2027-03-27 09:00")
    assert dates_overlap(spring.starts, spring.after(86_400)), "the day between has 23 hours"


# (zone, rule, first, last start): as Google, Outlook and Apple write the end of a recurrence.
ENDS = {
    "the last second of a local day": (
        "Europe/Berlin",
        "FREQ=WEEKLY;WKST=MO;UNTIL=20270131T225959Z;BYDAY=MO,WE",
        "2027-01-20 09:00",
        "2027-01-27 09:00",
    ),
    "the last start itself": (
        "Europe/Berlin",
        "FREQ=DAILY;UNTIL=20270131T080000Z;INTERVAL=1",
        "2027-01-20 09:00",
        "2027-01-31 09:00",
    ),
    "a second before a start": (
        "Europe/Berlin",
        "FREQ=DAILY;UNTIL=20270131T075959Z",
        "2027-01-20 09:00",
        "2027-01-30 09:00",
    ),
    "midnight in UTC is the day before in New York": (
        "America/New_York",
        "FREQ=DAILY;UNTIL=20270131T000000Z",
        "2027-01-20 18:00",
        "2027-01-30 18:00",
    ),
    "and too early for a later start there": (
        "America/New_York",
        "FREQ=DAILY;UNTIL=20270131T000000Z",
        "2027-01-20 20:00",
        "2027-01-29 20:00",
    ),
    "a local time": (
        "Asia/Kathmandu",
        "FREQ=DAILY;UNTIL=20270131T090000",
        "2027-01-20 09:00",
        "2027-01-31 09:00",
    ),
    "a last start after a change of clocks": (
        "Europe/Berlin",
        "FREQ=DAILY;UNTIL=20270329T203000Z",
        "2027-03-20 22:30",
        "2027-03-29 22:30",
    ),
    "the last second of the calendar": (
        "Pacific/Kiritimati",
        "FREQ=MONTHLY;INTERVAL=12;BYMONTHDAY=1;UNTIL=99991231T235959Z",
        "2027-03-01 22:30",
        "2199-03-01 22:30",
    ),
}


@pytest.mark.parametrize("case", ENDS)
def test_the_end_is_read_as_calendar_programs_write_it(case: str) -> None:
    zone, rule, first, last = ENDS[case]
    found = dates(rule, first, ZoneInfo(zone))
    assert walls(found, ZoneInfo(zone))[-1] == last
    assert recurrence_read(recurrence_read(rule).text) == recurrence_read(rule)
    again = dates(found.rule.text, first, ZoneInfo(zone))
    assert again.starts == found.starts, "the stored rule has the same dates"
    assert recurrence_words(recurrence_read(rule)).startswith("every ")


def test_the_week_begins_where_the_calendar_program_says() -> None:
    """The example of RFC 5545."""
    rule = "FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU"
    monday, sunday = (dates(f"{rule};WKST={day}", "1997-08-05 09:00") for day in ("MO", "SU"))
    assert [each[5:10] for each in walls(monday)] == ["08-05", "08-10", "08-19", "08-24"]
    assert [each[5:10] for each in walls(sunday)] == ["08-05", "08-17", "08-19", "08-31"]
    assert recurrence_read("WKST=SU;FREQ=DAILY;COUNT=2").text == "FREQ=DAILY;COUNT=2"
    line = recurrence_line(recurrence_read(f"{rule};WKST=SU"))
    found = parse_ask(
        f"9-17 {line}", catalogue=Catalogue((), ()), zone=BERLIN, now=datetime(2026, 11, 22, tzinfo=UTC)
    )
    assert found.repeat == recurrence_read(f"{rule};WKST=SU")


def test_a_rule_in_a_line_ends_as_a_calendar_program_says() -> None:
    found = parse_ask(
        "22:00-23:00 rrule:FREQ=DAILY;UNTIL=20270131T203000Z",
        catalogue=Catalogue((), ()),
        zone=BERLIN,
        now=datetime(2026, 11, 22, tzinfo=UTC),
    )
    assert found.repeat == recurrence_read("FREQ=DAILY;UNTIL=20270130"), "22:00 is after 21:30"


SKIPPED = {
    "after the last date": ("FREQ=MONTHLY;UNTIL=20270510", "2027-01-31 09:00", ["2027-02-31", "2027-04-31"]),
    "in the last month, if that ends": ("FREQ=MONTHLY;UNTIL=20270430", "2027-03-31 09:00", ["2027-04-31"]),
    "not after the end": ("FREQ=MONTHLY;UNTIL=20270429", "2027-03-31 09:00", []),
    "numbered weekdays after the last date": (
        "FREQ=MONTHLY;BYDAY=5FR;UNTIL=20270331",
        "2027-01-01 09:00",
        ["2027-02 5FR", "2027-03 5FR"],
    ),
    "a position that selects nothing": (
        "FREQ=MONTHLY;BYDAY=FR;BYSETPOS=5;UNTIL=20270331",
        "2027-01-01 09:00",
        ["2027-02 BYSETPOS=5", "2027-03 BYSETPOS=5"],
    ),
    "days counted from the end": (
        "FREQ=MONTHLY;BYMONTHDAY=-30,-1;UNTIL=20270331",
        "2027-01-01 09:00",
        ["2027-02 BYMONTHDAY=-30"],
    ),
    "every second month": (
        "FREQ=MONTHLY;INTERVAL=2;UNTIL=20270630",
        "2026-12-31 09:00",
        ["2027-02-31", "2027-04-31", "2027-06-31"],
    ),
}


@pytest.mark.parametrize("case", SKIPPED)
def test_every_day_that_does_not_exist_is_named(case: str) -> None:
    rule, first, skipped = SKIPPED[case]
    assert list(dates(rule, first).skipped) == skipped


@holds_for(
    st.sets(st.integers(1, 31), min_size=1),
    st.integers(1, 4),
    st.dates(date(2026, 1, 1), date(2028, 12, 31)),
    st.integers(30, 900),
    few=80,
    many=2_000,
)
def test_each_day_of_a_month_is_a_date_or_named(
    days: set[int], interval: int, first: date, length: int
) -> None:
    """Compared with a plain walk over the months."""
    last = first + timedelta(days=length)
    rule = Recurrence("MONTHLY", interval, until=last, month_days=tuple(sorted(days)))
    months = [
        divmod(first.year * 12 + first.month - 1 + step, 12) for step in range(0, 40 * interval, interval)
    ]
    wanted = [(year, month + 1, day) for year, month in months for day in sorted(days)]
    inside = [each for each in wanted if (first.year, first.month, first.day) <= each]
    real, missing = [], []
    for year, month, day in inside:
        whole = monthrange(year, month)[1]
        if day <= whole:
            real += [f"{year}-{month:02}-{day:02}"] * (date(year, month, day) <= last)
        elif date(year, month, whole) <= last:
            missing.append(f"{year}-{month:02}-{day:02}")
    if not real or len(real) > MAX_DATES or len(rule.text) > MAX_RULE_LENGTH:
        return
    found = dates(rule.text, f"{first} 09:00")
    assert [each[:10] for each in walls(found)] == real
    assert list(found.skipped) == missing


_WHICH = st.sampled_from([1, 2, 3, 4, 5, -1, -2])
OF_MONTHS = st.one_of(
    st.fixed_dictionaries({"nth": st.sets(st.tuples(_WHICH, st.integers(0, 6)), min_size=1)}),
    st.fixed_dictionaries({"month_days": st.sets(st.integers(1, 31) | st.just(-1), min_size=1)}),
    st.fixed_dictionaries(
        {"days": st.sets(st.integers(0, 6), min_size=1), "positions": st.sets(_WHICH, min_size=1)}
    ),
)


def test_the_longest_rule_can_be_said_with_its_prefix_too() -> None:
    each = [f"{which}{day}" for which in (1, 2, 3, 4, 5) for day in DAYS[:5]]
    rule = f"FREQ=MONTHLY;BYDAY={','.join(each[:23])};COUNT=300"
    assert len(rule) == MAX_RULE_LENGTH
    assert recurrence_read(f"RRULE:{rule}") == recurrence_read(rule)


@holds_for(OF_MONTHS, st.integers(1, 12), st.dates(date(2026, 1, 1), date(2030, 1, 1)), few=80, many=1_000)
def test_a_rule_of_months_survives_being_written_in_words_and_as_a_rule(
    parts: dict[str, set[object]], interval: int, until: date
) -> None:
    lists: dict[str, Any] = {name: tuple(each) for name, each in parts.items()}
    written = Recurrence("MONTHLY", interval, until=until, **lists).text
    if len(written) > MAX_RULE_LENGTH:
        return
    rule = recurrence_read(written)
    assert recurrence_read(rule.text) == rule
    assert set(rule.nth) == parts.get("nth", set())
    line = recurrence_line(rule)
    found = parse_ask(
        f"9-17 {line}"[:MAX_TEXT_LENGTH],
        catalogue=Catalogue((), ()),
        now=datetime(2026, 11, 22, tzinfo=UTC),
        zone=BERLIN,
    )
    assert found.repeat == rule or len(line) > MAX_TEXT_LENGTH - 5, line


RULES = st.builds(
    Recurrence,
    freq=st.sampled_from(["DAILY", "WEEKLY"]),
    interval=st.integers(1, 5),
    days=st.sets(st.integers(0, 6)).map(lambda days: tuple(sorted(days))),
    times=st.integers(1, 40),
)


@holds_for(
    RULES,
    st.dates(date(2026, 1, 1), date(2030, 1, 1)),
    st.times(),
    st.sampled_from([BERLIN, NEW_YORK, ZoneInfo("Australia/Lord_Howe"), ZoneInfo("Asia/Kathmandu")]),
    few=80,
    many=1_000,
)
def test_dates_rise_keep_the_clock_and_survive_being_written(
    rule: Recurrence, day: date, clock: time, zone: ZoneInfo
) -> None:
    assert recurrence_read(rule.text) == rule
    first = datetime.combine(day, clock.replace(microsecond=0), tzinfo=zone).astimezone(UTC)
    found = dates_of(rule, first, zone)
    assert list(found.starts) == sorted(set(found.starts))
    assert len(found.starts) == rule.times
    wall = first.astimezone(zone).time()
    for each in found.starts:
        local = each.astimezone(zone)
        assert not rule.days or local.weekday() in rule.days
        gap = datetime.combine(local.date(), wall, tzinfo=zone)
        exists = gap.astimezone(UTC).astimezone(zone).time() == wall
        assert local.time() == wall or not exists
    assert found.starts[0] >= first - timedelta(hours=1)


def test_words_say_the_rule_for_people() -> None:
    rule = recurrence_read("FREQ=WEEKLY;BYDAY=MO,WE;UNTIL=20270131")
    assert recurrence_words(rule) == "every Mon, Wed until 31 Jan 2027"
    assert recurrence_line(rule) == "every mon wed until 2027-01-31"
    rule = recurrence_read("FREQ=WEEKLY;INTERVAL=2;COUNT=10")
    assert recurrence_words(rule) == "every 2 weeks, 10 times"


@pytest.mark.parametrize(
    ("rule", "words", "line"),
    [
        ("BYDAY=2TU,-1FR", "the 2nd Tue, last Fri", "every month on the 2nd tue last fri"),
        ("BYMONTHDAY=1,22,-1", "the 1st, 22nd, last day", "every month on the 1st 22nd last day"),
        ("BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1", "the last weekday", "every month on the last weekday"),
        ("BYDAY=MO,WE;BYSETPOS=2", "the 2nd of every Mon, every Wed", "rrule:"),
        ("BYDAY=FR;BYMONTHDAY=13", "every Fri if it is the 13th", "rrule:"),
        ("BYDAY=MO", "every Mon", "rrule:"),
    ],
)
def test_words_say_days_of_a_month(rule: str, words: str, line: str) -> None:
    found = recurrence_read(f"FREQ=MONTHLY;{rule};COUNT=3")
    assert recurrence_words(found) == f"every month on {words}, 3 times"
    assert recurrence_line(found).startswith(line)
