"""Lines of any known words in any order, with numbers of other scripts: read or refused, and nothing else."""

from datetime import datetime

import pytest
from hypothesis import strategies as st

from allocation.errors import AskError
from allocation.rules.ask import Parsed, parse_ask
from allocation.rules.ask.line import grammar
from allocation.rules.ask.line.repairs import MAX_READ
from allocation.rules.ask.words.reading import Reading
from allocation.rules.recurrence import MAX_DATES, dates_of
from tests.rings import holds_for
from tests.rules.test_series_lines import BERLIN, CLASSES, NOW

WORDS = """
0 00 1 2 12 31 99 366 9999999999 -1 1.5 0.0 1e9 zero ٣ ٣٠ \uff19 1२ ½ ² Ⅷ İ ß
every each day days week weeks weekday weekend month months nights 1st 2nd last mon fri on the
times until ends ending finish from starting for to by before after between at and or in of
9-10 22-6 9 17:00 h min hours tomorrow next this overnight daily monthly biweekly fortnightly
2027-02-01 T09:00 Z am pm :00 st nd - / x + € % per gb cores cheapest parallel slice half
jeden alle Tag Monat Monate Uhr bis ab mal nächsten Ende vom am
rrule:FREQ=DAILY;COUNT=3 rrule:FREQ=MONTHLY;BYDAY=5MO;BYSETPOS=2;COUNT=3
"""
PHRASES = ("6 feb", "29 feb", "31 nov", "end of month", "all day", "array of", "at most", "of an l40s")
LINES = st.lists(st.sampled_from([*WORDS.split(), *PHRASES]), max_size=10).map(" ".join)


def read(line: str) -> Parsed:
    return parse_ask(f"1 l40s {line}", catalogue=CLASSES, now=NOW, zone=BERLIN)


def window(line: str) -> tuple[datetime | None, int | None]:
    parsed = read(line)
    assert not parsed.problems, line
    return parsed.starts, parsed.duration


@pytest.mark.parametrize(
    "hours",
    [
        "9:00 end 17:00",
        "at 9:00 ends at 17:00",
        "from 9am ending 5pm",
        "9:00 finishing at 17:00",
        "9:00 and until 17:00",
        "9:00 until at 17:00",
        "9:00 to @17:00",
        "٩:00-\uff11\uff17:00",
        "٩ Uhr bis 17 Uhr",
    ],
)
def test_a_window_is_read_with_any_word_before_its_end_and_in_any_digits(hours: str) -> None:
    assert window(f"tomorrow {hours}") == window("tomorrow 9:00-17:00")


@pytest.mark.parametrize(
    "line",
    [
        "every at ٣ Uhr week and 9-10 hours 31",
        "31 + ٣ half h 9999999999 end of month ٣ this",
        "nights on next 00 half Monat until on Monat",
        "fortnightly + of an l40s on Tag fri 99",
    ],
)
def test_what_is_not_understood_is_refused(line: str) -> None:
    assert read(line).problems


@pytest.mark.parametrize("words", [["1.5", "0", "31", "99"] * 12, ["1.5"] * 40, ["between", "0", "am"] * 14])
def test_the_work_for_a_line_has_a_bound(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A line with dozens of problems took 6 s: each repair was tried with those of all others."""
    lengths: list[int] = []

    def counted(reading: Reading) -> Parsed:
        lengths.append(len(reading.text))
        return really(reading)

    really = grammar._read
    monkeypatch.setattr(grammar, "_read", counted)
    line = " ".join(words)
    assert read(line).problems
    assert sum(lengths) <= MAX_READ + 4 * len(line)


@holds_for(st.tuples(st.sampled_from(["", "every "]), LINES).map("".join), few=60, many=5_000)
def test_any_words_in_any_order_are_read_or_refused(line: str) -> None:
    try:
        parsed = read(line)
        if parsed.repeat is not None and parsed.starts is not None and parsed.repeat.has_end:
            assert len(dates_of(parsed.repeat, parsed.starts, BERLIN).starts) <= MAX_DATES
    except AskError:
        return
