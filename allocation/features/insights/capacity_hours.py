"""Where the hours of the site's GPUs went: in service or not, and idle while work waited."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from django.db import connection
from django.db.models import Count

from allocation.models import Gpu
from allocation.queries.bookings.money.demand_hours import HOUR, in_use_hours, waited_hours
from tenants.models import GpuClass

# A GPU is out of service while it is missing, its driver hangs, its node does not answer, or it is under
# maintenance; times that overlap count once.
_OUT = """
SELECT g.gpu_class_id, s.at, sum(extract(epoch FROM least(upper(o.span), %(ends)s, s.at + '1 hour'::interval)
  - greatest(lower(o.span), s.at))) / 3600
FROM (
  SELECT gpu_id, unnest(range_agg(span)) AS span
  FROM (
    SELECT g.id AS gpu_id, tstzrange(e.at, coalesce(e.until, %(ends)s)) AS span
    FROM allocation_gpuevent e
    JOIN allocation_gpu g ON g.id = e.gpu_id OR (e.gpu_id IS NULL AND g.node_id = e.node_id)
    WHERE e.kind IN ('lost', 'hang', 'unreachable') AND e.at < %(ends)s
      AND coalesce(e.until, %(ends)s) > %(starts)s
    UNION ALL
    SELECT g.id, tstzrange(m.starts, least(m.ends, m.ended_at))
    FROM allocation_maintenance m
    JOIN allocation_node n ON m.node_id = n.id OR m.rack_id = n.rack_id OR m.gpu_id IS NOT NULL
    JOIN allocation_gpu g ON g.node_id = n.id AND (m.gpu_id IS NULL OR g.id = m.gpu_id)
    WHERE m.starts < least(m.ends, m.ended_at, %(ends)s) AND least(m.ends, m.ended_at) > %(starts)s
  ) one
  GROUP BY gpu_id
) o
JOIN allocation_gpu g ON g.id = o.gpu_id AND g.gpu_class_id IS NOT NULL
CROSS JOIN LATERAL generate_series(
  date_trunc('hour', greatest(lower(o.span), %(starts)s)),
  least(upper(o.span), %(ends)s) - '1 microsecond'::interval, '1 hour'::interval) AS s(at)
GROUP BY 1, 2
"""


@dataclass(frozen=True, slots=True)
class CapacityHours:
    """GPU-hours of a class in a day: of all its GPUs of today, out of service, and dark: in service and
    idle in hours in which as many GPUs were waited for."""

    there: float
    out_of_service: float
    dark: float

    def plus(self, other: "CapacityHours | None") -> "CapacityHours":
        """Returns the hours of both together."""
        if other is None:
            return self
        return CapacityHours(
            self.there + other.there, self.out_of_service + other.out_of_service, self.dark + other.dark
        )


def capacity_hours(starts: datetime, ends: datetime) -> Iterator[tuple[str, date, CapacityHours]]:
    """Yields the hours of each class and UTC day in [starts, ends), which are full days or until now."""
    there = Gpu.objects.filter(gpu_class__isnull=False, gpu_class__kind=GpuClass.Kind.GPU)
    gpus = there.values_list("gpu_class_id").annotate(Count("id"))
    in_use, waited = in_use_hours(starts, ends), waited_hours(starts, ends)
    out = _out_of_service(starts, ends)
    for name, count in gpus.order_by("gpu_class_id"):
        days: dict[date, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        at = starts
        while at < ends:
            key, part = (name, at), min(1.0, (ends - at) / HOUR)
            free = max(0.0, count * part - in_use.get(key, 0.0) - out.get(key, 0.0))
            sums = days[at.astimezone(UTC).date()]
            sums[0] += count * part
            sums[1] += out.get(key, 0.0)
            sums[2] += min(free, waited.get(key, 0.0))
            at += timedelta(hours=1)
        for day, sums in days.items():
            yield name, day, CapacityHours(*sums)


def _out_of_service(starts: datetime, ends: datetime) -> dict[tuple[str, datetime], float]:
    with connection.cursor() as cursor:
        cursor.execute(_OUT, {"starts": starts, "ends": ends})
        return {(name, at): float(hours) for name, at, hours in cursor.fetchall()}
