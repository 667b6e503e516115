"""Labels, which are key-value pairs for people and programs, and references to tickets."""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from tenants.platform.errors import Refused, invalid
from tenants.platform.text import first_invisible, invisible_sentence
from tenants.platform.words import refusal_text

MAX_LABELS = 32
MAX_KEY = 63
MAX_VALUE = 100
MAX_REFERENCE = 500
MAX_TEXT = MAX_LABELS * (MAX_KEY + MAX_VALUE + 3)
"""The longest text that `labels_text` writes."""

Row = TypeVar("Row", bound=Model)
_KEY = re.compile(r"[a-z0-9]([a-z0-9._/-]{0,61}[a-z0-9])?")
_REFERENCE = re.compile(r"[^\s]{1,500}")
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
# Tags that charges have anyway.
RESERVED = ("campaign", "person", "tier")


def labels_check(labels: Mapping[str, str], param: str = "labels") -> dict[str, str]:
    """Returns the labels, sorted by key, in Unicode's composed form.

    Raises:
        Refused: `too_many_labels` or `bad_label`; `param` is the field.
    """
    if len(labels) > MAX_LABELS:
        raise invalid(
            "too_many_labels",
            refusal_text("too_many_labels", labels=len(labels), max_labels=MAX_LABELS),
            param,
        )
    return {key: _value(key, labels[key], param) for key in sorted(labels)}


def is_label_key(key: str) -> bool:
    """Whether a label may have the key."""
    return _KEY.fullmatch(key) is not None


def labels_read(text: str, param: str = "labels") -> dict[str, str]:
    """Returns the labels of a text such as `team=vision, run=7`.

    Raises:
        Refused: `bad_label` or `too_many_labels`.
    """
    found: dict[str, str] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        key, equals, value = (each.strip() for each in part.partition("="))
        if not equals or key in found:
            fault = "label_twice" if equals else "label_empty"
            raise _bad(refusal_text(fault, key=key[:MAX_KEY]), param)
        found[key] = value
    return labels_check(found, param)


def labels_text(labels: Mapping[str, str]) -> str:
    """Returns the labels as `labels_read` reads them."""
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))


def reference_check(text: str, param: str = "external_ref") -> str:
    """Returns the reference: a URL or a ticket's key.

    Raises:
        Refused: `bad_reference`.
    """
    scheme = _SCHEME.match(text)
    if text and not _REFERENCE.fullmatch(text):
        sentence = refusal_text("bad_reference", max_reference=MAX_REFERENCE)
        raise invalid("bad_reference", sentence, param)
    if scheme and scheme[1].lower() not in ("http", "https"):
        raise invalid("bad_reference", refusal_text("reference_scheme"), param)
    return text


def labelled(rows: QuerySet[Row], query: Mapping[str, Any]) -> QuerySet[Row]:
    """The rows that have all labels of `label` and the `external_ref` of a query.

    Raises:
        Refused: `bad_label`.
    """
    if query.get("label"):
        rows = rows.filter(labels__contains=labels_read(query["label"], "label"))
    if query.get("external_ref"):
        rows = rows.filter(external_ref=query["external_ref"])
    return rows


def reference_link(text: str) -> str:
    """Returns the address to open for a reference; "" for one that is no URL."""
    return text if text.lower().startswith(("https://", "http://")) else ""


@extend_schema_field(
    {
        "type": "object",
        "additionalProperties": {"type": "string", "minLength": 1, "maxLength": MAX_VALUE},
        "maxProperties": MAX_LABELS,
    }
)
class Labels(serializers.Field[dict[str, str], Any, dict[str, str], Any]):
    """Labels of a JSON body: an object whose values are text."""

    def to_internal_value(self, data: Any) -> dict[str, str]:  # noqa: ANN401 (the framework's signature)
        """The labels. Raises ValidationError."""
        if not isinstance(data, dict) or not all(isinstance(each, str) for each in data.values()):
            raise serializers.ValidationError(refusal_text("labels_type"), code="wrong_type")
        try:
            return labels_check(data)
        except Refused as refusal:
            raise serializers.ValidationError(refusal.sentence, code=refusal.code) from None

    def to_representation(self, value: dict[str, str]) -> dict[str, str]:
        """The labels, sorted by key."""
        return dict(sorted(value.items()))


class Reference(serializers.CharField):
    """A URL or a ticket's key."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 (the framework's options)
        super().__init__(**{"max_length": MAX_REFERENCE, "allow_blank": True, **options})

    def to_internal_value(self, data: Any) -> str:  # noqa: ANN401 (the framework's signature)
        """The reference. Raises ValidationError."""
        if not isinstance(data, str):
            self.fail("invalid")
        text = super().to_internal_value(data)
        if hidden := first_invisible(text):
            raise serializers.ValidationError(invisible_sentence(hidden), code="bad_text")
        try:
            return reference_check(text)
        except Refused as refusal:
            raise serializers.ValidationError(refusal.sentence, code=refusal.code) from None


def _value(key: str, value: str, param: str) -> str:
    if not _KEY.fullmatch(key):
        raise _bad(refusal_text("label_key", max_key=MAX_KEY), param)
    if key in RESERVED:
        raise _bad(refusal_text("label_reserved", key=key), param)
    text = unicodedata.normalize("NFC", value).strip()
    if hidden := first_invisible(text):
        raise invalid("bad_text", invisible_sentence(hidden), param)
    if not 1 <= len(text) <= MAX_VALUE or "," in text:
        raise _bad(refusal_text("label_value", key=key, max_value=MAX_VALUE), param)
    return text


def _bad(sentence: str, param: str) -> Refused:
    return invalid("bad_label", sentence, param)
