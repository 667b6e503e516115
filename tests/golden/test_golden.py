"""The solver answers every golden with the bytes that are stored, and the goldens cover it."""

import dataclasses
import json
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from allocation.solver import Plan, Policy, Question, Snapshot, encode
from allocation.solver.reasons.explain import RULES
from tests.golden.documents import (
    FOLDER,
    canonical,
    difference,
    digest,
    golden_read,
    names,
)
from tests.golden.meaning import compare
from tests.golden.scenes import SCENES

NAMES = names()
FEWEST = 60
MOST_BYTES = 3_000_000
CODES_LEFT_OUT = {
    "stronger_claim": "No step of the solver gives it: pauses have codes of their own.",
}
FIELDS_LEFT_OUT = {"Move.reasons": "All moves of one cycle have the same one."}

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
    known = {(code, *rule) for code, rule in RULES.items()}
    assert found <= known
    assert sorted(code for code, _, _ in known - found) == sorted(CODES_LEFT_OUT)


def test_every_field_of_an_input_and_of_an_answer_has_different_values_somewhere() -> None:
    """A field that is the same in all goldens could be forgotten without a difference."""
    values: dict[str, set[str]] = defaultdict(set)
    for golden in map(read, NAMES):
        for document in (golden.site, golden.policy, golden.question, golden.plan):
            for record in _records(document):
                for row in dataclasses.fields(record):
                    values[f"{type(record).__name__}.{row.name}"].add(
                        repr(getattr(record, row.name))
                    )
    same = sorted(name for name, found in values.items() if len(found) < 2)
    assert same == sorted(FIELDS_LEFT_OUT), "\n".join(same)
    assert {name.split(".")[0] for name in values} >= {
        kind.__name__ for kind in (Snapshot, Policy, Question, Plan)
    }
    assert {golden.kind for golden in map(read, NAMES)} == {"plan", "quote", "proposals"}


def test_meaning_differs_with_a_number_and_not_with_a_sentence() -> None:
    name = next(f"{g.name}.json" for g in map(read, NAMES) if g.plan and g.plan.refusals)
    here = {name: (FOLDER / name).read_bytes()}
    words, numbers = json.loads(here[name]), json.loads(here[name])
    words["answer"]["refusals"][0]["reasons"][0]["sentence"] = "Other words."
    numbers["answer"]["refusals"][0]["reasons"][0]["frees_at"] = 1
    assert compare(here, {name: canonical(words)}) == {}
    assert list(compare(here, {name: canonical(numbers)})) == [name]
    assert compare(here, {}) == {name: "is gone"}


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
