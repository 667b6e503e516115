"""The shape of an act of operators."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.api.builders import Site


@dataclass(frozen=True)
class Act:
    """What is sent, what it writes, and about what. `made` prepares the site and returns more
    values: those of the address by their names there, the rest of the form or the body."""

    action: str
    kind: str
    values: dict[str, Any] = field(default_factory=dict)
    made: Callable[[Site], dict[str, Any]] = lambda site: {}
    has_before: bool = True
    has_after: bool = True
