"""Utilisation over time: readings of two days and five-minute rows of ninety days, as one curve.

A reading covers the time since the previous one, at most `MAX_READING_SPAN`. Averages are weighted
by that time. Unmeasured time has no weight and never counts as idle.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection

from allocation.models import GpuSample

ROLLUP_STEP = timedelta(minutes=5)
MAX_READING_SPAN = timedelta(seconds=30)
# The interval of agents' readings: the span of a first reading.
FIRST_READING_SPAN = timedelta(seconds=10)
SAMPLES_KEPT = timedelta(hours=48)
# The age up to which the latest reading counts as current.
FRESH = timedelta(seconds=90)
# Curves up to this length use readings, in steps of a minute.
FINE = timedelta(hours=3)
FINE_STEP = timedelta(minutes=1)
POINTS = 180

# A counter that was reset gives no energy for its interval.
_ENERGY = "CASE WHEN energy_mj >= energy_before THEN energy_mj - energy_before END"
# NVML's throttle reasons for heat or power: software power cap, hardware slowdown, software
# thermal, hardware thermal, hardware power brake. Not "idle" and not "applications clocks setting".
THROTTLED = 0x04 | 0x08 | 0x20 | 0x40 | 0x80


def rollup_sql(where: str) -> str:
    """A SELECT that aggregates readings to rows of GpuUse without ids. `where` filters the
    readings.

    Named parameters: those of `rollup_parameters` and of `where`.
    """
    return f"""
    SELECT gpu_id, tenant_id, slot, allocation_id, bucket AS at,
      least(round(sum(weight)), extract(epoch FROM %(bucket)s::interval))::int AS seconds,
      least(round(coalesce(sum(weight) FILTER (WHERE utilisation IS NOT NULL), 0)),
            extract(epoch FROM %(bucket)s::interval))::int AS measured,
      min(utilisation) AS busy_min,
      {_weighted("utilisation")} AS busy_avg,
      max(utilisation) AS busy_max,
      round({_weighted("memory_used_mb")})::int AS memory_avg_mb,
      max(memory_used_mb) AS memory_max_mb, max(memory_total_mb) AS memory_total_mb,
      round({_weighted("power_mw")})::int AS power_avg_mw, max(power_mw) AS power_max_mw,
      max(temperature_c) AS temperature_max_c, max(processes) AS processes_max,
      {_weighted("bandwidth")} AS bandwidth_avg, {_weighted("tensor")} AS tensor_avg,
      round({_weighted("pcie_rx_kb + pcie_tx_kb")})::int AS pcie_kb,
      round({_weighted("nvlink_rx_kb + nvlink_tx_kb")})::int AS nvlink_kb,
      -- least() ignores nulls: without a reading it would return the whole bucket.
      CASE WHEN count(throttle) > 0 THEN
        least(round(sum(CASE WHEN throttle & {THROTTLED} <> 0 THEN weight ELSE 0 END)),
              extract(epoch FROM %(bucket)s::interval))::int END AS throttled,
      sum({_ENERGY})::bigint AS energy_mj, {_weighted("sm")} AS sm_avg
    FROM (
      SELECT *, date_bin(%(bucket)s::interval, at, 'epoch') AS bucket,
        lag(energy_mj) OVER same AS energy_before,
        greatest(1, least(
          extract(epoch FROM coalesce(at - lag(at) OVER same, %(alone)s::interval)),
          extract(epoch FROM %(most)s::interval)))::float8 AS weight
      FROM allocation_gpusample
      WHERE at >= %(first)s AND at < %(until)s AND {where}
      WINDOW same AS (PARTITION BY gpu_id, slot, allocation_id ORDER BY at)) reading
    WHERE at >= %(since)s
    GROUP BY gpu_id, tenant_id, slot, allocation_id, bucket"""  # noqa: S608


def _weighted(value: str) -> str:
    known = f"FILTER (WHERE {value} IS NOT NULL)"
    return f"sum(({value}) * weight) {known} / sum(weight) {known}"


def rollup_parameters(bucket: timedelta, since: datetime, until: datetime) -> dict[str, Any]:
    """The parameters of `rollup_sql`."""
    return {
        "bucket": bucket,
        "alone": FIRST_READING_SPAN,
        "most": MAX_READING_SPAN,
        "first": since - MAX_READING_SPAN,
        "since": since,
        "until": until,
    }


def rollup_bucket_of(at: datetime) -> datetime:
    """The start of the five-minute bucket that contains `at`."""
    seconds = int(at.timestamp())
    return datetime.fromtimestamp(seconds - seconds % int(ROLLUP_STEP.total_seconds()), UTC)


@dataclass(frozen=True, slots=True)
class UsePoint:
    """One step of a curve over all selected devices. None: not measured."""

    at: datetime
    measured: int
    busy_min: int | None
    busy: float | None
    busy_max: int | None
    memory_mb: int | None
    memory_total_mb: int | None
    power_mw: int | None
    bandwidth: float | None
    sm: float | None
    tensor: float | None
    pcie_kb: int | None
    nvlink_kb: int | None
    throttled: int | None
    energy_mj: int | None


@dataclass(frozen=True, slots=True)
class UseCurve:
    """All steps of [since, until). `devices` is the number of devices with readings."""

    since: datetime
    until: datetime
    step: timedelta
    devices: int
    points: tuple[UsePoint, ...]


_CURVE = """
SELECT date_bin(%(step)s::interval, at, %(origin)s) AS point,
  coalesce(sum(measured), 0)::int,
  min(busy_min), sum(busy_avg * measured) / nullif(sum(measured), 0), max(busy_max),
  round(avg(memory_avg_mb))::int, max(memory_total_mb), round(avg(power_avg_mw))::int,
  avg(bandwidth_avg), avg(sm_avg), avg(tensor_avg), round(avg(pcie_kb))::int, round(avg(nvlink_kb))::int,
  sum(throttled)::int, sum(energy_mj)::bigint,
  count(DISTINCT coalesce(allocation_id, gpu_id))
