"""The sentences of refusals stand in catalogues: each is used, gets its facts, and none is raised
from elsewhere."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from allocation.words import asks, request_refusals, site_refusals
from allocation.words import refusals as allocation_words
from billing import words as billing_words
from portal import words as portal_words
from tenants import words as tenants_words
from tenants.platform import words as platform_words

ROOT = Path(__file__).resolve().parents[2]
APPS = ("portal", "tenants", "billing", "allocation")
CATALOGUES: dict[str, Mapping[str, object]] = {
    each.__name__: each._SENTENCES
    for each in (allocation_words, billing_words, portal_words, tenants_words, platform_words)
}
LOOKUPS = {"refusal_text", "coded", "_fault", "BadTarget", "BadChatUrl", "BadMessage"}
# What is raised, or collected to be raised, with a text for people.
RAISED = {
    "Refused",
    "invalid",
    "denied",
    "AskError",
    "Problem",
    "add_problem",
    "ValidationError",
    "BadTarget",
    "BadChatUrl",
    "BadMessage",
    "ProviderFault",
    "_refuse",
    "_bad",
    "_fault",
    "_refused_time",
    "_rule_refusal",
    "fault",
}
# Programs of operators write to their own console, and the parsers of its file are theirs.
CONSOLES = {"management", "migrations", "checks", "site"}
OWNERS = {"the platform"}
# Mails, notifications and comments have texts of their own, which nobody raises.
TEXTS = {"mail", "notifications", "jira"}


# Only modules with one of these are parsed.
_MARKS = re.compile(rf"\b(?:{'|'.join(sorted(LOOKUPS | RAISED | {'missing', 'ids?_read'}))})\(|\bsentence =")


@cache
def texts() -> dict[Path, str]:
    """The modules of all apps, without migrations and catalogues."""
    paths = [path.relative_to(ROOT) for app in APPS for path in sorted((ROOT / app).rglob("*.py"))]
    return {
        path: (ROOT / path).read_text()
        for path in paths
        if "migrations" not in path.parts and "words" not in (path.parts[1], path.stem)
    }


@cache
def sources() -> dict[Path, list[ast.AST]]:
    """The calls, assignments and imports of each module that gives or raises a sentence."""
    kinds = (ast.Call, ast.Assign, ast.ImportFrom)
    return {
        path: [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
        for path, text in texts().items()
        if _MARKS.search(text)
    }


def name_of(call: ast.Call) -> str:
    return getattr(call.func, "id", "") or getattr(call.func, "attr", "")


def catalogue_of(path: Path, nodes: Iterable[ast.AST]) -> str:
    """The catalogue that a module names, or that of its app for pure code."""
    for node in nodes:
        if not isinstance(node, ast.ImportFrom) or node.module not in CATALOGUES:
            continue
        if "refusal_text" in {each.name for each in node.names}:
            return node.module
    return {"allocation": "allocation.words.refusals"}.get(path.parts[0], f"{path.parts[0]}.words")


def literals(node: ast.AST) -> Iterator[str]:
    """The texts with a space in an expression, without those of a look-up in a catalogue."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str) and " " in node.value.strip():
            yield node.value
        return
    if isinstance(node, ast.keyword) and node.arg == "help_text":
        return
    if isinstance(node, ast.Call) and (
        name_of(node).endswith(("_text", "_sentence")) or name_of(node) in {"coded", "Repair"}
    ):
        return
    for child in ast.iter_child_nodes(node):
        yield from literals(child)


def test_each_sentence_is_used_and_gets_its_facts() -> None:
    used: dict[str, set[str]] = {name: set() for name in CATALOGUES}
    begun = {"?"}
    for path, nodes in sources().items():
        name = catalogue_of(path, nodes)
        for node in nodes:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.JoinedStr):
                begun.add(str(getattr(node.value.values[0], "value", "?")))
            if not (isinstance(node, ast.Call) and name_of(node) in LOOKUPS and node.args):
                continue
            if isinstance(node.args[0], ast.JoinedStr):
                begun.add(str(getattr(node.args[0].values[0], "value", "?")))
            code = getattr(node.args[0], "value", None)
            if isinstance(code, str):
                text, given = CATALOGUES[name][code], {each.arg for each in node.keywords}
                used[name].add(code)
                if None not in given and not callable(text):
                    needed = set(re.findall(r"%\((\w+)\)s", str(text))) - given
                    assert {re.sub("_(gpus|grouped)$", "", each) for each in needed} <= given, (
                        f"{path}: {code}"
                    )
    assert min(map(len, used.values())) > 25
    # A code can be given in a variable, and be composed.
    written = "".join(texts().values())
    assert not {
        name: missing
        for name, sentences in CATALOGUES.items()
        if (
            missing := {
                code
                for code in sentences.keys() - used[name]
                if not code.startswith(tuple(begun)) and f'"{code}"' not in written
            }
        )
    }


