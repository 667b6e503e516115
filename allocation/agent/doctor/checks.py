"""What a check of `doctor` is, and what it finds."""

import dataclasses
from collections.abc import Callable

from allocation import wire

State = wire.CheckState
LIMIT_S = 4.0


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """What was seen, and what an operator does about it."""

    state: State
    seen: str
    do: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """`look` may take `limit` seconds; it `asks` the driver, or something else that may hang, by
    name. `late` says what to do when it does."""

    name: str
    look: Callable[[], Finding]
    asks: str
    limit: float = LIMIT_S
    late: str = ""


def found(*, good: bool, seen: str, do: str, otherwise: State = "warn") -> Finding:
    """Returns `ok`, or `otherwise` with what to do."""
    return Finding("ok", seen) if good else Finding(otherwise, seen, do)
