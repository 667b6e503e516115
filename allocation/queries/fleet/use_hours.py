"""The use of allocations over up to 400 days: sums by hour of days that are over, and five-minute rows of
later ones. All figures over a time read both as one, with `USE`.

Five minutes are used or unused, and have a reading of energy or none, by themselves: a sum keeps how many
seconds of its hour had each. A day has sums or none; its rows stay for a while for curves.
"""

from datetime import UTC, datetime, time, timedelta

from django.db.models import Max

from allocation.models import GpuUseDay

# Below this utilisation in percent five minutes count as unused.
IDLE_PERCENT = 5
_UNUSED = f"r.processes_max = 0 OR r.busy_avg < {IDLE_PERCENT}"


def _seconds_with(value: str) -> str:
    return f"CASE WHEN {value} IS NULL THEN 0 ELSE r.seconds END"


def _sum_of(value: str) -> str:
    return f"coalesce(r.seconds * {value}, 0)"


_OF_ROW = {
    "seconds": ("int", "r.seconds"),
    "unused": ("int", f"CASE WHEN {_UNUSED} THEN r.seconds ELSE 0 END"),
    "measured": ("int", "r.measured"),
    "busy": ("float8", "coalesce(r.measured * r.busy_avg, 0)"),
    "energy_mj": ("bigint", "coalesce(r.energy_mj, 0)"),
    "with_energy": ("int", _seconds_with("r.energy_mj")),
    "with_bandwidth": ("int", _seconds_with("r.bandwidth_avg")),
    "bandwidth": ("float8", _sum_of("r.bandwidth_avg")),
    "with_tensor": ("int", _seconds_with("r.tensor_avg")),
    "tensor": ("float8", _sum_of("r.tensor_avg")),
    "link_kib": (
        "float8",
        "CASE WHEN r.tensor_avg IS NULL THEN 0"
        " ELSE r.seconds::float8 * (coalesce(r.pcie_kb, 0)::float8 + coalesce(r.nvlink_kb, 0)) END",
    ),
    "tensor_with_energy": (
        "float8",
        f"CASE WHEN r.energy_mj > 0 THEN {_sum_of('r.tensor_avg')} ELSE 0 END",
    ),
    "tensor_mj": ("float8", "CASE WHEN r.tensor_avg IS NULL THEN 0 ELSE coalesce(r.energy_mj, 0) END"),
    "with_sm": ("int", _seconds_with("r.sm_avg")),
    "sm": ("float8", _sum_of("r.sm_avg")),
}
"""What is summed up, by its name: its type, and its value in five minutes `r`."""


def _hour_from(moment: str) -> str:
    """The first hour that begins at a moment or later, as `(day, hour)`, in SQL."""
    hour = f"({moment} - interval '1 microsecond') AT TIME ZONE 'UTC' + interval '1 hour'"
    return f"(({hour})::date, extract(hour FROM {hour})::int)"


# Elements of lists are read one by one: what a figure does not need costs nothing then. Both halves have the
# same types, so that PostgreSQL can look the rows of an allocation up by their index.
USE = f"""
SELECT d.allocation_id, (d.day + d.hours[i] * interval '1 hour') AT TIME ZONE 'UTC' AS hour,
  {", ".join(f"d.{name}[i]::{kind} AS {name}" for name, (kind, _) in _OF_ROW.items())}
FROM allocation_gpuuseday d
CROSS JOIN LATERAL generate_series(1, cardinality(d.hours)) i
WHERE d.day >= (%(starts)s AT TIME ZONE 'UTC')::date
  AND (d.day, d.hours[i]::int) >= {_hour_from("%(starts)s")}
  AND (d.day, d.hours[i]::int) < {_hour_from("least(%(ends)s, %(summed_until)s)")}
UNION ALL
SELECT r.allocation_id, date_trunc('hour', r.at, 'UTC') AS hour,
  {", ".join(f"({value})::{kind} AS {name}" for name, (kind, value) in _OF_ROW.items())}
FROM allocation_gpuuse r
WHERE r.at >= greatest(%(starts)s, %(summed_until)s) AND r.at < %(ends)s AND r.allocation_id IS NOT NULL
"""  # noqa: S608 (our own text)
"""The use of allocations in [starts, ends) by hour, in one row or several. An hour of a day with sums counts
where it begins. Parameters: `starts`, `ends`, and `summed_until` of `use_summed_until`."""

_ARRAYS = {"int": "smallint[]", "bigint": "bigint[]", "float8": "real[]"}
USE_SUM = f"""
INSERT INTO allocation_gpuuseday (tenant_id, allocation_id, day, hours, {", ".join(_OF_ROW)})
SELECT tenant_id, allocation_id, %(day)s, array_agg(hour ORDER BY hour)::smallint[],
  {", ".join(f"array_agg({name} ORDER BY hour)::{_ARRAYS[kind]}" for name, (kind, _) in _OF_ROW.items())}
FROM (
  SELECT r.tenant_id, r.allocation_id, extract(hour FROM r.at AT TIME ZONE 'UTC') AS hour,
    {", ".join(f"sum({value}) AS {name}" for name, (_, value) in _OF_ROW.items())}
  FROM allocation_gpuuse r
  WHERE r.at >= %(starts)s AND r.at < %(ends)s AND r.allocation_id IS NOT NULL
  GROUP BY 1, 2, 3) each
GROUP BY tenant_id, allocation_id
ON CONFLICT DO NOTHING
"""  # noqa: S608 (our own text)
"""Writes the sums of the rows of a day."""


def use_summed_until() -> datetime:
    """The end of the newest day with sums that the reader may see. All earlier rows that the reader may see
    are in sums, because days are summed up in their order, each at once for all organisations."""
    last = GpuUseDay.objects.aggregate(day=Max("day"))["day"]
    if last is None:
        return datetime.min.replace(year=1970, tzinfo=UTC)
    return datetime.combine(last + timedelta(days=1), time(), UTC)
