"""Steps of a checklist on the start page."""

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Step:
    """A step on the page. Without an `href` someone else has to take it."""

    title: str
    text: str
    href: str
    action: str
    is_done: bool
    is_next: bool = False


def with_next(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Returns the steps with the first open one that the reader can take marked as next."""
    following = next((each for each in steps if not each.is_done and each.href), None)
    return tuple(replace(each, is_next=each is following) for each in steps)