FROM ({rows}) used GROUP BY point ORDER BY point"""

_COLUMNS = (
    "gpu_id, tenant_id, slot, allocation_id, at, seconds, measured, busy_min, busy_avg, busy_max,"
    " memory_avg_mb, memory_max_mb, memory_total_mb, power_avg_mw, power_max_mw,"
    " temperature_max_c, processes_max, bandwidth_avg, tensor_avg, pcie_kb, nvlink_kb, throttled,"
    " energy_mj, sm_avg"
)


def rollup_columns() -> str:
    """The columns of GpuUse, in the order of `rollup_sql`."""
    return _COLUMNS


def use_of_allocations(
    *, allocations: Sequence[UUID], since: datetime, until: datetime, now: datetime
) -> UseCurve:
    """The utilisation of these allocations together in [since, until), up to now."""
    return _curve("allocation_id = ANY(%(whose)s)", list(allocations), since, until, now)


def use_of_gpu(*, gpu: UUID, since: datetime, until: datetime, now: datetime) -> UseCurve:
    """The utilisation of one whole device. Operators only, because it shows all tenants' use."""
    return _curve("gpu_id = %(whose)s AND slot IS NULL", gpu, since, until, now)


def _curve(where: str, whose: UUID | list[UUID], since: datetime, until: datetime, now: datetime) -> UseCurve:
    until = max(since, min(until, now))
    step = _step(since, until, now)
    since = _floor(since, min(step, ROLLUP_STEP))
    values: dict[str, Any] = {"step": step, "origin": since, "whose": whose}
    if step < ROLLUP_STEP:
        rows = rollup_sql(where)
        values |= rollup_parameters(step, since, until)
    else:
        tail = max(since, _rolled_until(where, whose, since))
        rows = (
            f"SELECT {_COLUMNS} FROM allocation_gpuuse"  # noqa: S608
            f" WHERE at >= %(from)s AND at < least(%(until)s, %(since)s) AND {where}"
            f" UNION ALL {rollup_sql(where)}"
        )
        values |= {"from": since, **rollup_parameters(ROLLUP_STEP, tail, until)}
    with connection.cursor() as cursor:
        cursor.execute(_CURVE.format(rows=rows), values)
        found = {row[0]: row for row in cursor.fetchall()}
    return _filled(found, since, until, step)


