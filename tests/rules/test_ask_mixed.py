"""Several groups of GPUs in one request: in the one line, in the document, and back as text."""

from typing import Any

import pytest

from allocation.errors import AskError
from allocation.rules.ask import AskDocument, AskGroup, classes_asked, count_asked
from allocation.rules.ask.line.text import document_text
from allocation.rules.changes import Strength, Target, strength_of
from tests.rules.ask_corpus import read
from tests.rules.test_ask_grammar import BERLIN

UNDERSTOOD = {
    "2 h100 + 4 l40s 6h": ("2 h100 + 4 l40s 6h", 2, (4,)),
    "6h 2x h100 + 4x l40s": ("2 h100 + 4 l40s 6h", 2, (4,)),
    "h100 + l40s 2h": ("1 h100 + 1 l40s 2h", 1, (1,)),
    "2 1g.10gb h100 + 1 l40s 8 cores 2h": ("2 1g.10gb h100 + 1 l40s 8 cores 2h", 2, (1,)),
    "2 h100 and 4 l40s 6h": ("2 h100 + 4 l40s 6h", 2, (4,)),
    "2 h100 und 4 l40s 6h": ("2 h100 + 4 l40s 6h", 2, (4,)),
    "2 h100 same node 6h + two l40s": ("2 h100 same node + 2 l40s 6h", 2, (2,)),
}


@pytest.mark.parametrize("text", UNDERSTOOD)
def test_a_line_with_several_groups(text: str) -> None:
    line, first, others = UNDERSTOOD[text]
    ask = read(text).document()
    assert (ask.count, tuple(each.count for each in ask.groups)) == (first, others)
    assert (ask.all_classes, ask.total) == (("h100", "l40s"), first + sum(others))
    assert document_text(ask, BERLIN) == line
    assert read(line).document() == ask


def test_every_word_keeps_its_place() -> None:
    text = "2 h100 + 4 l40s 6h tomorrow 9:00"
    said = {(part.field, text[part.start : part.end]) for part in read(text).parts}
    assert {("count", "2"), ("classes", "h100"), ("count", "4"), ("classes", "l40s")} <= said


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("2 h100 + 4 h100 6h", "class_twice"),
        ("2 h100 + 4 foo 6h", "not_understood"),
        ("2 h100 + 6h", "not_understood"),
        ("2 h100 or l40s + 1 a100-40 6h", "no_class"),
        ("0.5 h100 + 1 l40s 2h", "not_in_groups"),
    ],
)
def test_a_line_that_makes_no_booking_says_why(text: str, code: str) -> None:
    with pytest.raises(AskError) as refused:
        read(text).document(many=True)
    assert refused.value.code == code


def test_an_array_can_have_several_groups() -> None:
    for text in ("array of 5: 1 h100 + 2 l40s 2h", "1 h100 + 2 l40s 2h, array of 5"):
        parsed = read(text)
        ask = parsed.document(many=True)
        assert (parsed.array, ask.count, [each.count for each in ask.groups]) == (5, 1, [2])


GROUPS: list[dict[str, Any]] = [
    {"gpu_class": "h100", "count": 2},
    {"gpu_class": "l40s", "count": 4, "cores": 8},
]


def test_the_stored_form_has_the_first_group_and_all() -> None:
    ask = AskDocument.from_json({"groups": GROUPS, "duration": "PT6H"})
    assert ask.groups == (AskGroup("l40s", 4, cores=8),)
    stored = ask.to_json()
    assert (stored["count"], stored["classes"]) == (2, ["h100"])
    assert (classes_asked(stored), count_asked(stored)) == (["h100", "l40s"], 6)
    assert AskDocument.from_json(stored) == ask
    assert [part.classes for part in ask.parts] == [("h100",), ("l40s",)]


@pytest.mark.parametrize(
    ("more", "code", "param"),
    [
        ({"groups": GROUPS[:1]}, "not_a_list", "groups"),
        ({"groups": GROUPS * 3}, "not_a_list", "groups"),
        ({"groups": [*GROUPS, GROUPS[0]]}, "class_twice", "groups"),
        ({"groups": [{"count": 1}, *GROUPS]}, "missing_field", "groups.0.gpu_class"),
        ({"groups": [*GROUPS, {"gpu_class": "a", "x": 1}]}, "unknown_field", "groups.2.x"),
        (
            {"groups": [*GROUPS, {"gpu_class": "a", "count": 0}]},
            "count_out_of_bounds",
            "groups.2.count",
        ),
        ({"groups": GROUPS, "count": 3}, "groups_twice", "count"),
        ({"groups": GROUPS, "pin": ["n1"]}, "not_in_groups", "pin"),
        ({"groups": GROUPS, "share": 250}, "not_in_groups", "share"),
    ],
)
def test_a_bad_document_is_refused_at_its_field(more: dict[str, Any], code: str, param: str) -> None:
    with pytest.raises(AskError) as refused:
        AskDocument.from_json({"duration": 3_600} | more)
    assert (refused.value.code, refused.value.param) == (code, param)


def test_another_group_is_a_stronger_change() -> None:
    old = AskDocument.from_json({"groups": GROUPS, "duration": 7_200})
    fewer = AskDocument.from_json({"groups": [GROUPS[0], {"gpu_class": "l40s"}], "duration": 7_200})
    shorter = AskDocument.from_json({"groups": GROUPS, "duration": 3_600})
    strengths = [strength_of(Target(old, "std"), Target(new, "std")) for new in (fewer, shorter)]
    assert strengths == [Strength.STRONGER, Strength.WEAKER]
