"""The one-line ask, keyed by what people type."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import strategies as st

from allocation.errors import AskError
from allocation.rules.ask import Catalogue, ClassEntry, Parsed, parse_ask
from allocation.rules.ask.line.arrays import array_text
from allocation.rules.ask.line.text import document_text
from allocation.rules.ask.when.recurrence_words import recurrence_line
from tests.rings import holds_for

BERLIN = ZoneInfo("Europe/Berlin")
WEDNESDAY = datetime(2026, 11, 18, 9, 0, tzinfo=UTC)  # 10:00 in Berlin
SEVEN = ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
SITE = Catalogue(
    (
        ClassEntry("h100", "H100 80 GB", ("h100-80gb",), 81_559, SEVEN),
        ClassEntry("a100-80", "A100 80 GB", ("a100",), 81_920, SEVEN),
        ClassEntry("a100-40", "A100 40 GB", ("a100",), 40_960, ("1g.5gb", "1g.10gb", "3g.20gb")),
        ClassEntry("4090", "RTX 4090", (), 24_564, ()),
    )
)


def read(text: str, *, now: datetime = WEDNESDAY, zone: ZoneInfo = BERLIN) -> Parsed:
    return parse_ask(text, catalogue=SITE, now=now, zone=zone)


def berlin(day: int, hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 11, day, hour, minute, tzinfo=BERLIN).astimezone(UTC)


def said(parsed: Parsed) -> dict[str, object]:
    """Only the fields that the text set."""
    names = "count classes profile together required duration starts not_before deadline"
    names += " share cores memory array parallel"
    values = {name: getattr(parsed, name) for name in names.split()}
    return {name: value for name, value in values.items() if value not in (None, (), False)}


H = 3600
UNDERSTOOD: dict[str, dict[str, object]] = {
    "0.25 h100 2h": {"share": 250, "classes": ("h100",), "duration": 2 * H},
    ".5 h100 2h": {"share": 500, "classes": ("h100",), "duration": 2 * H},
    "33% of h100 1h": {"share": 330, "classes": ("h100",), "duration": H},
    "2 h100 6h 16 cores 64gb ram": {
        "count": 2,
        "classes": ("h100",),
        "duration": 6 * H,
        "cores": 16,
        "memory": 64,
    },
    "h100 1h 128 gb memory": {"classes": ("h100",), "duration": H, "memory": 128},
    "2 h100 6h today same nvlink": {
        "count": 2,
        "classes": ("h100",),
        "duration": 6 * H,
        "together": "domain",
        "required": True,
        "not_before": WEDNESDAY,
        "deadline": berlin(19, 6),
    },
    "3g.40gb 2d from mon 9": {
        "profile": "3g.40gb",
        "classes": ("h100", "a100-80"),
        "duration": 48 * H,
        "not_before": berlin(23, 9),
    },
    "1 h100 for 10m": {"count": 1, "classes": ("h100",), "duration": 600},
    "4 a100 12h same node": {
        "count": 4,
        "classes": ("a100-80", "a100-40"),
        "duration": 12 * H,
        "together": "node",
        "required": True,
    },
    "2x 1g.10gb 30m": {
        "count": 2,
        "profile": "1g.10gb",
        "classes": ("h100", "a100-80", "a100-40"),
        "duration": 1800,
    },
    "any >=40gb 1h now": {
        "classes": ("h100", "a100-80", "a100-40"),
        "duration": H,
        "not_before": WEDNESDAY,
    },
    "any ≥ 80gb 1h": {"classes": ("h100", "a100-80"), "duration": H},
    "8 h100 6h before fri 18:00": {
        "count": 8,
        "classes": ("h100",),
        "duration": 6 * H,
        "deadline": berlin(20, 18),
    },
    "h100 from 14:00 to 18:00": {
        "classes": ("h100",),
        "starts": berlin(18, 14),
        "duration": 4 * H,
    },
    "h100 from 22:00 to 02:00": {
        "classes": ("h100",),
        "starts": berlin(18, 22),
        "duration": 4 * H,
    },
    "h100 from 14:00 to 18:00 tomorrow": {
        "classes": ("h100",),
        "starts": berlin(19, 14),
        "duration": 4 * H,
    },
    "tomorrow from 9 to 17 h100": {
        "classes": ("h100",),
        "starts": berlin(19, 9),
        "duration": 8 * H,
    },
    "from mon to wed 2 h100": {
        "count": 2,
        "classes": ("h100",),
        "starts": berlin(23, 0),
        "duration": 72 * H,
    },
    "from mon 2 h100 6h": {
        "count": 2,
        "classes": ("h100",),
        "duration": 6 * H,
        "not_before": berlin(23, 0),
    },
    "h100 4h tomorrow 14:00": {
        "classes": ("h100",),
        "duration": 4 * H,
        "starts": berlin(19, 14),
    },
    "h100 4h at 9": {"classes": ("h100",), "duration": 4 * H, "starts": berlin(19, 9)},
    "H100 80 GB 90min by fri": {
        "classes": ("h100",),
        "duration": 5400,
        "deadline": berlin(21, 0),
    },
    "h100 or a100-80 1.5h": {"classes": ("h100", "a100-80"), "duration": 5400},
    "h100/a100-80 1h30m": {"classes": ("h100", "a100-80"), "duration": 5400},
    "2×h100 1d 12 hours": {"count": 2, "classes": ("h100",), "duration": 36 * H},
    "3 4090 1h": {"count": 3, "classes": ("4090",), "duration": H},
    "4 h100 gpus 2h preferably same rack": {
        "count": 4,
        "classes": ("h100",),
        "duration": 2 * H,
        "together": "rack",
    },
    "h100 1h from 2026-11-20T08:00+01:00": {
        "classes": ("h100",),
        "duration": H,
        "not_before": berlin(20, 8),
    },
    "a100 3g.20gb 1h": {"classes": ("a100-40",), "profile": "3g.20gb", "duration": H},
    "array of 500: 1 h100 2h": {
        "array": 500,
        "count": 1,
        "classes": ("h100",),
        "duration": 2 * H,
    },
    "500 runs of 2 h100 2h, 20 at once": {
        "array": 500,
        "parallel": 20,
        "count": 2,
        "classes": ("h100",),
        "duration": 2 * H,
    },
    "ten jobs of 2h on 0.25 h100": {
        "array": 10,
        "share": 250,
        "classes": ("h100",),
        "duration": 2 * H,
    },
    "2 h100 2h at once": {
        "count": 2,
        "classes": ("h100",),
        "duration": 2 * H,
        "not_before": WEDNESDAY,
    },
}


@pytest.mark.parametrize("text", UNDERSTOOD)
def test_is_understood(text: str) -> None:
    parsed = read(text)
    assert (parsed.unknown, parsed.problems) == ((), ())
    assert said(parsed) == UNDERSTOOD[text]


@pytest.mark.parametrize(
    ("text", "spans"),
    {
        "2 h100 6h pleasant": ["pleasant"],
        "h100 6h project folding": ["project folding"],
        "h100 2": ["2"],
        "h200 6h": ["h200"],
        "2 h100 6h same planet": ["same planet"],
        "6h h100 until": ["until"],
        "h100 1h from 25:00": ["25:00"],
        "h100 1h on 2026-02-30": ["on 2026-02-30"],
    }.items(),
)
def test_what_is_not_understood_is_reported_with_its_span(text: str, spans: list[str]) -> None:
    parsed = read(text)
    assert [text[start:end] for start, end in parsed.unknown] == spans
    with pytest.raises(AskError, match="not_understood"):
        parsed.document(duration=H)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("0 h100 1h", "count_out_of_bounds", "0"),
        ("513 h100 1h", "count_out_of_bounds", "513"),
        ("h100 91d 10m", "duration_out_of_bounds", "91d 10m"),
        ("h100 6h 8h", "said_twice", "6h 8h"),
        ("h100 0m", "duration_out_of_bounds", "0m"),
        ("h100 1h for 2h", "said_twice", "for 2h"),
        ("h100 1h a100", "said_twice", "a100"),
        ("2 4090 3g.40gb 1h", "impossible_profile", "3g.40gb"),
        ("any >=200gb 1h", "no_such_memory", "any >=200gb"),
        ("h100 6h before 12:00", "deadline_unreachable", "before 12:00"),
        ("h100 from mon before mon", "deadline_unreachable", "before mon"),
        ("h100 1h today 9:00", "window_past", "today 9:00"),
        ("h100 1h at 2026-11-01", "window_past", "at 2026-11-01"),
        ("h100 from fri 18:00 to 2026-11-19", "ends_first", "from fri 18:00 to 2026-11-19"),
        ("h100 1h before today", "window_past", "before today"),
        ("h100 1h mon today", "said_twice", "today"),
        ("h100 1h at 14:00 before 18:00", "window_twice", "at 14:00"),
        ("array of 0: h100 1h", "bad_array", "array of 0"),
        ("10001 runs of 1 h100 1h", "bad_array", "10001 runs of"),
        ("array of 5: 1 h100 2h tomorrow at 9", "array_fixed", "tomorrow at 9"),
        ("1 h100 2h 20 at once", "no_array", "20 at once"),
        ("array of 5: 1 h100 2h 2000 at once", "bad_parallel", "2000 at once"),
        ("array of 5: 1 h100 9-17 every mon 3 times", "array_repeats", "array of 5"),
    ],
)
def test_what_cannot_be_meant_is_a_problem_at_its_words(text: str, code: str, words: str) -> None:
    problem = read(text).problems[0]
    assert (problem.code, text[problem.start : problem.end]) == (code, words)


def test_each_part_is_where_it_was_typed() -> None:
    text = "2 h100  6h today same nvlink"
    parts = [(part.field, text[part.start : part.end]) for part in read(text).parts]
    assert parts == [
        ("count", "2"),
        ("classes", "h100"),
        ("duration", "6h"),
        ("not_before", "today"),
        ("together", "same nvlink"),
    ]


def test_a_time_that_the_night_of_the_clock_change_skips_is_refused() -> None:
    spring = datetime(2027, 3, 27, 12, tzinfo=UTC)
    assert read("h100 1h at 02:30", now=spring).problems[0].code == "no_such_time"


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("h100 1h at 02:30 on 28 Mar 2027", "h100 1h at 03:30 on 28 Mar 2027"),
        ("h100 1h by 2027-03-28 02:30", "h100 1h by 2027-03-28 03:30"),
        ("h100 on 2027-03-28 02:30-04:00", "h100 on 2027-03-28 03:30-04:00"),
        ("h100 2027-03-28 01:00-02:30", "h100 2027-03-28 01:00-03:30"),
        ("h100 2027-03-27 22-02", "h100 2027-03-27 22-03:00"),
        ("h100 1h 2027-03-28T02:00", "h100 1h 2027-03-28T03:00"),
    ],
)
def test_a_time_that_clocks_skip_is_offered_as_the_same_moment(text: str, offered: str) -> None:
    now = datetime(2027, 3, 20, 12, tzinfo=UTC)
    (problem,) = read(text, now=now).problems
    assert problem.code == "no_such_time"
    assert [each.text for each in problem.repairs] == [offered]
    assert not read(offered, now=now).problems


def test_a_window_over_the_autumn_change_is_as_long_as_it_really_is() -> None:
    autumn = datetime(2026, 10, 24, 12, tzinfo=UTC)
    assert read("h100 from 22:00 to 6:00", now=autumn).duration == 9 * H


def test_the_asker_s_zone_decides_what_nine_o_clock_is() -> None:
    kathmandu = ZoneInfo("Asia/Kathmandu")
    parsed = read("h100 1h from mon 9", zone=kathmandu)
    assert parsed.not_before == datetime(2026, 11, 23, 3, 15, tzinfo=UTC)


@pytest.mark.parametrize("text", ["h100 1h\x00", "h100\n1h", "h100 \u202e1h", "h" * 201])
def test_text_that_is_no_line_is_refused(text: str) -> None:
    with pytest.raises(AskError):
        read(text)


def test_an_empty_line_says_nothing() -> None:
    assert said(read("   ")) == {}


WORDS = """
2 513 x × h100 a100 80 gb / or any >= >=40gb 3g.40gb 6h 90d for from to at on by before mon 9 25
14:00 24:00 noon today tomorrow 2026-02-30 9999-12-31 12am 13pm same nvlink node prefer gpus now
2026-11-20T08:00 0.0001h - array of : 500 runs jobs at once
"""


@holds_for(
    st.one_of(
        st.text(max_size=200),
        st.lists(
            st.sampled_from(WORDS.split()),
            max_size=12,
        ).map(" ".join),
    ),
    few=25,
    many=3_000,
)
def test_any_text_is_read_or_refused_and_every_span_lies_in_it(text: str) -> None:
    try:
        parsed = read(text)
    except AskError:
        return
    spans = [
        *((part.start, part.end) for part in parsed.parts),
        *((problem.start, problem.end) for problem in parsed.problems),
        *parsed.unknown,
    ]
    assert all(0 <= start < end <= len(text) for start, end in spans)
    if not parsed.problems and not parsed.unknown and parsed.classes:
        document = parsed.document(duration=60, many=True)
        window = (document.not_before or WEDNESDAY) + timedelta(seconds=document.duration)
        assert document.deadline is None or document.deadline >= window


@pytest.mark.parametrize(
    ("text", "repairs"),
    [
        ("500 × 1 h100 2h", ["array of 500: 1 h100 2h", "500 h100 2h"]),
        ("2x4 h100 2h", ["array of 2: 4 h100 2h", "8 h100 2h"]),
        ("3 x 0.25 h100 2h", ["array of 3: 0.25 h100 2h"]),
        ("array of 500 h100 2h", ["array of 500: 1 h100 2h", "500 h100 2h"]),
        ("1 h100 2h 500 times", ["array of 500: 1 h100 2h"]),
    ],
)
def test_runs_and_gpus_are_never_taken_for_each_other(text: str, repairs: list[str]) -> None:
    (problem,) = read(text).problems
    assert [each.text for each in problem.repairs] == repairs
    array = read(repairs[0])
    with pytest.raises(AskError, match="is_array"):
        array.document()
    one = document_text(array.document(many=True), BERLIN)
    assert said(read(array_text(one, array.array, 20))) == {**said(array), "parallel": 20}


REPEATED: dict[str, tuple[str, datetime, int]] = {
    "1 h100 every mon,wed 9-17 until 31 jan": (
        "FREQ=WEEKLY;BYDAY=MO,WE;UNTIL=20270131",
        berlin(19, 9),
        8 * H,
    ),
    "h100 every 2nd tue 9-17 3 times": ("FREQ=WEEKLY;INTERVAL=2;BYDAY=TU;COUNT=3", berlin(24, 9), 8 * H),
    "h100 every 3rd week on fri 9-17 3 times": (
        "FREQ=WEEKLY;INTERVAL=3;BYDAY=FR;COUNT=3",
        berlin(19, 9),
        8 * H,
    ),
    "h100 every 2nd tue of the month 9-17 3 times": (
        "FREQ=MONTHLY;BYDAY=2TU;COUNT=3",
        berlin(19, 9),
        8 * H,
    ),
    "h100 every 31st 9-17 3 times": ("FREQ=MONTHLY;BYMONTHDAY=31;COUNT=3", berlin(19, 9), 8 * H),
    "h100 6h every day at 9 10 times": ("FREQ=DAILY;COUNT=10", berlin(19, 9), 6 * H),
    "h100 every weekday 22:00-6:00 until 2026-12-24": (
        "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR;UNTIL=20261224",
        berlin(18, 22),
        8 * H,
    ),
    "h100 every 2 weeks on tue and fri 9:30-11 until jan 31 2027": (
        "FREQ=WEEKLY;INTERVAL=2;BYDAY=TU,FR;UNTIL=20270131",
        berlin(19, 9, 30),
        90 * 60,
    ),
    "h100 monthly tomorrow 9-17 3 times": ("FREQ=MONTHLY;COUNT=3", berlin(19, 9), 8 * H),
    "h100 9-17 every month on the 2nd tue, last fri until 31 jan": (
        "FREQ=MONTHLY;BYDAY=2TU,-1FR;UNTIL=20270131",
        berlin(19, 9),
        8 * H,
    ),
    "h100 every 2 months on 1st and 15th 9-17 3 times": (
        "FREQ=MONTHLY;INTERVAL=2;BYMONTHDAY=1,15;COUNT=3",
        berlin(19, 9),
        8 * H,
    ),
    "h100 every month on the last weekday 9-17 3 times": (
        "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;COUNT=3",
        berlin(19, 9),
        8 * H,
    ),
    "h100 9-17 rrule:FREQ=MONTHLY;BYDAY=MO,WE;BYSETPOS=2;COUNT=3": (
        "FREQ=MONTHLY;BYDAY=MO,WE;BYSETPOS=2;COUNT=3",
        berlin(19, 9),
        8 * H,
    ),
    "h100 every other week from mon 9 to 17 until fri": (
        "FREQ=WEEKLY;INTERVAL=2;UNTIL=20261120",
        berlin(23, 9),
        8 * H,
    ),
}


@pytest.mark.parametrize("text", REPEATED)
def test_what_repeats_is_read_with_its_end(text: str) -> None:
    rule, starts, seconds = REPEATED[text]
    found = read(text)
    assert (found.unknown, found.problems) == ((), ())
    assert found.repeat is not None
    assert (found.repeat.text, found.starts, found.duration) == (rule, starts, seconds)
    assert found.document(first=True).starts == starts
    with pytest.raises(AskError, match="repeats: "):
        found.document()
    again = read(f"h100 9-17 {recurrence_line(found.repeat)}")
    assert again.repeat == found.repeat, "what a page writes is read as the same"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("h100 every mon 9-17", "no_end"),
        ("h100 6h every mon until 31 jan", "no_start"),
        ("h100 9-17 until 31 jan", "no_repeat"),
        ("h100 9-17 10 times", "no_repeat"),
        ("h100 every mon 9-17 10 times until 31 jan", "end_twice"),
        ("h100 every day 9-17 400 times", "series_too_long"),
        ("h100 9-17 rrule:FREQ=MONTHLY;BYDAY=6TU;COUNT=3", "not_a_rule"),
        ("h100 9-17 rrule:FREQ=MONTHLY;COUNT=3 until 31 jan", "end_twice"),
        ("h100 6h kind:cooking", "unknown_workload"),
    ],
)
def test_a_repetition_that_lacks_something_says_what(text: str, code: str) -> None:
    assert [problem.code for problem in read(text).problems] == [code]


def test_every_with_anything_else_is_underlined() -> None:
    assert read("h100 6h every blue moon").unknown
    assert read("h100 9-99 6h").unknown
    assert read("h100 9-17 every month on the 2nd tue, 15th 3 times").unknown, "two kinds of days"


def test_work_names_its_kind_and_classes_may_be_parted_by_a_bar() -> None:
    site = Catalogue(SITE.classes, ("training", "inference"))
    text = "2 h100|a100-80 6h kind:training"
    found = parse_ask(text, catalogue=site, now=WEDNESDAY, zone=BERLIN)
    assert (found.unknown, found.problems) == ((), ())
    assert (found.classes, found.workload) == (("h100", "a100-80"), "training")
    assert found.document().workload == "training"


@pytest.mark.parametrize(
    ("text", "repaired"),
    [
        ("1 h100 100 days", "1 h100 90d"),
        ("600 h100 1h", "512 h100 1h"),
        ("0 h100 1h", "1 h100 1h"),
        ("array of 20000: 1 h100 1h", "array of 10000 : 1 h100 1h"),
        ("20001 runs of 1 h100 1h", "array of 10000: 1 h100 1h"),
        ("array of 5: 1 h100 2h 2000 at once", "array of 5: 1 h100 2h 1000 at once"),
        ("h100 every day 9-17 400 times", "h100 every day 9-17 366 times"),
        ("h100 9-17 rrule:FREQ=DAILY;COUNT=400", "h100 9-17 rrule:FREQ=DAILY;COUNT=366"),
    ],
)
def test_what_is_out_of_bounds_is_corrected_to_what_is_read(text: str, repaired: str) -> None:
    (repair,) = read(text).problems[0].repairs
    assert repair.text == repaired
    assert read(repaired).problems == ()


@pytest.mark.parametrize("text", ["1 h100 30s", "1 h100 30 seconds"])
def test_a_length_of_seconds_names_lengths_that_are_read(text: str) -> None:
    repairs = read(text).problems[0].repairs
    assert repairs
    assert not any(read(each.text).problems for each in repairs)


def test_partitions_of_other_makers_are_slices_in_a_line() -> None:
    amd = ClassEntry("mi300x", "MI300X 192 GB", (), 196_592, ("cpx.24gb", "dpx.96gb"))
    site = Catalogue((*SITE.classes, amd))
    for text in ("2 cpx.24gb 4h", "2 mi300x cpx.24gb 4h", "2 slices 24 gb mi300x 4h"):
        parsed = parse_ask(text, catalogue=site, now=WEDNESDAY, zone=BERLIN)
        assert (parsed.count, parsed.profile, parsed.classes) == (2, "cpx.24gb", ("mi300x",)), text
