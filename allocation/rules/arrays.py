"""Bounds of arrays, and when the last of their runs ends."""

from datetime import datetime, timedelta

MOST_ELEMENTS = 10_000
MOST_PARALLEL = 1_000
"""Elements that are open at a time."""


def last_end(first: datetime, seconds: int, count: int, at_once: int) -> datetime:
    """The end of the last of `count` runs, if `at_once` of them run one after the other from the
    first start on."""
    rounds = -(-count // max(1, at_once))
    return first + timedelta(seconds=rounds * seconds)