def _step(since: datetime, until: datetime, now: datetime) -> timedelta:
    span = until - since
    if span <= FINE and since > now - SAMPLES_KEPT + ROLLUP_STEP:
        return FINE_STEP
    return ROLLUP_STEP * max(1, -(-span // (ROLLUP_STEP * POINTS)))


def _floor(at: datetime, step: timedelta) -> datetime:
    seconds = int(step.total_seconds())
    return datetime.fromtimestamp(int(at.timestamp()) // seconds * seconds, UTC)


def _rolled_until(where: str, whose: UUID | list[UUID], since: datetime) -> datetime:
    """The end of the newest row. Rows are written for all hardware at once, so later readings are
    not in rows yet."""
    with connection.cursor() as cursor:
        cursor.execute(
            # The subquery keeps the planner from scanning the latest rows of all hardware.
            "SELECT max(at) FROM (SELECT at FROM allocation_gpuuse"  # noqa: S608
            f" WHERE at >= %(since)s AND {where} OFFSET 0) own",
            {"since": since, "whose": whose},
        )
        last: datetime | None = cursor.fetchone()[0]
    return last + ROLLUP_STEP if last else since


def _filled(
    found: dict[datetime, tuple[Any, ...]], since: datetime, until: datetime, step: timedelta
) -> UseCurve:
    points = []
    for number in range(-(-(until - since) // step)):
        at = since + step * number
        row = found.get(at, (at, 0, *[None] * 14))
        points.append(UsePoint(*row[:15]))
    devices = max((int(str(row[15])) for row in found.values()), default=0)
    return UseCurve(since, until, step, devices, tuple(points))


@dataclass(frozen=True, slots=True)
class UtilisationTrace:
    """Utilisation over time: (time, percent or None), oldest first."""

    points: tuple[tuple[datetime, int | None], ...]


def utilisation_traces(
    *, allocations: Sequence[UUID], now: datetime, span: timedelta, step: timedelta
) -> dict[UUID, UtilisationTrace]:
    """Mean utilisation by allocation and step over the last `span`. None if not measured."""
    steps = int(span / step)
    first = now - span
    sums: dict[tuple[UUID, int], list[int]] = defaultdict(list)
    rows = GpuSample.objects.filter(
        allocation_id__in=allocations, at__gte=first, at__lt=now, utilisation__isnull=False
    ).values_list("allocation_id", "at", "utilisation")
    for allocation, at, busy in rows:
        if allocation is not None and busy is not None:
            sums[allocation, int((at - first) / step)].append(busy)
    return {
        allocation: UtilisationTrace(
            tuple((first + step * number, _mean(sums.get((allocation, number)))) for number in range(steps))
        )
        for allocation in allocations
    }


@dataclass(frozen=True, slots=True)
class GpuReading:
    """The latest reading of a whole device, for operators."""

    at: datetime
    power_mw: int | None
    temperature_c: int | None


def gpu_readings(*, gpus: Sequence[UUID], now: datetime) -> dict[UUID, GpuReading]:
    """Power and temperature in the last 90 s. Operators only, because it shows all tenants' use."""
    rows = (
        GpuSample.objects.filter(gpu_id__in=gpus, at__gt=now - FRESH, power_mw__isnull=False)
        .order_by("gpu_id", "-at")
        .distinct("gpu_id")
    )
    return {row.gpu_id: GpuReading(row.at, row.power_mw, row.temperature_c) for row in rows}


def _mean(values: list[int] | None) -> int | None:
    return round(sum(values) / len(values)) if values else None
