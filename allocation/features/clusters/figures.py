"""What observed jobs add up to: hours of demand, use over time, and what Slurm and the ledger count."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Min

from allocation.features.clusters.models import ObservedCluster, ObservedJob
from allocation.models.bookings import booking_label
from allocation.points import DemandHours
from allocation.points.outside import Columns, OutsideUse
from allocation.web.parts.times import length_words

# A job starts before its booking is handed over, and leaves a little later.
SLACK_SECONDS = 180
# A job of a booking counts as that. What has not ended is known until it was read last.
_JOBS = "FROM allocation_observedjob j WHERE NOT j.is_booking AND j.gpu_class_id IS NOT NULL"
_END = "coalesce(j.ended, j.read_at)"
_REQUESTED = f"""
SELECT j.gpu_class_id, date_trunc('hour', j.submitted), sum(j.gpus)
{_JOBS} AND j.submitted >= %(starts)s AND j.submitted < %(ends)s
GROUP BY 1, 2
"""
_BY_HOUR = f"""
SELECT x.gpu_class_id, s.at, sum(x.gpus * greatest(0, extract(epoch FROM
  least(x.upper, %(ends)s, s.at + '1 hour'::interval) - greatest(x.lower, %(starts)s, s.at)))) / 3600
FROM (SELECT j.gpu_class_id, j.gpus, {{lower}} AS lower, {{upper}} AS upper {_JOBS}) x
CROSS JOIN LATERAL generate_series(
  date_trunc('hour', greatest(x.lower, %(starts)s)), least(x.upper, %(ends)s), '1 hour'::interval) AS s(at)
WHERE x.lower < %(ends)s AND x.upper > %(starts)s
GROUP BY 1, 2
"""  # noqa: S608
_SQL = {
    "requested": _REQUESTED,
    "in_use": _BY_HOUR.format(lower="j.started", upper=_END),
    "waited": _BY_HOUR.format(lower="j.eligible", upper=f"coalesce(j.started, {_END})"),
}
_USE = f"""
SELECT j.cluster_id, j.account, coalesce(g.label, j.gpu_type), count(*),
  sum(j.gpus * extract(epoch FROM least({_END}, %(ends)s) - greatest(j.started, %(starts)s))) / 3600,
  percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM j.started - j.eligible))
FROM allocation_observedjob j
LEFT JOIN tenants_gpuclass g ON g.slug = j.gpu_class_id
WHERE NOT j.is_booking AND j.started < %(ends)s AND {_END} > %(starts)s
  AND (%(cluster)s = '' OR j.cluster_id = %(cluster)s)
  AND (%(projects)s::uuid[] IS NULL OR j.project_id = ANY(%(projects)s))
GROUP BY 1, 2, 3
ORDER BY 1, 5 DESC, 2, 3
"""  # noqa: S608
_IN_COLUMNS = f"""
SELECT j.cluster_id, coalesce(g.label, j.gpu_type, ''), c.number,
  sum(j.gpus * extract(epoch FROM least({_END}, c.upper) - greatest(j.started, c.lower))), max(j.read_at)
FROM unnest(%(lowers)s::timestamptz[], %(uppers)s::timestamptz[]) WITH ORDINALITY AS c(lower, upper, number)
JOIN allocation_observedjob j ON NOT j.is_booking AND j.started < c.upper AND {_END} > c.lower
LEFT JOIN tenants_gpuclass g ON g.slug = j.gpu_class_id
WHERE %(projects)s::uuid[] IS NULL OR j.project_id = ANY(%(projects)s)
GROUP BY 1, 2, 3
ORDER BY 1, 2, 3
"""  # noqa: S608
_LEDGER = """
WITH w AS (SELECT tstzrange(%(starts)s, %(ends)s) AS span),
ours AS (
  SELECT a.job::text AS number, min(t.slug) AS tenant, min(b.number) AS booking, min(b.array_index) AS index,
    sum(extract(epoch FROM upper(d.span) - lower(d.span))) AS seconds
  FROM w, allocation_allocation a
  JOIN allocation_booking b ON b.id = a.booking_id
  JOIN tenants_tenant t ON t.id = b.tenant_id
  CROSS JOIN LATERAL (SELECT a.period * (SELECT span FROM w) AS span) d
  WHERE a.job IS NOT NULL AND a.state IN ('active', 'releasing', 'ended') AND a.period && w.span
    AND NOT EXISTS (SELECT FROM allocation_observedjob o
      WHERE o.cluster_id <> %(cluster)s AND o.is_booking AND o.number = a.job::text)
  GROUP BY 1),
theirs AS (
  SELECT j.number, sum(j.gpus * extract(epoch FROM upper(d.span) - lower(d.span))) AS seconds,
    max(j.gpus) AS gpus
  FROM w, allocation_observedjob j
  CROSS JOIN LATERAL (
    SELECT tstzrange(j.started, coalesce(j.ended, j.read_at)) * (SELECT span FROM w) AS span) d
  WHERE j.cluster_id = %(cluster)s AND j.is_booking AND j.started IS NOT NULL AND NOT isempty(d.span)
  GROUP BY 1)
