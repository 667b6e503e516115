"""The names of what a change changes, and short texts of before and after."""

from collections.abc import Mapping, Sequence
from typing import Any

from allocation.rules.ask.line.text import shape_text
from allocation.rules.ask.words.times import duration_words
from allocation.words.amounts import class_name
from tenants.platform.labels import labels_text

NAMES = {
    "name": "name",
    "labels": "labels",
    "external_ref": "reference",
    "duration": "length",
    "count": "number",
    "starts": "start",
    "not_before": "earliest start",
    "deadline": "deadline",
    "classes": "GPU class",
    "tier": "tier",
    "pin": "nodes and GPUs",
    "zones": "zones",
    "not_zones": "excluded zones",
    "storage": "storage",
    "scratch": "local space in GB",
    "data": "data sets",
    "profile": "slice",
    "share": "share",
    "cores": "host cores",
    "memory": "memory",
    "workload": "kind of work",
    "together": "distance",
    "required": "distance required",
    "groups": "groups",
}
TIMES = ("starts", "not_before", "deadline")


def differences_text(differences: Mapping[str, Sequence[Any]]) -> str:
    """Returns what changes, such as `length 2 h → 3 h, start`. Times are only named: each page says
    them in the zone of its reader."""
    parts = []
    for name, (before, after) in differences.items():
        title = str(NAMES.get(name, name))
        if name in TIMES:
            parts.append(title)
        else:
            parts.append(f"{title} {value_text(name, before)} → {value_text(name, after)}")
    return ", ".join(parts)


def value_text(name: str, value: Any) -> str:  # noqa: ANN401 (a value of JSON)
    """Returns a value of a request that is no time."""
    if value in (None, "", []):
        return "–"
    if name == "duration":
        return duration_words(value)
    if name == "labels":
        return labels_text(value)
    if name == "groups":
        rows = ((each["count"], class_name(each["gpu_class"]), each["profile"]) for each in value)
        return " + ".join(shape_text(*row) for row in rows)
    if name == "classes":
        return ", ".join(map(class_name, value))
    return ", ".join(value) if isinstance(value, list) else str(value)
