"""Steps of a checklist on the start page."""

from collections.abc import Sequence
from dataclasses import replace

from allocation.points.people import Step


def with_next(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Returns the steps with the first open one that the reader can take marked as next."""
    following = next((each for each in steps if not each.is_done and each.href), None)
    return tuple(replace(each, is_next=each is following) for each in steps)
