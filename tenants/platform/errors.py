"""Every refusal a person or a program may read. No Django: the solver's callers raise it too."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

Kind = Literal["invalid", "denied", "missing", "conflict", "quota", "budget"]
"""What sort of no: bad input, no right, not there (or not yours), state, quota, money."""

# Owners by part; any other is the name of whom a limit is for.
_OWNER_TEXTS = {
    "operator": "set by the operator",
    "tenant_admin": "set by the tenant's admin",
    "lead": "set by the project's lead",
    "asker": "which follows from what you asked for",
    "hardware": "which follows from the hardware",
    "others": "which follows from what others have booked",
}


@dataclass(eq=False)
class Refused(Exception):
    """A refusal with everything its reader needs to go on.

    `code` is stable for programs, `sentence` is for people. `rule` names the entry of the rule
    catalogue, `owner` whose rule it is, `param` the field at fault. `frees_at` is when the rule
    stops being in the way; `alternatives` are asks that would have worked.
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

    def __str__(self) -> str:
        return f"{self.code}: {self.sentence}"

    @property
    def owner_text(self) -> str:
        """Where the rule comes from, in words for people; empty when nobody is named."""
        return "" if self.owner is None else _OWNER_TEXTS.get(self.owner, f"set for {self.owner}")


def missing(noun: str, param: str | None = None) -> Refused:
    """The same answer for what is not there and for what belongs to somebody else."""
    return Refused(
        "not_found", f"There is no such {noun}, or it is not open to you.", "missing", param
    )


def denied(sentence: str) -> Refused:
    """The reader may see the thing, but may not do this to it."""
    return Refused("not_allowed", sentence, "denied")


def invalid(code: str, sentence: str, param: str) -> Refused:
    """The request itself is wrong, at `param`."""
    return Refused(code, sentence, "invalid", param)
