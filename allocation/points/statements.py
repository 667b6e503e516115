"""The point by which the page of a statement offers files that a worker makes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import UUID


@dataclass(frozen=True, slots=True)
class MadeFile:
    """A file that somebody has asked for: its format, and how far it is, in words."""

    id: UUID
    name: str
    state: str


@dataclass(frozen=True, slots=True)
class MadeFiles:
    """The files of a statement that its reader has asked for. `route`: what takes the month, the project
    and the format of a new one, where the statement is too large for a direct answer."""

    route: str
    rows: Sequence[MadeFile]


StatementFiles: TypeAlias = Callable[[Any, Any], MadeFiles | None]

STATEMENT_FILES: list[StatementFiles] = []
"""Each returns the files that a worker makes, by actor and statement."""


def made_files(actor: Any, statement: Any) -> MadeFiles | None:  # noqa: ANN401 (an Actor, a Statement)
    """Returns the files of a statement that a worker makes; None: of this one none."""
    return next((found for read in STATEMENT_FILES if (found := read(actor, statement)) is not None), None)
