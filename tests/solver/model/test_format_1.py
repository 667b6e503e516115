"""Plans that an older portal stored, with sentences in them, are read and compared by meaning."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from solver import Plan, decode, encode
from solver.model.format_1 import is_format_1, is_same_meaning, raised

STORED = Path(__file__).with_name("plan_of_format_1.json").read_bytes()
"""The bytes of a decision that a portal with plan format 1 has stored."""
OLDER = json.loads(STORED)


def newer() -> Any:  # noqa: ANN401  JSON
    """What format 2 has for the same plan: no sentences, a fact more in each reason."""
    plan = json.loads(encode(decode(Plan, STORED)))
    for answer in (*plan["assigns"], *plan["waits"], *plan["refusals"]):
        for reason in answer["reasons"]:
            reason["numbers"] = sorted([*reason["numbers"], ["zone", "west"]])
    return plan | {"format": 2}


def test_a_stored_plan_of_format_1_is_read_without_its_sentences() -> None:
    plan = decode(Plan, STORED)
    assert is_format_1(OLDER)
    assert plan.format == 1
    sizes = (len(plan.assigns), len(plan.waits), len(plan.refusals))
    assert sizes == tuple(len(OLDER[name]) for name in ("assigns", "waits", "refusals"))
    assert min(sizes) > 0
    assert b"sentence" not in encode(plan)
    found = {
        dict(why.numbers)["level"]
        for each in plan.refusals
        for why in each.reasons
        if why.code == "gpus_busy"
    }
    assert found == {"any"}, "format 1 said `class` under the name `group`"
    again = decode(Plan, encode(plan))
    assert (again, is_format_1(json.loads(encode(again)))) == (plan, False)


def test_facts_that_came_later_change_no_meaning() -> None:
    assert is_same_meaning(OLDER, newer())


@pytest.mark.parametrize(
    "place",
    [
        ("assigns", 0, "starts"),
        ("assigns", 0, "places", 0, "gpu"),
        ("assigns", 0, "reasons", 0, "code"),
        ("waits", 0, "reasons", 0, "frees_at"),
        ("refusals", 0, "reasons", 0, "check"),
        ("refusals", 0, "reasons", 0, "numbers", 0, 1),
    ],
)
def test_every_other_difference_is_one_of_meaning(place: tuple[str | int, ...]) -> None:
    changed = newer()
    spot: Any = changed
    for step in place[:-1]:
        spot = spot[step]
    assert spot[place[-1]] != "other"
    spot[place[-1]] = "other"
    assert not is_same_meaning(OLDER, changed)


def test_what_is_missing_in_the_newer_plan_is_a_difference() -> None:
    short, facts = newer(), newer()
    del short["waits"][-1]
    facts["refusals"][0]["reasons"][0]["numbers"] = [["zone", "west"]]
    assert any(each["numbers"] for each in raised(deepcopy(OLDER))["refusals"][0]["reasons"][:1])
    assert not is_same_meaning(OLDER, short)
    assert not is_same_meaning(OLDER, facts)
