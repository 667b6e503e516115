"""What a booking asks for: the one-line grammar and the structured document, both strict."""

from allocation.rules.ask.line.grammar import LONGEST_TEXT, parse_ask
from allocation.rules.ask.words.document import (
    LONGEST_SECONDS,
    MOST_COUNT,
    SHORTEST_SECONDS,
    AskDocument,
    Together,
    beside_of,
    count_of,
    duration_of,
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
    "LONGEST_SECONDS",
    "LONGEST_TEXT",
    "MOST_COUNT",
    "SHORTEST_SECONDS",
    "AskDocument",
    "Catalogue",
    "ClassEntry",
    "Parsed",
    "Part",
    "Problem",
    "Repair",
    "TierEntry",
    "Together",
    "beside_of",
    "count_of",
    "duration_of",
    "parse_ask",
    "pin_of",
    "share_of",
    "time_text",
]
