"""Labels and references as chips that filter the list of bookings."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from tenants.platform.labels import reference_link


def labels_context(labels: Mapping[str, str], reference: str) -> dict[str, Any]:
    """Returns what the chips of a booking or a series show."""
    pairs = [f"{key}={value}" for key, value in sorted(labels.items())]
    return {
        "chips": [{"text": text, "query": urlencode({"label": text})} for text in pairs],
        "ticket": {
            "text": reference,
            "link": reference_link(reference),
            "query": urlencode({"external_ref": reference}),
        },
    }
