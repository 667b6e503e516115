"""Sentences about nodes and GPUs stand in the catalogue, and each one is used."""

import ast
import re
from pathlib import Path
from typing import get_args

from allocation.services.operate.portal_modes import LeaseState
from allocation.words.fleet import SENTENCES, escalation_words, fleet_sentence

SERVICES = Path(__file__).resolve().parents[2] / "allocation/services"
FACTS = re.compile(r"%\((\w+)\)s")


def calls() -> list[ast.Call]:
    trees = (ast.parse(file.read_text()) for file in sorted(SERVICES.rglob("*.py")))
    return [
        node
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "fleet_sentence"
    ]


def test_each_code_has_a_sentence_and_each_sentence_is_used() -> None:
    words = {
        node.value
        for file in SERVICES.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant)
    }
    leases = {f"lease_{state}" for state in get_args(LeaseState)}
    assert leases <= SENTENCES.keys()
    assert SENTENCES.keys() - leases <= words
    used = {call.args[0].value for call in calls() if isinstance(call.args[0], ast.Constant)}
    assert used <= SENTENCES.keys()


def test_each_call_gives_the_facts_of_its_sentence() -> None:
    checked = 0
    for call in calls():
        given = {each.arg for each in call.keywords}
        if isinstance(call.args[0], ast.Constant) and None not in given:
            code = str(call.args[0].value)
            text = str(SENTENCES[code] % dict.fromkeys(given, 1))
            assert not FACTS.search(text)
            checked += 1
    assert checked > 15


def test_a_sentence_has_a_plural_and_is_written_out() -> None:
    one = fleet_sentence("processes_without_booking", processes=1, users="eve")
    two = fleet_sentence("processes_without_booking", processes=2, users="eve")
    assert (one, two) == (
        "1 process without a booking: eve.",
        "2 processes without a booking: eve.",
    )
    assert escalation_words(120, None) == (
        "Processes without a booking are reported, warned after 2 min."
    )
