"""The point by which the timeline reads what GPUs outside of the portal do."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

Columns: TypeAlias = Sequence[tuple[datetime, datetime]]


@dataclass(frozen=True, slots=True)
class OutsideUse:
    """How many GPUs of a kind a cluster's jobs have had in each column, on average; None: not known yet,
    as what is still to come."""

    cluster: str
    kind: str
    gpus: tuple[float | None, ...]


OutsideUses: TypeAlias = Callable[[Collection[UUID] | None, Columns], Iterable[OutsideUse]]

OUTSIDE_USES: list[OutsideUses] = []
"""Each returns the use by jobs of these projects, or of all (None), in the columns of a timeline."""


def outside_uses(projects: Collection[UUID] | None, columns: Columns) -> list[OutsideUse]:
    """Returns what is used outside, of all sources."""
    return [use for read in OUTSIDE_USES for use in read(projects, columns)]
