"""The GPUs that bookings needed in each hour, counted without the time that they waited.

Each run counts from when it could have begun: earlier by the wait before its booking's first run.
"""

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
from django.db import connection

from allocation.features.capacity.mix.arithmetic import Loads
from allocation.queries.bookings.money.demand_hours import ASKED, ASKED_CLASS, HOUR, RUNS, levels_by_hour
from allocation.queries.bookings.money.held_use import WHOLE

_WHOSE = """b.submitted < %(ends)s AND (b.ended_at IS NULL OR b.ended_at > %(starts)s)
  AND (%(tenant)s::uuid IS NULL OR b.tenant_id = %(tenant)s)
  AND (%(projects)s::uuid[] IS NULL OR b.project_id = ANY(%(projects)s))"""
_RUN = "a.state = ANY(%(states)s) AND NOT a.abandoned"
_NEEDED = f"""
SELECT g.gpu_class_id AS gpu_class, {WHOLE} AS gpus, lower(a.period) - w.wait AS since,
  coalesce(upper(a.period), %(now)s) - w.wait AS until
FROM allocation_booking b
CROSS JOIN LATERAL (
  SELECT greatest('0'::interval,
    min(lower(a.period)) - greatest(b.submitted, b.not_before, b.starts)) AS wait
  FROM allocation_allocation a WHERE a.booking_id = b.id AND {_RUN}) w
JOIN allocation_allocation a ON a.booking_id = b.id AND {_RUN}
JOIN allocation_gpu g ON g.id = a.gpu_id
WHERE {_WHOSE}
"""  # noqa: S608 (our own text)
_NEVER_RAN = f"""
SELECT {ASKED_CLASS}, count(*), sum({ASKED} * b.duration_seconds) / 3600
FROM allocation_booking b
WHERE {_WHOSE} AND NOT EXISTS (
  SELECT FROM allocation_allocation a WHERE a.booking_id = b.id AND {_RUN})
GROUP BY 1
"""  # noqa: S608
_FIRST = f"""
SELECT min(b.submitted) FROM allocation_booking b WHERE {_WHOSE}
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class Whose:
    """Whose bookings: those of an organisation, of all its projects or of these; without one the site's."""

    name: str
    tenant_id: UUID | None = None
    projects: tuple[UUID, ...] | None = None

    def facts(self, starts: datetime, ends: datetime) -> dict[str, Any]:
        """The parameters of the statements."""
        projects = None if self.projects is None else list(self.projects)
        return {
            "tenant": self.tenant_id,
            "projects": projects,
            "starts": starts,
            "ends": ends,
            "states": RUNS,
        }


@dataclass(frozen=True, slots=True)
class NeverRan:
    """Bookings that ended without a run or still wait, and the GPU-hours that they asked for."""

    bookings: int = 0
    gpu_hours: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class Needed:
    """GPUs by class and full hour in [starts, ends); `starts` is not before the hour of the first request."""

    starts: datetime
    ends: datetime
    by_class: dict[str, Loads]
    never_ran: dict[str, NeverRan]

    @property
    def hours(self) -> int:
        """The hours that are counted."""
        return int((self.ends - self.starts) / HOUR)

    def of(self, gpu_class: str) -> Loads:
        """The load of a class, which may have had none."""
        return self.by_class.get(gpu_class, np.zeros(self.hours))


def needed_read(whose: Whose, starts: datetime, ends: datetime, now: datetime) -> Needed:
    """Reads what was needed in [starts, ends), full hours until now."""
    ends = max(starts, min(ends, now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)))
    facts = whose.facts(starts, ends) | {"now": now}
    with connection.cursor() as cursor:
        cursor.execute(_FIRST, facts)
        (first,) = cursor.fetchone() or (None,)
        if first is not None:
            first = first.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        begins = ends if first is None else max(starts, first)
        cursor.execute(_NEVER_RAN, facts)
        never_ran = {name: NeverRan(count, hours) for name, count, hours in cursor.fetchall() if name}
    loads: dict[str, Loads] = defaultdict(lambda: np.zeros(int((ends - begins) / HOUR)))
    for (name, at), gpus in levels_by_hour(_NEEDED, facts | {"starts": begins}).items():
        loads[name][int((at - begins) / HOUR)] += gpus
    return Needed(begins, ends, dict(loads), never_ran)
