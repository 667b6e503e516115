"""Data sets in a request: in one line, in the structured form, and back."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from allocation.errors import AskError
from allocation.rules.ask import AskDocument, Catalogue, ClassEntry, Parsed, TierEntry, parse_ask
from allocation.rules.ask.line.text import document_text
from wire import DATA_PATTERN

NOW = datetime(2026, 11, 26, 14, 23, tzinfo=UTC)
CATALOGUE = Catalogue(
    classes=(
        ClassEntry("h100", "H100 80 GB", (), 80_000, ("1g.10gb",)),
        ClassEntry("l40s", "L40S 48 GB", (), 48_000, ()),
    ),
    tiers=(TierEntry("spot", "Spot", pausable=True),),
    data=("coco-2017", "genomes", "imagenet"),
)


def parsed(text: str, catalogue: Catalogue = CATALOGUE) -> Parsed:
    return parse_ask(text, catalogue=catalogue, now=NOW, zone=ZoneInfo("Europe/Zurich"))


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("2 h100 for 3h with imagenet", ("imagenet",)),
        ("2 h100 with imagenet for 3h", ("imagenet",)),
        ("with imagenet 2 h100 3h", ("imagenet",)),
        ("2 h100 3h with ImageNet", ("imagenet",)),
        ("2 h100 3h with the imagenet data set", ("imagenet",)),
        ("2 h100 3h near imagenet.", ("imagenet",)),
        ("2 h100 3h with imagenet and coco-2017", ("coco-2017", "imagenet")),
        ("2 h100 3h with imagenet, coco-2017 and genomes", ("coco-2017", "genomes", "imagenet")),
        ("2 h100 3h with imagenet and 16 cores", ("imagenet",)),
        ("2 h100 3h with data my.own_set", ("my.own_set",)),
        ("2 h100 3h with data a,b,h100", ("a", "b", "h100")),
        ("1 h100 + 2 l40s 3h with imagenet", ("imagenet",)),
        ("array of 20: 1 h100 3h with imagenet", ("imagenet",)),
        ("1 h100 every monday 9-12 for 4 weeks with imagenet", ("imagenet",)),
    ],
)
def test_a_line_names_data(text: str, data: tuple[str, ...]) -> None:
    found = parsed(text)
    assert found.problems == ()
    assert found.data == data
    assert any(part.field == "data" for part in found.parts)
    assert found.document(first=True, many=True).data == data


@pytest.mark.parametrize(
    "text",
    [
        "2 h100 3h with 16 cores",
        "2 h100 with nvlink 3h",
        "1 h100 with 80 gb 3h",
        "2 h100 3h with spot",
        "1 gpu with at least 40 gb 3h",
    ],
)
def test_other_words_after_with_keep_their_meaning(text: str) -> None:
    found = parsed(text)
    assert found.problems == ()
    assert found.data == ()


@pytest.mark.parametrize("text", ["2 h100 3h with pytorch", "2 h100 3h with imagenet and pytorch"])
def test_a_name_that_no_node_has_is_not_understood(text: str) -> None:
    assert [each.code for each in parsed(text).problems] == ["not_understood"]


def test_a_misspelt_name_is_understood_or_offered() -> None:
    found = parsed("2 h100 3h with imagnet")
    assert found.data == ("imagenet",) or found.problems[0].repairs


def test_too_many_and_wrong_names_are_refused() -> None:
    names = ",".join(f"set{number}" for number in range(9))
    assert [each.code for each in parsed(f"2 h100 3h with data {names}").problems] == ["not_a_list"]
    body = {"classes": ["h100"], "duration": 3600}
    for wrong in ("imagenet", ["ImageNet"], ["a/b"], [3], [""], ["x" * 65], ["a"] * 9, None, {"a": 1}):
        with pytest.raises(AskError) as refused:
            AskDocument.from_json({**body, "data": wrong})
        assert refused.value.param == "data"


def test_the_document_keeps_names_sorted_and_once_and_leaves_none_out() -> None:
    body = {"classes": ["h100"], "duration": 3600}
    found = AskDocument.from_json({**body, "data": ["b", "a", "b"]})
    assert found.data == ("a", "b")
    assert found.to_json()["data"] == ["a", "b"]
    assert AskDocument.from_json(found.to_json()) == found
    assert "data" not in AskDocument.from_json(body).to_json()


@pytest.mark.parametrize(
    "data", [["imagenet"], ["h100", "monday", "nods", "today"], ["1g.10gb", "9-12", "coco-2017"]]
)
def test_the_line_of_a_document_parses_to_it_without_a_catalogue_of_data(data: list[str]) -> None:
    document = AskDocument.from_json({"classes": ["h100"], "duration": 3600, "data": data})
    line = document_text(document, UTC)
    again = parsed(line, Catalogue(classes=CATALOGUE.classes))
    assert again.problems == ()
    assert again.document() == document


def test_mixed_requests_may_name_data() -> None:
    groups = [{"gpu_class": "h100"}, {"gpu_class": "l40s", "count": 2}]
    document = AskDocument.from_json({"groups": groups, "duration": 3600, "data": ["imagenet"]})
    assert document.data == ("imagenet",)
    assert parsed(document_text(document, UTC)).document() == document


def test_names_are_those_that_nodes_may_report() -> None:
    from allocation.rules.ask.words import document  # noqa: PLC0415 (its private pattern)

    assert document._DATA.pattern == DATA_PATTERN
