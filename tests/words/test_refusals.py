"""The sentences of refusals of the lower apps: each is used, and gets its facts."""

import ast
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from billing import words as billing_words
from tenants import words as tenants_words

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("app", "sentences"),
    [
        ("tenants", tenants_words._SENTENCES),
        ("billing", billing_words._SENTENCES),
    ],
)
def test_each_sentence_is_used_and_gets_its_facts(
    app: str, sentences: Mapping[str, object]
) -> None:
    used = set()
    constants = set()
    for path in (ROOT / app).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and "words" not in (*path.parts, path.stem):
                constants.add(node.value)
            if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "refusal_text"):
                continue
            if isinstance(node.args[0], ast.Constant):
                code = str(node.args[0].value)
                used.add(code)
                text, given = sentences[code], {each.arg for each in node.keywords}
                if None not in given and not callable(text):
                    needed = re.findall(r"%\((\w+)\)s", str(text))
                    assert set(needed) <= given, code
    assert len(used) > 45
    assert sentences.keys() <= used | constants
