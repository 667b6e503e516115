"""Instants in sentences, and numbers with their nouns."""

from datetime import UTC, datetime
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import pytest

from agent.doctor.driver import _count
from allocation.words.events import event_text
from tenants.rules.moments import instant_text
from tenants.web.parts import counted

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 12, 31, 22, 30, tzinfo=UTC)


def test_an_instant_has_the_year_where_it_is_another_one_in_its_reader_s_zone() -> None:
    assert instant_text(datetime(2026, 12, 1, 13, tzinfo=UTC), BERLIN, NOW) == "1 Dec 14:00 CET"
    assert instant_text(datetime(2026, 12, 31, 23, 30, tzinfo=UTC), BERLIN, NOW) == "1 Jan 2027 00:30 CET"
    assert instant_text(datetime(2026, 12, 31, 23, 30, tzinfo=UTC), UTC, NOW) == "31 Dec 23:30 UTC"


@pytest.mark.parametrize(
    ("number", "text"),
    [(1, "1 run"), (0, "0 runs"), (1_200, "1,200 runs"), ("1", "1 run"), ("0.5", "0.5 runs")],
)
def test_a_number_has_its_noun(number: int | str, text: str) -> None:
    assert counted(number, "run") == text


def test_one_program_and_one_element_are_not_in_the_plural() -> None:
    programs = [_count(SimpleNamespace(processes=count)) for count in (None, 0, 1, 2)]  # type: ignore[arg-type]
    assert programs == ["unknown", "", "1 program", "2 programs"]
    assert "1 element of its array has failed" in str(event_text("array_stopped", failures=1))
    assert "2 elements of its array have failed" in str(event_text("array_stopped", failures=2))
