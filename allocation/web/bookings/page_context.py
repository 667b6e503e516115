"""The context that the texts of booking pages share, and a cost line."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from typing import Any
from uuid import UUID

from allocation.models import Pause
from allocation.queries.bookings.planned_pauses import PlannedPause


@dataclass(frozen=True, slots=True)
class PageContext:
    """The reader's time and zone, class labels, and data of one booking: its units, its pauses,
    possible later ends (`no_later` says why there are none), the reason of a freeze, and how many
    bookings are ahead in the queue. `estimates` are the earliest starts of bookings that wait for
    others, and `planned_pauses` those of bookings that run, by id."""

    now: datetime
    zone: tzinfo
    base: str
    labels: Mapping[str, str]
    units: int = 0
    pauses: tuple[Pause, ...] = ()
    ends: tuple[datetime, ...] = ()
    no_later: str = ""
    frozen: Mapping[str, Any] | None = None
    ahead: int = 0
    estimates: Mapping[UUID, datetime] = field(default_factory=dict)
    planned_pauses: Mapping[UUID, PlannedPause] = field(default_factory=dict)
