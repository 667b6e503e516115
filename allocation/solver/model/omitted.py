"""Fields that the canonical bytes leave out when they are empty."""

from typing import Any

OMITTED_WHEN_EMPTY: dict[str, Any] = {"said": True}
"""Metadata of a field that is written only when it is not empty, so that older documents keep their
bytes."""
