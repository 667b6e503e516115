"""The names of what a change changes, and short texts of before and after."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.translation import gettext_lazy

from allocation.rules.ask.line.text import shape_text
from allocation.rules.ask.words.times import duration_words
from allocation.words.amounts import class_name
from tenants.platform.labels import labels_text

NAMES = {
    "name": gettext_lazy("name"),
    "labels": gettext_lazy("labels"),
    "external_ref": gettext_lazy("reference"),
    "duration": gettext_lazy("length"),
    "count": gettext_lazy("number"),
    "starts": gettext_lazy("start"),
    "not_before": gettext_lazy("earliest start"),
    "deadline": gettext_lazy("deadline"),
    "classes": gettext_lazy("GPU class"),
    "tier": gettext_lazy("tier"),
    "pin": gettext_lazy("nodes and GPUs"),
    "zones": gettext_lazy("zones"),
    "not_zones": gettext_lazy("excluded zones"),
    "storage": gettext_lazy("storage"),
    "scratch": gettext_lazy("local space in GB"),
    "data": gettext_lazy("data sets"),
    "profile": gettext_lazy("slice"),
    "share": gettext_lazy("share"),
    "cores": gettext_lazy("host cores"),
    "memory": gettext_lazy("memory"),
    "workload": gettext_lazy("kind of work"),
    "together": gettext_lazy("distance"),
    "required": gettext_lazy("distance required"),
    "groups": gettext_lazy("groups"),
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
