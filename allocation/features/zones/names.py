"""Whether a request line can name something: not by words that mean something else in it."""

import re
from collections.abc import Sequence
from dataclasses import replace

from allocation.rules.ask.line.tokens import plain, tokens_of
from allocation.rules.ask.words.names import Names, key_of, names_of
from allocation.rules.ask.words.parsed import Catalogue
from allocation.rules.ask.words.respelling import respelled

_MONTHS = "january february march april may june july august september october november december"
# What can follow an `in` or `at`, where a zone is named.
_AFTER_IN = (
    "in the same rack",
    "in one rack",
    "in the same node",
    "in one node",
    "in the morning",
    "in the afternoon",
    "in the evening",
    "in 2 hours",
    "in half an hour",
    "in total",
    "in parallel",
    "at night",
    "at noon",
    "at midnight",
    "at the weekend",
    "at most 2h",
    "at least 2h",
    "at once",
    "at 10:30",
    "at the latest 10:00",
    "at 2pm",
    "at 9 o'clock",
    *(f"in {month}" for month in _MONTHS.split()),
)


def word_of_lines(name: str, site: Catalogue, others: Sequence[tuple[str, str]] = ()) -> str:
    """The word of a zone's slug or name that a request line reads as something else; empty: none.

    `others`: slugs and names of the other zones.
    """
    without = names_of(replace(site, zones=()))
    if key_of(name) in {key_of(each) for pair in others for each in pair}:
        return name
    if _is_read(name, without) or _is_read(f"in {name}", without):
        return name
    named = names_of(replace(site, zones=((name, name),)))
    if any(_kinds(each, named) != _kinds(each, without) for each in _AFTER_IN):
        return name
    return next((word for word in re.findall(r"[^\W\d_]{2,}", name.lower()) if _is_german(word, without)), "")


def _is_read(text: str, names: Names) -> bool:
    return "UNKNOWN" not in _kinds(text, names)


def _is_german(word: str, names: Names) -> bool:
    """Whether the word is read as another one. As a part of a name it would no longer be, in all lines."""
    read_as = respelled(plain(word), ()).line
    return read_as != plain(word) and _kinds(read_as, names) != ["NOISE"]


def _kinds(text: str, names: Names) -> list[str]:
    return [token.type for token in tokens_of(text, names)]
