"""The texts of `doctor` stand in one catalogue: agents and the portal print it."""

import ast
import re
from pathlib import Path

import wire
from allocation.words.fleet import check_text
from tests.words.test_refusals import literals, name_of

ROOT = Path(__file__).resolve().parents[2]
MODULES = (
    *sorted((ROOT / "agent/doctor").glob("*.py")),
    ROOT / "agent/report/examination.py",
    ROOT / "devtools/simulated/platform.py",
)
# The names of checks and of what they ask are not texts about what was found.
GIVERS = {"said", "_none"}


def calls() -> list[ast.Call]:
    trees = (ast.parse(file.read_text()) for file in MODULES)
    return [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]


def test_each_text_is_used_and_gets_its_facts() -> None:
    written = "".join(file.read_text() for file in MODULES)
    checked = 0
    for call in calls():
        code = getattr(call.args[0], "value", None) if call.args else None
        if name_of(call) in GIVERS and isinstance(code, str):
            given = {each.arg for each in call.keywords}
            needed = set(re.findall(r"%\((\w+)\)s", wire.CHECK_TEXTS[code]))
            assert None in given or needed <= given, code
            checked += 1
    assert checked > 90
    assert not [code for code in wire.CHECK_TEXTS if f'"{code}"' not in written]


def test_no_check_writes_a_text_of_its_own() -> None:
    found = [
        f"{call.lineno}: {text}"
        for call in calls()
        if name_of(call) in {"Finding", "found"}
        for each in (*call.args, *(given.value for given in call.keywords))
        if not (isinstance(each, ast.Call) and name_of(each) == "said")
        for text in literals(each)
    ]
    assert not found


def test_a_text_has_its_facts_and_an_unknown_one_is_as_the_agent_wrote_it() -> None:
    facts = {"able": "1", "gpus": "8"}
    assert check_text("sliceable", facts, "") == "GPUs that can be sliced: 1 of 8"
    assert check_text("sliceable", {}, "1 of 8") == "1 of 8", "a fact is missing"
    assert check_text("of_a_later_agent", facts, "all is well") == "all is well"
