"""The state of parsing one line: values so far, where each is in the text, and problems."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, datetime
from difflib import get_close_matches
from zoneinfo import ZoneInfo

from lark import Token

from allocation.rules.ask.words.names import Names
from allocation.rules.ask.words.numbers import NUMBER_WORDS
from allocation.rules.ask.words.parsed import NOT_UNDERSTOOD, Catalogue, Part, Problem, Repair
from tenants.platform.coded import Coded, coded

Span = tuple[int, int]
_WORDS = (
    "monday tuesday wednesday thursday friday saturday sunday today tomorrow tonight "
    "overnight morning afternoon evening weekend midnight noon hours hour days weeks "
    "minutes until before between starting every weekday daily weekly monthly times cores "
    "memory node nvlink rack slice slices project tier cheapest asap from after gpus half "
    "quarter array runs january february march april june july august september october november "
    "december next week please now same"
)
VOCABULARY = (
    *_WORDS.split(),
    *(word for word in NUMBER_WORDS if " " not in word),
)
MOST_NAMED = 4
_ALIKE = 0.72
_TRAILING_NOISE = re.compile(r"(?:\b(?:for|with|of|the|an?|and|or|to|my|our)\s+)+$", re.IGNORECASE)

# What people call the parts of a request whose name in it is no word.
_FIELDS = {
    "any": "“any”",
    "array": "number of runs",
    "cheapest": "“cheapest”",
    "classes": "GPU class",
    "count": "number of GPUs",
    "data": "data sets",
    "gigabytes": "GPU memory",
    "lasts": "length",
    "most_cost": "highest cost",
    "not_before": "earliest start",
    "not_zones": "excluded zones",
    "parallel": "number of runs at once",
    "pin": "nodes",
    "profile": "slice",
    "repeat": "recurrence",
    "scratch": "scratch space",
    "starts": "start",
    "times": "number of dates",
    "together": "distance",
    "until": "last day",
    "workload": "kind of work",
}


_JOINED_BEFORE = re.compile(r"(?:\s+(?:and|und)|[\s,;:&+])+$", re.IGNORECASE)
_JOINED_AFTER = re.compile(r"^(?:\s*(?:and|und)(?=\s|$)|[\s,;:&+])+", re.IGNORECASE)
_MARKS_AFTER = re.compile(r"^[\s,;:]+")


@dataclass(slots=True)
class Reading:
    """A line, the names that it can use, and the values read so far."""

    text: str
    catalogue: Catalogue
    names: Names
    now: datetime
    zone: ZoneInfo
    values: dict[str, object] = field(default_factory=dict)
    spans: dict[str, Span] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    noise: list[Span] = field(default_factory=list)

    @property
    def today(self) -> date:
        """Today's date in the requester's time zone."""
        return self.now.astimezone(self.zone).date()

    def set_value(self, name: str, value: object, meaning: str, span: Span) -> None:
        """Sets a value. A second value for the same field is a problem."""
        if name in self.values:
            self.add_duplicate(_FIELDS.get(name, name), span, self.spans.get(name))
            return
        self.values[name], self.spans[name] = value, span
        self.add_part(name, meaning, span)

    def add_part(self, name: str, meaning: str, span: Span) -> None:
        """Adds the meaning of these words."""
        self.parts.append(Part(*span, name, meaning))

    def add_duplicate(self, what: str, span: Span, first: Span | None) -> None:
        """Adds a problem for a second value, with repairs that keep either of them."""
        repairs = []
        for kept, dropped in ((first, span), (span, first)):
            if kept and dropped:
                repairs.append(Repair(self.words(kept), self.replaced(dropped, "")))
        self.add_problem("said_twice", coded("ask_twice", what=what), span, repairs)

    def add_problem(self, code: str, why: Coded, span: Span, repairs: list[Repair] | None = None) -> None:
        """Adds a problem with its repairs."""
        self.problems.append(Problem(*span, code, why, tuple(repairs or ())))

    def words(self, span: Span) -> str:
        """The text of a span, as typed."""
        return self.text[span[0] : span[1]]

    def replaced(self, span: Span, words: str) -> str:
        """The line with other words in place of a span."""
        before, after = self.text[: span[0]], self.text[span[1] :]
        if not words:
            # Without one of the two that it joins, an `and` or a comma would stand alone.
            shorter = _JOINED_BEFORE.sub("", before)
            ends = _JOINED_AFTER if shorter == before.rstrip() else _MARKS_AFTER
            after = ends.sub("", after)
            before = shorter
        return " ".join(f"{before} {words} {after}".split())

    def replacements(self, span: Span, *choices: str) -> list[Repair]:
        """Repairs that replace a span by each of these choices."""
        return [Repair(words, self.replaced(span, words)) for words in choices]

    def spelling_guesses(self, word: str) -> list[str]:
        """Words of the grammar and of the catalogue that are spelled similarly."""
        known = [
            *VOCABULARY,
            *self.names.tier_by_key,
            *(n for p in self.catalogue.projects for n in p),
        ]
        known += [name for each in self.catalogue.every_class for name in (each.slug, *each.aliases)]
        return [each for each in get_close_matches(word, known, n=2, cutoff=_ALIKE) if each != word]

    def add_no_such(
        self, span: Span, whys: tuple[Coded, str], lead: str, known: Iterable[tuple[str, str]]
    ) -> None:
        """Adds a problem for a name that is none of those known, or with a longer reason the first of
        these."""
        (why, longer), slugs = whys, [slug for slug, _ in known]
        if slugs:
            why = coded(longer, **why.facts, names=", ".join(slugs))
        choices = (f"{lead} {slug}" for slug in slugs[:MOST_NAMED])
        self.add_problem(NOT_UNDERSTOOD, why, span, self.replacements(span, *choices))

    def add_misspelling(self, span: Span, word: str) -> None:
        """Adds a problem for a misspelled word, which may stand for another one: `Tag` for `day`."""
        start = self.text.lower().find(word, *span)
        place = span if start < 0 else (start, start + len(word))
        repairs = self.replacements(place, *self.spelling_guesses(word))
        self.add_problem(NOT_UNDERSTOOD, coded("ask_word", text=self.words(span)), span, repairs)

    def with_noise(self, span: Span) -> Span:
        """The span extended by the courtesies and articles right before it."""
        before = _TRAILING_NOISE.search(self.text[: span[0]])
        return (before.start() if before else span[0]), span[1]

    def time_text(self, moment: datetime) -> str:
        """A time in the requester's time zone."""
        return f"{moment.astimezone(self.zone):%a %d %b %H:%M}"


def span_of(*tokens: Token) -> Span:
    """The characters from the first token to the end of the last."""
    return int(tokens[0].start_pos or 0), int(tokens[-1].end_pos or 0)