SELECT number, ours.tenant, ours.booking, ours.index, coalesce(ours.seconds, 0), coalesce(theirs.seconds, 0)
FROM ours FULL JOIN theirs USING (number)
WHERE abs(coalesce(ours.seconds, 0) - coalesce(theirs.seconds, 0)) > %(slack)s * coalesce(theirs.gpus, 1)
ORDER BY abs(coalesce(ours.seconds, 0) - coalesce(theirs.seconds, 0)) DESC, 1
LIMIT 500
"""


@dataclass(frozen=True, slots=True)
class Use:
    """What an account had of a class (a type, where it is no class) outside of bookings. The wait is
    that of jobs which started; hours are those within the time."""

    cluster: str
    account: str
    gpu_class: str
    jobs: int
    gpu_hours: Decimal
    wait_p50_seconds: int

    @property
    def wait(self) -> str:
        """The wait in words."""
        return length_words(self.wait_p50_seconds) if self.wait_p50_seconds else "none"


@dataclass(frozen=True, slots=True)
class Difference:
    """A job that the cluster and the portal count differently, in GPU-hours; `booking` is empty if the
    portal counts none for it."""

    job: str
    tenant: str
    booking: str
    portal_hours: Decimal
    cluster_hours: Decimal

    @property
    def more(self) -> Decimal:
        """What the cluster counts more."""
        return self.cluster_hours - self.portal_hours


def demand_of_jobs(kind: str, starts: datetime, ends: datetime) -> DemandHours:
    """GPUs by class and hour; see allocation.points.DEMAND_SOURCES."""
    return {(name, at): float(gpus) for name, at, gpus in _rows(_SQL[kind], starts, ends)}


def demand_since(read: datetime | None) -> datetime | None:
    """The oldest time of the jobs that were read since an instant."""
    rows = ObservedJob.objects.filter(is_booking=False, gpu_class__isnull=False)
    if read is not None:
        rows = rows.filter(read_at__gte=read)
    found: datetime | None = rows.aggregate(at=Min("submitted"))["at"]
    return found


def use_of(
    starts: datetime, ends: datetime, cluster: str = "", projects: Sequence[UUID] | None = None
) -> list[Use]:
    """What accounts had in a time, of all projects or of these; an organisation reads its own only."""
    rows = _rows(_USE, starts, ends, cluster=cluster, projects=projects)
    return [
        Use(slug, account, gpu_class, jobs, _hours(hours), round(wait))
        for slug, account, gpu_class, jobs, hours, wait in rows
    ]


def use_in_columns(projects: Collection[UUID] | None, columns: Columns) -> list[OutsideUse]:
    """GPUs in use outside of bookings; see allocation.points.outside. What began after the records were
    read last is not known."""
    facts = {
        "lowers": [starts for starts, _ in columns],
        "uppers": [ends for _, ends in columns],
        "projects": None if projects is None else list(projects),
    }
    found: dict[tuple[str, str], dict[int, float]] = {}
    read: dict[str, datetime] = {}
    with connection.cursor() as cursor:
        cursor.execute(_IN_COLUMNS, facts)
        for cluster, kind, number, seconds, at in cursor.fetchall():
            found.setdefault((cluster, kind), {})[number - 1] = float(seconds)
            read[cluster] = max(at, read.get(cluster, at))
    uses = []
    for (cluster, kind), sums in found.items():
        known = (min(ends, read[cluster]) - starts for starts, ends in columns)
        lengths = [each.total_seconds() for each in known]
        gpus = tuple(sums.get(n, 0.0) / each if each > 0 else None for n, each in enumerate(lengths))
        uses.append(OutsideUse(cluster, kind, gpus))
    return uses


def differences_of(cluster: ObservedCluster, starts: datetime, ends: datetime) -> list[Difference]:
    """Jobs of bookings that Slurm and the portal count differently until they were read last, the
    largest difference first. Preparation is not charged, so three minutes for each GPU are none."""
    ends = min(ends, cluster.read_at)
    if ends <= starts:
        return []
    rows = _rows(_LEDGER, starts, ends, cluster=cluster.pk, slack=SLACK_SECONDS)
    return [
        Difference(
            job,
            tenant or "",
            booking_label(number, index) if tenant else "",
            _hours(ours / 3600),
            _hours(theirs / 3600),
        )
        for job, tenant, number, index, ours, theirs in rows
    ]


def _rows(statement: str, starts: datetime, ends: datetime, **facts: Any) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401
    with connection.cursor() as cursor:
        cursor.execute(statement, {"starts": starts, "ends": ends, **facts})
        yield from cursor.fetchall()


def _hours(value: Any) -> Decimal:  # noqa: ANN401 (a number of the database)
    return Decimal(value).quantize(Decimal("0.001"))
