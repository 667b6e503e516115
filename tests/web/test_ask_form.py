"""The fields beside the ask's line: sizes that are shares, and what comes with a device."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from allocation.errors import AskError
from allocation.rules.ask import AskDocument, Catalogue, ClassEntry, parse_ask
from allocation.rules.ask_text import document_text
from allocation.web.ask_form import ask_of_fields, fields_of

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
