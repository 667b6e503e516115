"""What the words of bookings' pages share: who reads, and a line of a bill."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any

from allocation.models import Pause


@dataclass(frozen=True, slots=True)
class PageContext:
    """Who reads, when and where, the names of classes, and of the booking what it takes in units,
    its pauses, the later ends that it could have, or why none, and the reason by which it waits for
    the end of a freeze."""

    now: datetime
    zone: tzinfo
    base: str
    labels: Mapping[str, str]
    units: int = 0
    pauses: tuple[Pause, ...] = ()
    ends: tuple[datetime, ...] = ()
    no_later: str = ""
    frozen: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class CostLine:
    """One line of the bill."""

    name: str
    amount: str
    strong: bool = False
