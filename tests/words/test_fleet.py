"""Sentences about nodes and GPUs stand in the catalogue, and each one is used."""

import ast
import json
import re
from pathlib import Path
from typing import get_args

import pytest

from allocation.rules.nodes.health import ECCS, RECOVERIES, UNKNOWN, XIDS
from allocation.services.operate.portal_modes import LeaseState
from allocation.words.events import event_sentence, event_text
from allocation.words.fleet import (
    SENTENCES,
    escalation_text,
    escalation_words,
    fleet_sentence,
    fleet_text,
    locked_out_text,
    mode_text,
)

ALLOCATION = Path(__file__).resolve().parents[2] / "allocation"
FILES = [each for part in ("services", "features") for each in sorted((ALLOCATION / part).rglob("*.py"))]
FACTS = re.compile(r"%\((\w+)\)s")


def calls() -> list[ast.Call]:
    trees = (ast.parse(file.read_text()) for file in FILES)
    return [
        node
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "fleet_text"
    ]


def test_each_code_has_a_sentence_and_each_sentence_is_used() -> None:
    words = {
        node.value
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant)
    }
    leases = {f"lease_{state}" for state in get_args(LeaseState)}
    causes = {each.cause for table in (XIDS, RECOVERIES, ECCS) for each in table.values()}
    causes |= {UNKNOWN.cause, mode_text("whole").code, mode_text("sliced").code}
    causes |= {escalation_text(None, None).code, locked_out_text("").code}
    assert leases <= SENTENCES.keys()
    assert SENTENCES.keys() - leases - causes <= words
    used = {call.args[0].value for call in calls() if isinstance(call.args[0], ast.Constant)}
    assert used <= SENTENCES.keys()


def test_each_call_gives_the_facts_of_its_sentence() -> None:
    checked = 0
    for call in calls():
        given = {each.arg for each in call.keywords}
        if isinstance(call.args[0], ast.Constant) and None not in given:
            code = str(call.args[0].value)
            text = fleet_sentence({"fleet": code, "facts": dict.fromkeys(given, 1)})
            assert not FACTS.search(text)
            checked += 1
    assert checked > 15


def test_a_sentence_has_a_plural_and_is_written_out() -> None:
    one = fleet_text("processes_without_booking", processes=1, users="eve")
    two = fleet_text("processes_without_booking", processes=2, users="eve")
    assert (str(one), str(two)) == (
        "1 process without a booking: eve.",
        "2 processes without a booking: eve.",
    )
    assert escalation_words(120, None) == ("Processes without a booking are reported, warned after 2 min.")


def test_a_stored_text_is_read_in_the_language_of_its_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cause = fleet_text("xid_79")
    text = fleet_text("hardware_error", error=fleet_text("xid", number=79), cause=cause)
    stored = json.loads(json.dumps(text.data()))
    event = event_text("gpu_out", index=1, node="n1", why=text)
    kept = json.loads(json.dumps(event.data()))
    assert fleet_sentence(stored) == "Xid 79: the GPU has fallen off the bus."
    assert str(event) == event_sentence(kept)
    assert event_sentence(kept) == ("GPU 1 of n1 is out of service: Xid 79: the GPU has fallen off the bus.")
    # Another language.
    monkeypatch.setitem(SENTENCES, "xid_79", lambda facts: "die GPU antwortet nicht")
    assert fleet_sentence(stored) == "Xid 79: die GPU antwortet nicht."
    assert "die GPU" in event_sentence(kept)
    # A row of an older version has its sentence only.
    assert fleet_sentence("GPU 8 is new.") == "GPU 8 is new."


def test_a_fact_of_an_agent_is_cut() -> None:
    text = fleet_text("mode_stuck", error="x" * 5_000)
    assert len(json.dumps(text.data())) < 400
