"""Requests for GPUs: the one-line grammar and the structured document. Both are strict."""

from allocation.rules.ask.line.grammar import MAX_TEXT_LENGTH, parse_ask
from allocation.rules.ask.words.document import (
    MAX_COUNT,
    MAX_DURATION_SECONDS,
    MIN_DURATION_SECONDS,
    AskDocument,
    AskGroup,
    Together,
    classes_asked,
    count_asked,
    count_of,
    duration_of,
    host_resource_of,
    pin_of,
    share_of,
    time_text,
)
from allocation.rules.ask.words.parsed import (
    Catalogue,
    ClassEntry,
    Parsed,
    Part,
    Problem,
    Repair,
    TierEntry,
)

__all__ = [
    "MAX_COUNT",
    "MAX_DURATION_SECONDS",
    "MAX_TEXT_LENGTH",
    "MIN_DURATION_SECONDS",
    "AskDocument",
    "AskGroup",
    "Catalogue",
    "ClassEntry",
    "Parsed",
    "Part",
    "Problem",
    "Repair",
    "TierEntry",
    "Together",
    "classes_asked",
    "count_asked",
    "count_of",
    "duration_of",
    "host_resource_of",
    "parse_ask",
    "pin_of",
    "share_of",
    "time_text",
]
