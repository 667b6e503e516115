"""Every fault of a request has a sentence."""

from dataclasses import replace

import pytest

from allocation.errors import AskError
from allocation.rules.ask import AskDocument, parse_ask
from allocation.words.refusals import coded_text
from tests.rules.ask_corpus import NOW, SITE, ZONE
from tests.rules.test_ask_document import FULL, REFUSED


@pytest.mark.parametrize("what", REFUSED)
def test_a_refused_field_has_a_sentence(what: str) -> None:
    name, value, _ = REFUSED[what]
    with pytest.raises(AskError) as refused:
        AskDocument.from_json(FULL | {name: value})
    assert coded_text(refused.value.text).endswith(".")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1/0 h100 2h", "A part of a GPU is a fraction such as 1/2, a day such as 11/27."),
        ("h100 2h on 31/11", "This day does not exist."),
        (
            "h100 from 2026-12-01 10:00 until 2026-12-01 10:00",
            "The window ends at the time at which it starts.",
        ),
        ("h100 from 2026-12-01 10:00 until 2026-12-01 09:00", "The window ends before it starts."),
        ("2 h100 1h not in basel not in bern", "The request says its excluded zones twice: keep one."),
        ("h100 2h a100", "The request says its GPU class twice: keep one."),
        ("h100 2h on n0001 on n0002", "The request says its nodes twice: keep one."),
    ],
)
def test_a_problem_is_said_in_words_that_people_use(text: str, sentence: str) -> None:
    catalogue = replace(SITE, zones=(("basel", "Basel"), ("bern", "Bern")))
    problem = parse_ask(text, catalogue=catalogue, now=NOW, zone=ZONE).problems[0]
    assert coded_text(problem.text) == sentence
