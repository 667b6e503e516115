"""Texts of pure code: a code with facts, which the edge looks up in a catalogue."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Coded:
    """A text for people by its code in the catalogue of its app, and the facts that it names."""

    code: str
    facts: Mapping[str, Any] = field(default_factory=dict)


def coded(code: str, /, **facts: Any) -> Coded:  # noqa: ANN401 (facts of any kind)
    """Returns a text with its facts."""
    return Coded(code, facts)


class CodedError(Exception):
    """An error whose text for people is a code with facts."""

    def __init__(self, code: str, /, **facts: Any) -> None:  # noqa: ANN401 (facts of any kind)
        super().__init__(code)
        self.text = Coded(code, facts)
