"""The point by which pages and REST read how versions of the policy are tried."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class PolicyTried:
    """How a version is tried: `stage` is what is under way now, if anything; `trial` is what its last trial
    on the past found, in words, and `href` is the page of that trial."""

    stage: str = ""
    trial: str = ""
    href: str = ""


PoliciesTried: TypeAlias = Callable[[], Mapping[int, PolicyTried]]

UNTRIED = PolicyTried()
POLICIES_TRIED: list[PoliciesTried] = []
"""Each returns how versions of the policy are tried, by number."""


def policies_tried() -> dict[int, PolicyTried]:
    """Returns how each version is tried; a later feature goes first."""
    return {number: tried for read in POLICIES_TRIED for number, tried in read().items()}
