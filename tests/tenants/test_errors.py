"""What a refusal says of itself."""

from typing import get_args

import pytest

from solver.reasons.catalogue import Owner
from tenants.platform.errors import Refused


def owner_text(owner: str | None) -> str:
    return Refused("busy", "It is busy.", owner=owner).owner_text


def test_every_owner_of_the_catalogue_has_words_of_its_own() -> None:
    words = {owner_text(owner) for owner in get_args(Owner)}
    assert len(words) == len(get_args(Owner))
    assert not [word for word in words if word.startswith("set for")]


@pytest.mark.parametrize(("owner", "words"), [(None, ""), ("Helix", "set for Helix")])
def test_a_limit_says_for_whom_it_is_set(owner: str | None, words: str) -> None:
    assert owner_text(owner) == words
