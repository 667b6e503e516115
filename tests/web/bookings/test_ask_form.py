"""The request form: sizes that are shares, and host resources."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from allocation.errors import AskError
from allocation.rules.ask import AskDocument, Catalogue, ClassEntry, parse_ask
from allocation.rules.ask.line.text import document_text
from allocation.web.bookings.request_panel.request_form import ask_of_fields, fields_of
from allocation.web.bookings.request_panel.series_form import repeat_of_fields, repeat_shown

NOW = datetime(2026, 11, 18, 9, tzinfo=UTC)
SITE = Catalogue((ClassEntry("h100", "H100", (), 81_559, ("1g.10gb",)),))
FIELDS = {"by": "fields", "count": "1", "classes": "h100", "profile": "", "length": "2h"}


def ask_of(**changed: str) -> AskDocument:
    parsed = parse_ask("", catalogue=SITE, now=NOW, zone=ZoneInfo("UTC"))
    return ask_of_fields(fields_of(FIELDS | changed, 200), parsed)


def test_a_share_with_cores_and_memory_is_said_by_fields_and_read_back_from_its_line() -> None:
    ask = ask_of(profile="share-250", cores="4", memory="16")
    assert (ask.share, ask.profile, ask.cores, ask.memory) == (250, None, 4, 16)
    line = document_text(ask, ZoneInfo("UTC"))
    assert line == "0.25 h100 2h 4 cores 16 gb ram"
    parsed = parse_ask(line, catalogue=SITE, now=NOW, zone=ZoneInfo("UTC"))
    assert parsed.document() == ask


def test_a_size_is_a_profile_or_the_whole_gpu_without_more() -> None:
    assert ask_of(profile="1g.10gb").shape == "1g.10gb"
    assert ask_of().shape is None


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"profile": "share-250", "count": "2"}, "share_of_one"),
        ({"profile": "share-1000"}, "share_out_of_bounds"),
        ({"profile": "share-x"}, "share_out_of_bounds"),
        ({"cores": "many"}, "out_of_bounds"),
    ],
)
def test_fields_that_make_no_sense_say_why(changed: dict[str, str], code: str) -> None:
    with pytest.raises(AskError) as refused:
        ask_of(**changed)
    assert refused.value.code == code


def test_days_of_a_month_are_a_rule_until_a_day_and_shown_again() -> None:
    said = FIELDS | {"often": "days", "days": "2nd tue and last fri", "until": "2027-01-31"}
    rule = repeat_of_fields(fields_of(said, 200), None, NOW.date())
    assert rule is not None
    assert rule.text == "FREQ=MONTHLY;BYDAY=2TU,-1FR;UNTIL=20270131"
    shown = repeat_shown(rule)
    assert (shown["often"], shown["days"]) == ("days", "2nd Tue, last Fri")
    for days in ("", "2nd x", "blue moons", "2nd tue, 15th", "6th mon", "32nd"):
        with pytest.raises(AskError) as error:
            repeat_of_fields(fields_of(said | {"days": days}, 200), None, NOW.date())
        assert (error.value.code, error.value.param) == ("not_a_rule", "days")
