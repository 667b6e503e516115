"""The days of a series in words: first and last day, lengths, months, and numbers of dates."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import strategies as st

from allocation.rules.ask import Catalogue, ClassEntry, Parsed, parse_ask
from allocation.rules.recurrence import dates_of
from tests.rings import holds_for

BERLIN = ZoneInfo("Europe/Berlin")
CLASSES = Catalogue((ClassEntry("l40s", "L40S", (), 48_000, ()),))
NOW = datetime(2026, 11, 28, 14, tzinfo=UTC)  # a Saturday, 15:00 in Berlin

DAILY = "02-01 09:00 1h FREQ=DAILY;UNTIL=20270206"
NIGHTS = "02-01 22:00 8h FREQ=DAILY;UNTIL=20270206"
NEXT = "11-29 09:00 1h FREQ=DAILY;UNTIL="
# The line without its GPUs: first start, length and rule.
LINES = {
    "every day 9-10 from 2027-02-01 until 2027-02-06": DAILY,
    "every day from 9 to 10 from 2027-02-01 until 2027-02-06": DAILY,
    "from 2027-02-01 until 2027-02-06 every day 9-10": DAILY,
    "every day between 1 feb and 6 feb 9-10": DAILY,
    "9-10 every day 1 feb - 6 feb": DAILY,
    "9-10 daily 1 feb through 6 feb": DAILY,
    "every day 9-10 starting 1 feb ending 6 feb": DAILY,
    "every day 9-10 until 2027-02-06 from 2027-02-01": DAILY,
    "every day 9:00-10:00 from Feb 1 until Feb 6": DAILY,
    "every day 9:00-10:00 from february 1st until february 6th 2027": DAILY,
    "every day 9am-10am from 1.2.2027 until 6.2.2027": DAILY,
    "every day at 9 for 1h from 1 feb until 6 feb": DAILY,
    "every tue and thu at 14:00 for 2h in december": "12-01 14:00 2h FREQ=WEEKLY;BYDAY=TU,TH;UNTIL=20261231",
    "daily next week at 9 for 2h": "11-30 09:00 2h FREQ=DAILY;UNTIL=20261206",
    "2h every day next week at 9": "11-30 09:00 2h FREQ=DAILY;UNTIL=20261206",
    "at 9 daily for 2h next week": "11-30 09:00 2h FREQ=DAILY;UNTIL=20261206",
    "weekdays at 10:00 for 3h in january": "01-01 10:00 3h FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR;UNTIL=20270131",
    "1h every day at 9 from 2027-02-01 until 2027-02-06": DAILY,
    "every day from 1 feb 9:00 until 6 feb 10:00": DAILY,
    "every day from 2027-02-01T09:00 until 2027-02-06 for 1h": DAILY,
    "every day 9-10 from 2027-02-01 until 2027-02-06T23:59": DAILY,
    "every day 9-10 from 2027-02-01 to and including 2027-02-06": DAILY,
    "every day 9-10 after 31 jan until 6 feb": DAILY,
    "every day 9-10 as of 1 feb before 7 feb": DAILY,
    "rrule:FREQ=DAILY 9-10 from 2027-02-01 until 2027-02-06": DAILY,
    "rrule:FREQ=DAILY;UNTIL=20270206T235959Z 9-10 from 2027-02-01": DAILY,
    "every day 22-6 from 2027-02-01 until 2027-02-06": NIGHTS,
    "every night 22-6 from 2027-02-01 until 2027-02-06": NIGHTS,
    "22:00 to 6:00 nightly from 1 feb until 6 feb": NIGHTS,
    "overnight every day from 1 feb until 6 feb": "02-01 20:00 12h FREQ=DAILY;UNTIL=20270206",
    "all day every day from 1 feb until 6 feb": "02-01 00:00 24h FREQ=DAILY;UNTIL=20270206",
    "jeden zweiten Dienstag 9-10 Uhr ab 1. Februar 3 mal": (
        "02-01 09:00 1h FREQ=WEEKLY;INTERVAL=2;BYDAY=TU;COUNT=3"
    ),
    "jeden 3. Tag 9-10 Uhr ab 1. Februar 3 mal": "02-01 09:00 1h FREQ=DAILY;INTERVAL=3;COUNT=3",
    "every day 9-10 from 1 feb for 5 days": "02-01 09:00 1h FREQ=DAILY;UNTIL=20270205",
    "every day 9-10 from 1 feb 5 times": "02-01 09:00 1h FREQ=DAILY;COUNT=5",
    "every day 9-10 for 5 times starting 1 feb": "02-01 09:00 1h FREQ=DAILY;COUNT=5",
    "every day at 9 1h five times from 2027-02-01": "02-01 09:00 1h FREQ=DAILY;COUNT=5",
    "every day 9-10 from 1 feb 5x": "02-01 09:00 1h FREQ=DAILY;COUNT=5",
    "every day 9-10 from 1 feb x5": "02-01 09:00 1h FREQ=DAILY;COUNT=5",
    "every day 9-10 from 1 feb 5 x": "02-01 09:00 1h FREQ=DAILY;COUNT=5",
    "every day 9-10 from 1 feb 5×": "02-01 09:00 1h FREQ=DAILY;COUNT=5",
    "every day 9-10 from 1 feb 5mal": "02-01 09:00 1h FREQ=DAILY;COUNT=5",
    "every day 9-10 from 1 feb fünfmal": "02-01 09:00 1h FREQ=DAILY;COUNT=5",
    "every day 9-10 from 1 feb 5times": "02-01 09:00 1h FREQ=DAILY;COUNT=5",
    "5x every day 9-10 from 1 feb": "02-01 09:00 1h FREQ=DAILY;COUNT=5",
    "jeden Tag 9-10 bis Ende Februar": f"{NEXT}20270228",
    "jeden Tag 9-10 bis Ende des Februars": f"{NEXT}20270228",
    "jeden Tag 9-10 bis Ende Februar 2028": f"{NEXT}20280229",
    "every day 9-10 until end february": f"{NEXT}20270228",
    "jeden Tag 9-10 bis Monatsende": f"{NEXT}20261130",
    "jeden Tag 9-10 bis Jahresende": f"{NEXT}20261231",
    "jeden Tag 9-10 bis Ende nächsten Monats": f"{NEXT}20261231",
    "jeden Tag 9-10 bis einschließlich 6. Dezember": f"{NEXT}20261206",
    "every day 9-10 for 5 days": f"{NEXT}20261203",
    "every day 9-10 for the next two weeks": f"{NEXT}20261212",
    "every day 9-10 over the next 5 days": f"{NEXT}20261203",
    "every day at 9 for 1h for a fortnight": f"{NEXT}20261212",
    "every day 9-10 for a month": f"{NEXT}20261228",
    "every day 9-10 from 31 jan for one month": "01-31 09:00 1h FREQ=DAILY;UNTIL=20270228",
    "every monday 9-10 for 6 weeks": "11-29 09:00 1h FREQ=WEEKLY;BYDAY=MO;UNTIL=20270110",
    "every weekday 9-10 from 7 dec for 3 weeks": (
        "12-07 09:00 1h FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR;UNTIL=20261227"
    ),
    "every mon-fri 9-10 until 18 dec": "11-29 09:00 1h FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR;UNTIL=20261218",
    "mon-fri 9-10 until 18 dec": "11-29 09:00 1h FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR;UNTIL=20261218",
    "Mon – Fri 9:00-10:00 for 3 weeks": "11-29 09:00 1h FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR;UNTIL=20261220",
    "thursday to monday 9am-10am 5 times": "11-29 09:00 1h FREQ=WEEKLY;BYDAY=MO,TH,FR,SA,SU;COUNT=5",
    "mon-fri 9-10 in february": "02-01 09:00 1h FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR;UNTIL=20270228",
    "nightly 8-10 until friday": "11-28 20:00 2h FREQ=DAILY;UNTIL=20261204",
    "8-10 every night in february": "02-01 20:00 2h FREQ=DAILY;UNTIL=20270228",
    "8-10 nightly in february": "02-01 20:00 2h FREQ=DAILY;UNTIL=20270228",
    "every thu to mon 9-10 until 18 dec": "11-29 09:00 1h FREQ=WEEKLY;BYDAY=MO,TH,FR,SA,SU;UNTIL=20261218",
    "weekly on monday 9-10 from 1 feb until 6 mar": "02-01 09:00 1h FREQ=WEEKLY;BYDAY=MO;UNTIL=20270306",
    "every first monday of the month 9-10 from 1 feb until 1 jun": (
        "02-01 09:00 1h FREQ=MONTHLY;BYDAY=1MO;UNTIL=20270601"
    ),
    "every day 9-10 in february": "02-01 09:00 1h FREQ=DAILY;UNTIL=20270228",
    "every day 9-10 in february 2028": "02-01 09:00 1h FREQ=DAILY;UNTIL=20280229",
    "every day 9-10 next week": "11-30 09:00 1h FREQ=DAILY;UNTIL=20261206",
    "every day 9-10 this week": f"{NEXT}20261129",
    "every day 9-10 this month": f"{NEXT}20261130",
    "every day 9-10 next month": "12-01 09:00 1h FREQ=DAILY;UNTIL=20261231",
    "every day 9-10 until the end of february": f"{NEXT}20270228",
    "every day 9-10 until end of month": f"{NEXT}20261130",
    "every day 9-10 until end of next month": f"{NEXT}20261231",
    "every day 9-10 until end of next week": f"{NEXT}20261206",
    "every day 9-10 until the end of the week": f"{NEXT}20261129",
    "every day 9-10 until the last day of december": f"{NEXT}20261231",
    "every day 9-10 until end of year": f"{NEXT}20261231",
    "every day 9-10 to 6 dec": f"{NEXT}20261206",
    "every day 9-10 up to 6 dec": f"{NEXT}20261206",
    "every day 9-10 up to and including 6 dec": f"{NEXT}20261206",
    "every day 9-10 by 6 dec": f"{NEXT}20261206",
    "every day 9-10 before 6 dec": f"{NEXT}20261205",
    "every day 9-10 from monday until friday": "11-30 09:00 1h FREQ=DAILY;UNTIL=20261204",
    "every day 9-10 from today until friday": f"{NEXT}20261204",
    "every day 9-10 from tomorrow for 5 days": f"{NEXT}20261203",
    "every day 9-10 from 1 to 6 feb": DAILY,
    "every day 9-10 1-6 feb 2027": DAILY,
    "every day 9-10 from feb 1 to 6": DAILY,
    "every day 9-10 between 1 and 6 feb": DAILY,
    "every day 9-10, 1st to 6th of february": DAILY,
    "every day 9-10 from the 1st until the 6th of february": DAILY,
    "every day 10-18 until 6 dec": "11-29 10:00 8h FREQ=DAILY;UNTIL=20261206",
    "every day from 9 to 17 until 6 dec": "11-29 09:00 8h FREQ=DAILY;UNTIL=20261206",
    "everyday 9-10 from 1 feb until 6 feb inclusive": DAILY,
    "repeating daily 9-10 from 1 feb until 6 feb": DAILY,
    "every evening 18-22 from monday until friday": "11-30 18:00 4h FREQ=DAILY;UNTIL=20261204",
    "every evening 6-8 until friday": "11-28 18:00 2h FREQ=DAILY;UNTIL=20261204",
    "18-22 every evening until friday": "11-28 18:00 4h FREQ=DAILY;UNTIL=20261204",
    "every morning 8-12 next week": "11-30 08:00 4h FREQ=DAILY;UNTIL=20261206",
    "every afternoon 1-5 from 1 feb until 5 feb": "02-01 13:00 4h FREQ=DAILY;UNTIL=20270205",
    "every night 8-10 until friday": "11-28 20:00 2h FREQ=DAILY;UNTIL=20261204",
    "every night at 22 for 8h until friday": "11-28 22:00 8h FREQ=DAILY;UNTIL=20261204",
    "every night 22-6 for 3 nights": "11-28 22:00 8h FREQ=DAILY;UNTIL=20261130",
    "weekends 10-18 in january": "01-01 10:00 8h FREQ=WEEKLY;BYDAY=SA,SU;UNTIL=20270131",
    "every other weekend 10-18 from 1 feb until 28 feb": (
        "02-01 10:00 8h FREQ=WEEKLY;INTERVAL=2;BYDAY=SA,SU;UNTIL=20270228"
    ),
    "monthly on the 1st and 15th 9-10 from 1 jan until 30 jun": (
        "01-01 09:00 1h FREQ=MONTHLY;BYMONTHDAY=1,15;UNTIL=20270630"
    ),
    "biweekly monday 9-10 from 1 feb 6 times": "02-01 09:00 1h FREQ=WEEKLY;INTERVAL=2;BYDAY=MO;COUNT=6",
    "bi-weekly on monday 9-10 from 1 feb 6 times": "02-01 09:00 1h FREQ=WEEKLY;INTERVAL=2;BYDAY=MO;COUNT=6",
    "fortnightly on monday 9-10 from 1 feb 6 times": "02-01 09:00 1h FREQ=WEEKLY;INTERVAL=2;BYDAY=MO;COUNT=6",
    "every mon/wed/fri 9-10 from 1 feb 6 times": "02-01 09:00 1h FREQ=WEEKLY;BYDAY=MO,WE,FR;COUNT=6",
}


def read(line: str, now: datetime = NOW) -> Parsed:
    return parse_ask(f"1 l40s {line}", catalogue=CLASSES, now=now, zone=BERLIN)


def meaning(parsed: Parsed) -> str:
    if parsed.problems or parsed.missing or not (parsed.starts and parsed.duration):
        return f"{[(each.code, each.start, each.end) for each in parsed.problems]}"
    starts = parsed.starts.astimezone(BERLIN)
    rule = parsed.repeat.text if parsed.repeat else ""
    return f"{starts:%m-%d %H:%M} {parsed.duration / 3600:g}h {rule}"


@pytest.mark.parametrize("line", LINES)
def test_the_days_of_a_series_are_read_as_people_write_them(line: str) -> None:
    assert meaning(read(line)) == LINES[line]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("every day 9-10 from 6 feb until 2027-02-01", "ends_first"),
        ("every day 9-10 for 5 days until 6 feb", "end_twice"),
        ("every day 9-10 5 times for 5 days", "end_twice"),
        ("every day 9-10 from 1 feb until 6 feb until 8 feb", "said_twice"),
        ("every day 9-10 from 1 feb until 6 feb from 3 feb", "said_twice"),
        ("every day 9-10 from 1 feb", "no_end"),
        ("every day 9-10 until end of month and a half", "not_understood"),
    ],
)
def test_days_that_contradict_are_asked_for(line: str, code: str) -> None:
    assert code in {each.code for each in read(line).problems}


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("every day 9-10 from 6 feb until 1 feb", "ends_first"),
        ("jeden Tag 9-10 vom 6.2. bis 1.2.", "ends_first"),
        ("monthly on the 1st 9-10 from 6 feb until 2027-02-01", "ends_first"),
        ("every day 9-10 0 times", "no_dates"),
        ("every day 9-10 from 6 feb for 0 days", "no_dates"),
        ("every day 9-10 from 6 feb for 0 weeks", "no_dates"),
    ],
)
def test_an_end_without_a_date_is_the_only_problem_and_numbers_of_dates_are_offered(
    line: str, code: str
) -> None:
    (problem,) = read(line).problems
    assert problem.code == code
    assert [len(_dates(read(each.text.removeprefix("1 l40s ")))) for each in problem.repairs] == [5, 10]


def _dates(parsed: Parsed) -> tuple[datetime, ...]:
    assert parsed.repeat is not None
    assert parsed.starts is not None
    return dates_of(parsed.repeat, parsed.starts, BERLIN).starts


@pytest.mark.parametrize(
    "often", ["0 days", "0 weeks on mon", "0 mon", "0 months on the 1st", "0th day", "100 days"]
)
@pytest.mark.parametrize("end", ["3 times", "for 3 weeks"])
def test_a_series_advances_by_1_to_99_days_weeks_or_months(often: str, end: str) -> None:
    """With 0 months the search for the next date never ends."""
    parsed = read(f"every {often} 9-10 {end}")
    assert parsed.repeat is None
    assert parsed.problems[0].code == "not_a_rule"


def test_a_month_as_the_end_is_asked_for_with_both_days_that_it_can_mean() -> None:
    (problem,) = read("every day 9-10 until february").problems
    assert problem.code == "no_end"
    assert [each.text for each in problem.repairs] == [
        "1 l40s every day 9-10 until 2027-01-31",
        "1 l40s every day 9-10 until 2027-02-28",
    ]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("every day 2:30-3:30 from 1 feb until 6 feb", "which_half"),
        ("every weekday 9 to 5 until 31 jan", "which_half"),
        ("every day 9-10 until the workshop", "not_understood"),
    ],
)
def test_only_what_is_not_understood_is_named(line: str, code: str) -> None:
    """Neither a start nor an end is said to be missing where one was written."""
    assert {each.code for each in read(line).problems} - {"no_repeat"} == {code}


def _written(day: date) -> st.SearchStrategy[str]:
    return st.sampled_from(
        [
            f"{day}",
            f"{day:%Y/%m/%d}",
            f"{day.day} {day:%b} {day.year}",
            f"{day:%B} {day.day} {day.year}",
            f"{day.day}.{day.month}.{day.year}",
            f"the {day.day} of {day:%B} {day.year}",
        ]
    )


@st.composite
def whole_lines(draw: st.DrawFn) -> tuple[str, date, date]:
    """A line with a first and a last day, in any order, and these days."""
    first = draw(st.dates(date(2026, 12, 1), date(2027, 10, 1)))
    last = first + timedelta(days=draw(st.integers(0, 200)))
    begin = draw(st.sampled_from(["from", "starting", "starting on", "as of", "beginning"]))
    end = draw(st.sampled_from(["until", "till", "to", "through", "ending", "up to"]))
    days = f"{begin} {draw(_written(first))} {end} {draw(_written(last))}"
    often = draw(st.sampled_from(["every day", "daily", "each day"]))
    hours = draw(st.sampled_from(["9:00-10:00", "9-10", "from 9:00 to 10:00", "1h at 9:00"]))
    parts = draw(st.permutations([days, often, hours]))
    return " ".join(parts), first, last


@holds_for(whole_lines(), few=150, many=3_000)
def test_any_order_and_any_way_to_write_a_day_mean_the_same(
    drawn: tuple[str, date, date],
) -> None:
    line, first, last = drawn
    if len(line) > 190:
        return
    expected = f"{first:%m-%d} 09:00 1h FREQ=DAILY;UNTIL={last:%Y%m%d}"
    assert meaning(read(line)) == expected, line


LATE = datetime(2026, 11, 28, 22, 31, tzinfo=UTC)  # 23:31 in Berlin
# What is read as another line, at the same time.
READ_ALIKE = {
    "1 l40s every wed 2pm-4pm x 4": "1 l40s every wed 2pm-4pm 4 times",
    "1 l40s every wed 2pm-4pm x4": "1 l40s every wed 2pm-4pm 4 times",
    "1 l40s on the last day of every month 9-10 until 2027-06-30": (
        "1 l40s every month on the last day 9-10 until 2027-06-30"
    ),
    "1 l40s every first monday 9-11 until 2027-06-30": (
        "1 l40s every first monday of the month 9-11 until 2027-06-30"
    ),
    "1 l40s every last friday 9-11 3 times": "1 l40s every month on the last fri 9-11 3 times",
}
# A refused line, and the first line that is offered for it.
OFFERED = {
    "1 l40s every day 9-10 in the first week of february": (
        "1 l40s every day 9-10 from 2027-02-01 until 2027-02-07"
    ),
    "1 l40s every day 9-10 in the last week of january 2028": (
        "1 l40s every day 9-10 from 2028-01-25 until 2028-01-31"
    ),
    "1 l40s every day 9-10 forever": "1 l40s every day 5 times 9-10",
    "1 l40s every first monday 9-11 until june": ("1 l40s every first monday 9-11 until 2027-05-31"),
    "1 l40s 30s": "1 l40s 1h",
    "1 l40s overnight": "1 l40s until 08:00",
    "1 l40s tonight 10pm to 6am": "1 l40s until 06:00",
    "1 l40s today 20:00-21:00": "1 l40s tomorrow 20:00-21:00",
    "1 l40s 1,5h": "1 l40s 1.5h",
    "1 l40s 1,5 hours": "1 l40s 1.5 hours",
    "l40s 2,4h": "l40s 2.4h",
    "l40s 1,5": "l40s 1.5h",
}


@pytest.mark.parametrize("line", READ_ALIKE)
def test_other_words_for_a_series_are_read_alike(line: str) -> None:
    found, same = (
        parse_ask(each, catalogue=CLASSES, now=NOW, zone=BERLIN) for each in (line, READ_ALIKE[line])
    )
    assert not found.problems
    assert found.repeat is not None
    assert (found.repeat, found.starts, found.count) == (same.repeat, same.starts, same.count)


@pytest.mark.parametrize("line", OFFERED)
def test_a_line_that_is_offered_is_a_request(line: str) -> None:
    parsed = parse_ask(line, catalogue=CLASSES, now=LATE, zone=BERLIN)
    offered = [each.text for problem in parsed.problems for each in problem.repairs]
    assert offered[:1] == [OFFERED[line]]
    for text in offered:
        again = parse_ask(text, catalogue=CLASSES, now=LATE, zone=BERLIN)
        assert not again.problems, text
        assert again.missing is None, text


@pytest.mark.parametrize(
    ("today", "line", "first"),
    [
        (datetime(2026, 11, 29, 2, tzinfo=UTC), "biweekly fri 9-10 5 times", "12-04"),
        (datetime(2026, 11, 29, 2, tzinfo=UTC), "every 3 weeks on mon 9-10 5 times", "11-30"),
        (datetime(2026, 11, 28, 12, tzinfo=UTC), "every other tue 9-10 5 times", "12-01"),
        (datetime(2026, 11, 27, 12, tzinfo=UTC), "every other fri 9-10 5 times", "12-04"),
    ],
)
def test_every_other_week_begins_with_the_next_such_day(today: datetime, line: str, first: str) -> None:
    found = parse_ask(f"1 l40s {line}", catalogue=CLASSES, now=today, zone=BERLIN)
    assert found.starts is not None
    assert found.repeat is not None
    dates = dates_of(found.repeat, found.starts, BERLIN).starts
    assert f"{dates[0].astimezone(BERLIN):%m-%d}" == first


@pytest.mark.parametrize("said", ["5x", "x5", "5 x"])
def test_a_number_of_gpus_or_of_dates_is_asked(said: str) -> None:
    choices = {
        f"l40s every day 9-10 {said} from 1 feb": "l40s every day 9-10 5 times from 1 feb",
        # With an end only GPUs are left.
        f"l40s every day 9-10 {said} until 6 dec": "l40s every day 9-10 5 gpus until 6 dec",
    }
    for line, choice in choices.items():
        (problem,) = [each for each in _read_alone(line).problems if each.code == "not_understood"]
        assert [each.text for each in problem.repairs] == [choice]
        found = _read_alone(choice)
        assert not found.problems
        assert (found.count or 1) * len(_starts(found)) in (5, 40)
    other = _read_alone(f"2x l40s every day 9-10 from 1 feb {said}")
    assert (other.count, other.repeat and other.repeat.times, other.problems) == (2, 5, ())


@pytest.mark.parametrize(
    ("end", "choice"),
    [
        ("until late january", "until 2027-01-31"),
        ("till mid january", "till 2027-01-15"),
        ("by early may", ""),
    ],
)
def test_a_vague_end_is_never_read_as_another_start(end: str, choice: str) -> None:
    found = _read_alone(f"1 l40s every day 9-10 {end}")
    offered = [repair.text for problem in found.problems for repair in problem.repairs]
    assert not [each for each in offered if " from " in each]
    assert (f"1 l40s every day 9-10 {choice}" in offered) == bool(choice)


def _starts(found: Parsed) -> tuple[datetime, ...]:
    assert found.repeat is not None
    assert found.starts is not None
    return dates_of(found.repeat, found.starts, BERLIN).starts


def _read_alone(line: str) -> Parsed:
    return parse_ask(line, catalogue=CLASSES, now=NOW, zone=BERLIN)
