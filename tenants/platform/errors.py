"""Refusals that people and programs read. No Django: the solver's callers raise them, too."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from urllib.parse import urlencode

Kind = Literal["invalid", "denied", "missing", "conflict", "quota", "budget"]
"""Bad input, missing right, missing or foreign object, conflict of state, quota, budget."""

# Texts of known owners; any other owner is the name of a person, project or tenant.
_OWNER_TEXTS = {
    "operator": "set by the operator",
    "tenant_admin": "set by the tenant's admin",
    "lead": "set by the project's lead",
    "asker": "which follows from what you asked for",
    "hardware": "which follows from the hardware",
    "others": "which follows from what others have booked",
}
# What can be asked for, by the kind of its limit.
_MORE_TEXTS = {
    "quota": "{} more GPUs",
    "lab_quota": "{} more GPUs for the lab",
    "person_quota": "{} more GPUs for you",
    "gpu_hours": "{} more GPU-hours",
    "budget": "{} more budget",
    "length": "{} h more",
    "shorter": "{} h less",
    "notice": "a start {} h beyond the notice",
    "open_bookings": "{} more open bookings",
    "open_gpus": "{} more GPUs at once",
    "start_hours": "a start outside these hours",
    "tier_class": "this class in the tier",
    "tier_audience": "the use of this tier",
}


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
        return "" if self.owner is None else _OWNER_TEXTS.get(self.owner, f"set for {self.owner}")


def more_text(more: Mapping[str, str]) -> str:
    """What a request for an exception asks for, as in `2 more GPUs`."""
    kind, amount = more.get("kind", ""), more.get("amount", "")
    if kind in ("length", "shorter", "notice"):
        amount = f"{int(amount) / 3600:.1f}".removesuffix(".0")
    text = _MORE_TEXTS.get(kind, "{} more").format(amount)
    return text.replace("GPUs", "GPU").replace("bookings", "booking") if amount == "1" else text


def missing(noun: str, param: str | None = None) -> Refused:
    """The refusal for an object that is missing or belongs to another tenant."""
    return Refused(
        "not_found", f"There is no such {noun}, or it is not open to you.", "missing", param
    )


def denied(sentence: str) -> Refused:
    """The refusal for a visible object on which the caller may not do this."""
    return Refused("not_allowed", sentence, "denied")


def invalid(code: str, sentence: str, param: str) -> Refused:
    """The refusal for invalid input in the field `param`."""
    return Refused(code, sentence, "invalid", param)
