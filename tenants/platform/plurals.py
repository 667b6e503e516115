"""Sentences whose words depend on a number."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Plural:
    """A sentence for one and for any other number; `number` names the fact that decides."""

    one: str
    many: str
    number: str

    def __mod__(self, facts: Mapping[str, object]) -> str:
        """Returns the sentence for the facts. KeyError: a fact is missing."""
        return plural(self.one, self.many, facts[self.number]) % facts


Sentence: TypeAlias = str | Plural


def plural(one: str, many: str, count: object) -> str:
    """Returns the text for so many."""
    return one if count == 1 else many
