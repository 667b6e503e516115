"""An option says what it is less than the ask."""

from dataclasses import replace
from types import MappingProxyType

import pytest

from allocation.rules.ask import AskDocument
from allocation.services.quotes.quote_options import losses
from solver import Option
from tenants.models import Tier

SIZES = MappingProxyType({"h100": 80, "a100-40": 40, "l40s": 48})
STEADY, SPOT = Tier(slug="assured", pausable=False), Tier(slug="spot", pausable=True)
ASKED = AskDocument.from_json({"classes": ["h100"], "duration": 3_600, "count": 2})


def option(**changed: object) -> Option:
    """As asked, but for what is changed."""
    fields = dict.fromkeys(Option.__dataclass_fields__)
    said = {"gpu_class": "h100", "profile": None, "share": None, "count": 2}
    return Option(**(fields | said | changed))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "offered", "words"),
    [
        ({}, {}, []),
        ({}, {"count": 1}, ["1 GPU instead of 2"]),
        ({}, {"gpu_class": "a100-40"}, ["40 GB instead of 80 GB"]),
        ({"count": 1}, {"profile": "1g.10gb", "count": 1}, ["10 GB instead of 80 GB"]),
        (
            {"profile": "2g.20gb"},
            {"profile": "1g.10gb", "count": 1},
            ["1 slice instead of 2", "10 GB instead of 20 GB"],
        ),
        ({"count": 1, "share": 500}, {"count": 1, "share": 250}, ["20 GB instead of 40 GB"]),
        ({"classes": ("h100", "a100-40")}, {"gpu_class": "a100-40"}, []),
        ({"count": 1, "profile": "1g.10gb"}, {"count": 1, "gpu_class": "a100-40"}, []),
    ],
)
def test_what_is_less_is_said(asked: dict[str, object], offered: dict[str, object], words: list[str]) -> None:
    document = replace(ASKED, **asked)  # type: ignore[arg-type]
    assert list(losses(option(**offered), document, (STEADY, STEADY), SIZES)) == words


def test_a_tier_that_may_be_paused_is_less_than_one_that_is_not() -> None:
    assert list(losses(option(), ASKED, (SPOT, STEADY), SIZES)) == ["may be paused"]
    assert list(losses(option(), ASKED, (SPOT, SPOT), SIZES)) == []
    assert list(losses(option(), ASKED, (STEADY, SPOT), SIZES)) == []
