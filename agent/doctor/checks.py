"""What a check of `doctor` is, and what it finds."""

import dataclasses
from collections.abc import Callable, Mapping

import wire

State = wire.CheckState
LIMIT_S = 4.0


@dataclasses.dataclass(frozen=True, slots=True)
class Said:
    """A text by its code in `wire.CHECK_TEXTS`, and the facts that it names."""

    code: str
    facts: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return wire.CHECK_TEXTS[self.code] % self.facts


def said(code: str, /, **facts: object) -> Said:
    """Returns a text with its facts."""
    return Said(code, {name: str(fact) for name, fact in facts.items()})


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """What was seen, and what an operator does about it."""

    state: State
    seen: Said
    do: Said | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """`look` may take `limit` seconds; it `asks` the driver, or something else that may hang, by
    name. `late` says what to do when it does."""

    name: str
    look: Callable[[], Finding]
    asks: str
    limit: float = LIMIT_S
    late: Said | None = None


def found(*, good: bool, seen: Said, do: Said, otherwise: State = "warn") -> Finding:
    """Returns `ok`, or `otherwise` with what to do."""
    return Finding("ok", seen) if good else Finding(otherwise, seen, do)
