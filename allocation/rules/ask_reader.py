"""The words of an ask and what has been read of them so far."""

import re
from dataclasses import dataclass, field
from datetime import datetime
from zoneinfo import ZoneInfo

from allocation.rules.ask_parsed import Catalogue, Part, Problem

_TOKEN = re.compile(r"[rR][rR][uU][lL][eE]:\S+|[/|]|[^\s,;/|]+")
_GLUED = re.compile(r"([0-9]{1,6}[x×])(.+)")


@dataclass(frozen=True, slots=True)
class Token:
    start: int
    end: int
    word: str


@dataclass(slots=True)
class Reader:
    """The text's words and what has been read of them so far."""

    tokens: tuple[Token, ...]
    names: dict[str, tuple[str, ...]]
    catalogue: Catalogue
    now: datetime
    zone: ZoneInfo
    said: dict[str, object] = field(default_factory=dict)
    spans: dict[str, tuple[int, int]] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    unknown: list[tuple[int, int]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def word(self, at: int) -> str:
        """The word there, empty after the last."""
        return self.tokens[at].word if at < len(self.tokens) else ""

    def words(self, at: int) -> tuple[str, ...]:
        """All words from there on."""
        return tuple(token.word for token in self.tokens[at:])

    def span(self, at: int, used: int) -> tuple[int, int]:
        """Characters of `used` words, at least one."""
        return self.tokens[at].start, self.tokens[at + used - 1].end

    def say(self, name: str, value: object, meaning: str, span: tuple[int, int]) -> None:
        """Keep what was understood; a second word for the same thing is a problem."""
        if name in self.said:
            self.trouble("said_twice", f"This is the second {name.replace('_', ' ')}.", span)
            return
        self.said[name], self.spans[name] = value, span
        self.parts.append(Part(*span, name, meaning))

    def trouble(self, code: str, sentence: str, span: tuple[int, int]) -> None:
        """Note words that were understood and can't be meant so."""
        self.problems.append(Problem(*span, code, sentence))

    def time_text(self, moment: datetime) -> str:
        """A time as the asker's clock shows it."""
        return f"{moment.astimezone(self.zone):%a %d %b %H:%M}"


def tokens_of(text: str) -> tuple[Token, ...]:
    """Words in lower case with their spans; `2xh100` is two of them, an RRULE is one."""
    found: list[Token] = []
    for match in _TOKEN.finditer(text):
        start, word = match.start(), match[0].lower()
        glued = _GLUED.fullmatch(word)
        if glued:
            middle = start + len(glued[1])
            found.append(Token(start, middle, glued[1]))
            start, word = middle, glued[2]
        found.append(Token(start, match.end(), word))
    return tuple(found)


def names_of(catalogue: Catalogue) -> dict[str, tuple[str, ...]]:
    """Every name of every class, in lower case; a name may mean several classes."""
    names: dict[str, tuple[str, ...]] = {}
    for entry in catalogue.classes:
        for name in {entry.slug, entry.label, *entry.aliases}:
            known = " ".join(name.lower().split())
            names[known] = (*names.get(known, ()), entry.slug)
    return names
