"""What the canonical bytes have of a field: nothing when it is empty, or another name."""

from typing import Any

OMITTED_WHEN_EMPTY: dict[str, Any] = {"said": True}
"""Metadata of a field that is written only when it is not empty, so that older documents keep their
bytes."""


def written_as(name: str) -> dict[str, Any]:
    """Metadata of a field that documents have by another name, so that they keep their bytes."""
    return {"written_as": name}
