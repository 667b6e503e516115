"""Bounds of arrays."""

MOST_ELEMENTS = 10_000
MOST_PARALLEL = 1_000
"""Elements that are open at a time."""
