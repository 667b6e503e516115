"""Refusals that people and programs read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from urllib.parse import urlencode

from tenants.platform.words import missing_text, more_text, owner_text, refusal_text

Kind = Literal["invalid", "denied", "missing", "conflict", "quota", "budget"]
"""Bad input, missing right, missing or foreign object, conflict of state, quota, budget."""


@dataclass(eq=False)
class Refused(Exception):
    """A refusal, with everything that its reader needs to continue.

    `code` is stable for programs, `sentence` is for people. `rule` names the entry of the rule
    catalogue, `owner` who set the rule, `param` the invalid field. `frees_at` is when the rule
    stops blocking; `alternatives` are requests that would have worked. `more` is what the owner of
    the limit could be asked for, as fields of a request for an override. `to_accept` is the id of
    the text that the reader may accept at once.
    """

    code: str
    sentence: str
    kind: Kind = "conflict"
    param: str | None = None
    rule: str | None = None
    owner: str | None = None
    frees_at: datetime | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict)
    alternatives: Sequence[Mapping[str, Any]] = ()
    more: Mapping[str, str] = field(default_factory=dict)
    to_accept: str = ""

    def __str__(self) -> str:
        return f"{self.code}: {self.sentence}"

    @property
    def more_query(self) -> str:
        """`more` as the query of the page that asks for it."""
        return urlencode(self.more)

    @property
    def more_words(self) -> str:
        """What `more` asks for, as in `2 more GPUs`."""
        return more_text(self.more)

    @property
    def owner_text(self) -> str:
        """Who set the rule, as text for people; empty without an owner."""
        return "" if self.owner is None else owner_text(self.owner)


def missing(noun: str, param: str | None = None) -> Refused:
    """The refusal for an object that is missing or belongs to another tenant."""
    return Refused("not_found", missing_text(noun), "missing", param)


def denied(sentence: str) -> Refused:
    """The refusal for a visible object on which the caller may not do this."""
    return Refused("not_allowed", sentence, "denied")


def invalid(code: str, sentence: str, param: str) -> Refused:
    """The refusal for invalid input in the field `param`."""
    return Refused(code, sentence, "invalid", param)


def text_within(text: str, most: int, param: str) -> str:
    """The text, which is never cut. Raises Refused `too_long` if it has more than `most` characters."""
    if len(text) > most:
        raise invalid("too_long", refusal_text("text_too_long", most=most, length=len(text)), param)
    return text
