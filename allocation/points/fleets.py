"""The point by which organisations read what more GPUs would have changed for them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias
from uuid import UUID


@dataclass(frozen=True, slots=True)
class WaitChange:
    """Waits in seconds with the GPUs of now and with more: of an organisation, or of one of its projects
    by slug. None: nothing waited. `effect` is in words."""

    name: str
    asked: int
    p50: int | None
    p50_more: int | None
    p95: int | None
    p95_more: int | None
    effect: str


@dataclass(frozen=True, slots=True)
class MoreGpus:
    """What more GPUs would have changed for an organisation in so many days until an instant; the row of
    all of its projects has no name."""

    words: str
    days: int
    until: datetime
    rows: Sequence[WaitChange]


MoreGpusRead: TypeAlias = Callable[[UUID], Iterable[MoreGpus]]

MORE_GPUS: list[MoreGpusRead] = []
"""Each returns what trials with more GPUs say of an organisation, the newest first."""


def more_gpus(tenant_id: UUID) -> list[MoreGpus]:
    """Returns what trials with more GPUs say of an organisation, the newest first."""
    return [found for read in MORE_GPUS for found in read(tenant_id)]
