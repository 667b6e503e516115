"""Names, numbers of GPUs and durations as people type them."""

import pytest

from tenants.platform.errors import Refused
from tenants.services.input_values import (
    gpus_text,
    name_read,
    seconds_read,
    seconds_text,
    seconds_words,
    slug_read,
    units_read,
    whole_read,
)


@pytest.mark.parametrize(
    ("text", "units"),
    [("2", 112_000), ("2.5", 140_000), ("0", 0), (" 1 ", 56_000), ("0.125", 7000)],
)
def test_gpus_become_units_exactly(text: str, units: int) -> None:
    assert units_read(text, param="limit") == units


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-1",
        "NaN",
        "Infinity",
        "1e3",
        "1,000",
        "１",  # noqa: RUF001 (a full-width digit is the point)
        "0.00001",
        "0.333333",
        "100001",
        "9" * 400,
        "2.",
        ".5",
        "0x10",
        "1\x00",
        "1 2",
    ],
)
def test_a_bad_number_of_gpus_is_refused_at_its_field(text: str) -> None:
    with pytest.raises(Refused) as refused:
        units_read(text, param="limit")
    assert (refused.value.code, refused.value.kind, refused.value.param) == (
        "bad_number",
        "invalid",
        "limit",
    )


@pytest.mark.parametrize(
    ("units", "text"), [(0, "0"), (56_000, "1"), (140_000, "2.5"), (7000, "0.125"), (8000, "0.143")]
)
def test_units_are_shown_as_gpus(units: int, text: str) -> None:
    assert gpus_text(units) == text


def test_a_name_is_kept_in_normal_form_with_single_spaces() -> None:
    assert name_read("  Cafe\u0301   Lab ") == "Café Lab"
    assert name_read("<b>O'Hara & Søn</b> 🚀") == "<b>O'Hara & Søn</b> 🚀"


@pytest.mark.parametrize(
    "text", ["", "   ", "a\x00b", "a\nb", "abc\u202edef", "a\u200bb", "\ud800", "x" * 81, "\ufeff"]
)
def test_a_name_with_tricks_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="bad_name"):
        name_read(text)


@pytest.mark.parametrize("text", ["", "A", "a_b", "-a", "a-", "a--b", "a b", "../etc", "ä", "a" * 41, "a\n"])
def test_a_short_name_fits_into_an_address(text: str) -> None:
    assert slug_read("fold-2") == "fold-2"
    with pytest.raises(Refused, match="bad_slug"):
        slug_read(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30m", 1800), ("1h 30m", 5400), ("7d", 604_800), ("0", 0), ("90s", 90), ("2h30m", 9000)],
)
def test_a_duration_is_read_with_its_units(text: str, seconds: int) -> None:
    assert seconds_read(text, param="grace") == seconds


@pytest.mark.parametrize("text", ["", "30", "-1m", "1.5h", "1w", "m", "1e3s", "NaN", "999999999s"])
def test_a_duration_without_units_or_sense_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="bad_duration"):
        seconds_read(text, param="grace")


@pytest.mark.parametrize("seconds", [0, 59, 60, 5400, 86_400, 90_061])
def test_a_shown_duration_reads_back_as_itself(seconds: int) -> None:
    assert seconds_read(seconds_text(seconds), param="grace") == seconds


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 min"),
        (120, "2 min"),
        (5_400, "1 h 30 min"),
        (129_600, "36 h"),
        (86_400, "24 h"),
        (28 * 86_400, "28 days"),
        (90_061, "1 d 1 h 1 min 1 s"),
    ],
)
def test_a_duration_is_written_out_for_readers(seconds: int, words: str) -> None:
    assert seconds_words(seconds) == words


@pytest.mark.parametrize("text", ["", "1.0", "1e3", "--1", "\u0661", "9" * 10, "true"])
def test_a_whole_number_has_plain_digits(text: str) -> None:
    assert whole_read("-12", param="priority") == -12
    with pytest.raises(Refused, match="bad_number"):
        whole_read(text, param="priority")
