"""Where exactly: pins in the one line, in the document, and back as text."""

from dataclasses import replace

import pytest

from allocation.errors import AskError
from allocation.rules.ask import AskDocument
from allocation.rules.ask.line.text import document_text, pin_words
from tests.rules.test_ask_grammar import BERLIN, read

UNDERSTOOD = {
    "1 h100 2h on node-3": ("node-3",),
    "1 h100 on n0003/2 2h": ("n0003/2",),
    "1 h100 2h pin gpu N0003/2": ("n0003/2",),
    "1 h100 2h on gpu GPU-1a2b-3c": ("gpu-1a2b-3c",),
    "2 h100 2h on n0003/2 or n0004/1": ("n0003/2", "n0004/1"),
    "2 h100 2h pin to node n0004, n0003": ("n0004",),
    "2 h100 2h on n0004 and n0003 before tomorrow": ("n0003", "n0004"),
    "1 h100 2h on mon 14:00 on n0003": ("n0003",),
    "1 h100 2h on mon 14:00": (),
    "1 h100 2h on 2026-11-20": (),
    "1 h100 2h": (),
}


@pytest.mark.parametrize("text", UNDERSTOOD)
def test_a_line_says_where(text: str) -> None:
    assert read(text).pin == UNDERSTOOD[text]


def test_what_was_understood_is_said_in_words() -> None:
    (part,) = (part for part in read("1 h100 2h on n0003/2 or n0004").parts if part.field == "pin")
    assert part.meaning == "only on GPU 2 of n0003 or n0004"
    assert pin_words(("n0003",)) == "n0003"


@pytest.mark.parametrize("text", ["1 h100 2h on", "1 h100 2h on 3g.40gb", "1 h100 2h on 9h"])
def test_on_without_a_name_is_no_pin(text: str) -> None:
    assert read(text).pin == ()


def test_two_pins_are_a_problem() -> None:
    parsed = read("1 h100 2h on n0003 on n0004")
    assert [problem.code for problem in parsed.problems] == ["said_twice"]


def test_the_document_is_sorted_and_without_a_pin_what_it_always_was() -> None:
    plain = {"classes": ["h100"], "duration": 3600}
    document = AskDocument.from_json({**plain, "pin": ["n2", "n1/3", "n2"]})
    assert document.pin == ("n1/3", "n2")
    assert document.to_json()["pin"] == ["n1/3", "n2"]
    assert AskDocument.from_json(document.to_json()) == document
    assert "pin" not in AskDocument.from_json(plain).to_json()


@pytest.mark.parametrize("pin", ["n1", [""], [3], ["x" * 65], [f"n{n}" for n in range(17)]])
def test_what_is_no_pin_is_refused_with_its_field(pin: object) -> None:
    with pytest.raises(AskError) as refused:
        AskDocument.from_json({"classes": ["h100"], "duration": 3600, "pin": pin})
    assert refused.value.param == "pin"


def test_the_line_that_means_a_pinned_ask_reads_back_as_it() -> None:
    document = read("2 h100 2h on n0003/2 or n0004").document()
    text = document_text(document, BERLIN)
    assert text == "2 h100 2h on n0003/2 or n0004"
    assert read(text).document() == document
    assert document_text(replace(document, pin=()), BERLIN) == "2 h100 2h"