def test_no_code_stands_twice_in_the_parts_of_a_catalogue() -> None:
    parts = (asks.SENTENCES, request_refusals.SENTENCES, site_refusals.SENTENCES)
    codes = [code for part in parts for code in part]
    assert len(codes) == len(set(codes))


def test_each_noun_of_a_missing_object_stands_in_the_catalogue() -> None:
    nouns = {
        noun.value
        for nodes in sources().values()
        for node in nodes
        if isinstance(node, ast.Call)
        for called, place in (("missing", 0), ("id_read", 2), ("ids_read", 2))
        if name_of(node) == called and len(node.args) > place
        for noun in node.args[place : place + 1]
        if isinstance(noun, ast.Constant)
    }
    assert nouns <= platform_words.NOUNS.keys()
    assert len(nouns) > 40


def raised(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The sentences that are written where they are raised."""
    for node in nodes:
        found: list[ast.AST] = []
        if isinstance(node, ast.Call) and name_of(node) in RAISED:
            found = [*node.args, *(each.value for each in node.keywords)]
        elif isinstance(node, ast.Assign) and {"sentence"} & {
            getattr(each, "id", "") for each in node.targets
        }:
            found = [node.value]
        yield from (f"{getattr(node, 'lineno', 0)}: {text}" for each in found for text in literals(each))


def test_no_sentence_is_raised_from_outside_of_a_catalogue() -> None:
    found = [
        f"{path}:{text}"
        for path, nodes in sources().items()
        if not CONSOLES & {*path.parts} and not (path.parts[1] == "integrations" and path.parts[2] in TEXTS)
        for text in raised(nodes)
        if text.partition(": ")[2] not in OWNERS
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        'raise Refused("busy", "The portal is busy.")',
        'raise invalid("bad", f"At most {most} rows.", "rows")',
        'sentence = f"At most {most} rows."',
        'raise serializers.ValidationError({"rows": ["Too many rows."]}, code="bad")',
        'reading.add_problem("no_day", "Add a day." if day else coded("no_month"), span)',
    ],
)
def test_a_sentence_that_is_raised_is_found(source: str) -> None:
    assert len(list(raised(ast.walk(ast.parse(source))))) == 1
    looked_up = 'raise Refused("busy", refusal_text("busy", by="a b"))'
    assert not list(raised(ast.walk(ast.parse(looked_up))))


@pytest.mark.parametrize(
    ("code", "facts", "one", "two"),
    [
        (
            "too_many_open",
            {"limit": 1, "tier": "Spot", "found": 1},
            "1 open booking in",
            "2 open bookings in",
        ),
        ("too_many_gpus", {"limit": 1, "tier": "Spot", "asked": 2}, "1 GPU together", "2 GPUs together"),
        (
            "gpu_hours",
            {"name": "You", "limit": 1, "gpu_class": "h100", "days": 1, "asked": 3},
            "1 GPU-hour of h100 in any day;",
            "2 GPU-hours of h100 in any 2 days;",
        ),
        ("paused_enough", {"count": 1, "tier": "Spot"}, "1 time,", "2 times,"),
        ("too_many_replays", {"count": 1}, "1 replay is", "2 replays are"),
        ("too_many_quotes_page", {"most": 9, "in_seconds": 9, "wait": 1}, "in 1 second.", "in 2 seconds."),
    ],
)
def test_one_is_not_in_the_plural(code: str, facts: Mapping[str, object], one: str, two: str) -> None:
    def said(facts: Mapping[str, object]) -> str:
        if code == "paused_enough":
            return site_refusals.bulk_refusal(code, **facts)
        return allocation_words.refusal_text(code, **facts)

    assert one in said(facts)
    assert two in said({name: 2 if amount == 1 else amount for name, amount in facts.items()})
