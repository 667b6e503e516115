"""Conversion of places from and to stored JSON."""

from typing import Any

from allocation.models import Allocation
from solver import Place


def place_of(data: dict[str, Any]) -> Place:
    """The place in stored JSON."""
    return Place(data["gpu"], data["profile"], data["start"], data["size"], data.get("share"))


def place_of_row(row: Allocation) -> Place:
    """The place of an allocation."""
    return Place(str(row.gpu_id), row.profile, row.start, row.size, row.share)


def place_data(place: Place) -> dict[str, Any]:
    """A place as JSON."""
    return {
        "gpu": place.gpu,
        "profile": place.profile,
        "start": place.start,
        "size": place.size,
        "share": place.share,
    }
