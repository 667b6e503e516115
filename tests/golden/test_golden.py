"""The solver answers every golden with the bytes that are stored, and the goldens cover it."""

import ast
import dataclasses
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from allocation.words.reasons import stored_sentence
from solver import Plan, Policy, QuoteRequest, Snapshot, encode
from solver.reasons.catalogue import BY_CODE, FACTS, TEXTS
from tests.golden.documents import FOLDER, canonical, difference, digest, golden_read, names
from tests.golden.meaning import compare
from tests.golden.scenes import SCENES

NAMES = names()
FEWEST = 60
MOST_BYTES = 3_000_000
SOLVER = Path(__file__).resolve().parents[2] / "solver"
FIELDS_LEFT_OUT = {
    "Move.reasons": "All moves of one cycle have the same one.",
    "Notice.rule": "It matters only with a policy that leaves rules out, in tests of its own.",
    "Plan.dropped": "A pause is dropped only where the rules have a fault.",
    "Plan.format": "All plans are written in the format of today.",
    "Policy.parts": "A part of all classes is compared with the whole policy in random worlds.",
    "QuoteRequest.behind": "Its answer finds it out.",
    "Request.begun": "Its cycle finds it out.",
    "Request.behind": "Its cycle finds it out.",
    "Tier.borrow": "A cycle reads it from its policy.",
}

read = cache(golden_read)


@pytest.mark.parametrize("name", NAMES)
def test_the_answer_has_the_stored_bytes(name: str) -> None:
    golden = read(name)
    answer = golden.solved()
    lines = difference(golden.answer, answer)
    assert not lines, f"{name}: {golden.about}\n{lines}"
    assert digest(answer) == digest(golden.answer)


def test_the_stored_bytes_are_those_of_the_codec() -> None:
    for golden in map(read, NAMES):
        assert encode(golden.site) == golden.snapshot, golden.name
        if golden.plan is not None:
            assert encode(golden.plan) == canonical(golden.answer), golden.name


def test_a_changed_answer_is_told_by_the_lines_that_differ() -> None:
    golden = next(each for each in map(read, NAMES) if each.plan and each.plan.waits)
    answer = json.loads(canonical(golden.answer))
    answer["waits"][0]["starts"] += 1
    lines = difference(golden.answer, answer)
    assert f'-   "starts": {golden.answer["waits"][0]["starts"]}' in lines
    assert len(lines.splitlines()) < 12


def test_there_are_enough_of_them_and_they_are_small() -> None:
    assert len(NAMES) >= FEWEST
    assert [scene.name for scene in SCENES] == sorted(NAMES)
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < MOST_BYTES


def test_every_code_and_rule_of_the_solver_is_in_an_answer() -> None:
    found = {
        (row["code"], row["rule"], row["check"])
        for golden in map(read, NAMES)
        for row in _reasons(golden.answer)
    }
    rules = [BY_CODE[code] for code in _cited()]
    known = {(rule.code, rule.id, rule.check) for rule in rules}
    assert found == known


def test_every_reason_has_the_facts_of_its_rule_and_a_sentence() -> None:
    for golden in map(read, NAMES):
        for row in _reasons(golden.answer):
            rule, facts = BY_CODE[row["code"]], dict(row["numbers"])
            assert facts.keys() >= set(rule.evidence), row
            assert facts.keys() <= {*rule.evidence, *rule.optional}, row
            is_text = {name: isinstance(fact, str) for name, fact in facts.items()}
            assert is_text == {name: FACTS[name] in TEXTS for name in facts}, row
            said = stored_sentence({"code": row["code"], "numbers": facts})
            assert re.fullmatch(r"\w.+\.", said), row


def test_every_field_of_an_input_and_of_an_answer_has_different_values_somewhere() -> None:
    """A field that is the same in all goldens could be forgotten without a difference."""
    values: dict[str, set[str]] = defaultdict(set)
    for golden in map(read, NAMES):
        for document in (golden.site, golden.policy, golden.question, golden.plan):
            for record in _records(document):
                for row in dataclasses.fields(record):
                    values[f"{type(record).__name__}.{row.name}"].add(repr(getattr(record, row.name)))
    same = sorted(name for name, found in values.items() if len(found) < 2)
    assert same == sorted(FIELDS_LEFT_OUT), "\n".join(same)
    assert {name.split(".")[0] for name in values} >= {
        kind.__name__ for kind in (Snapshot, Policy, QuoteRequest, Plan)
    }
    assert {golden.kind for golden in map(read, NAMES)} == {"plan", "quote", "proposals"}


def test_meaning_differs_with_a_fact_and_not_with_what_format_2_has_more() -> None:
    name = next(f"{g.name}.json" for g in map(read, NAMES) if g.plan and g.plan.refusals)
    here = {name: (FOLDER / name).read_bytes()}
    older, other = json.loads(here[name]), json.loads(here[name])
    for row in _reasons(older["answer"]):
        row["sentence"], row["numbers"] = "Words.", row["numbers"][:1]
    del older["answer"]["format"]
    other["answer"]["refusals"][0]["reasons"][0]["frees_at"] = 1
    assert compare({name: canonical(older)}, here) == {}
    assert list(compare(here, {name: canonical(other)})) == [name]
    assert list(compare({name: canonical(older)}, {name: canonical(other)})) == [name]
    assert compare(here, {}) == {name: "is gone"}


def _cited() -> set[str]:
    """The codes that stand in the solver's source, without the catalogue itself."""
    sources = (path for path in SOLVER.rglob("*.py") if path.name != "catalogue.py")
    trees = (ast.parse(path.read_text()) for path in sources)
    texts = (node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {text for text in texts if isinstance(text, str) and text in BY_CODE}


def _reasons(value: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401  JSON
    if isinstance(value, dict):
        if "code" in value and "rule" in value:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _reasons(each)


def _records(value: object) -> Iterator[Any]:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield value
        value = tuple(getattr(value, row.name) for row in dataclasses.fields(value))
    if isinstance(value, tuple):
        for each in value:
            yield from _records(each)
