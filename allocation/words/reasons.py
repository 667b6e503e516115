"""The reasons that a decision gives: as they are stored, and with their sentences."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from allocation.words.amounts import Facts
from allocation.words.reason_sentences import sentence_of
from solver.reasons.reason import Reason
from tenants.platform.nouns import unit_text

_CLAIMANT = ("overtaken", "booking")


def sentence(why: Reason) -> str:
    """Returns the sentence of a reason.

    Raises:
        KeyError: no sentence for its code, or a fact is missing.
    """
    facts = Facts(why.numbers)
    return unit_text(sentence_of(why.code, facts), facts.of_class)


def stored_sentence(data: Mapping[str, Any], *, are_cores: bool = False) -> str:
    """Returns the sentence of a stored reason; an old one has the sentence it was stored with.
    `are_cores`: it is about a booking of host cores."""
    if "sentence" in data:
        return str(data["sentence"])
    facts = Facts(data["numbers"])
    return unit_text(sentence_of(data["code"], facts), facts.of_class, are_cores=are_cores)


def sentence_for(ask: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """Returns the sentence of a stored reason of a booking with this request."""
    return stored_sentence(data, are_cores=bool(ask.get("host")))


def reason_data(why: Reason) -> dict[str, Any]:
    """Returns a reason as it is stored, without its sentence.

    Not with the id of the booking that goes first: readers get its number, if they may see it.
    """
    frees_at = None if why.frees_at is None else datetime.fromtimestamp(why.frees_at, UTC)
    return {
        "rule": why.rule,
        "code": why.code,
        "check": why.check,
        "numbers": {name: fact for name, fact in why.facts.items() if (why.code, name) != _CLAIMANT},
        "frees_at": frees_at and frees_at.isoformat(),
    }


def reason_shown(data: Mapping[str, Any], ask: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns a stored reason with its sentence, as REST and pages show it; `ask` is the request of its
    booking."""
    return {
        "rule": data["rule"],
        "code": data["code"],
        "check": data["check"],
        "sentence": sentence_for(ask or {}, data),
        "numbers": data["numbers"],
        "frees_at": data["frees_at"],
    }
