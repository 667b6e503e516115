"""Finished runs of workloads, with what nodes and programs have said of them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import connection

from allocation.points import HostSignals, host_signals
from allocation.queries.bookings.money.held_use import DEVICES
from allocation.queries.fleet.use_hours import IDLE_PERCENT
from allocation.rules.nodes.diagnosis import GIB, Signals, measured_mean, nvlink_peak_kb

# Newer runs count, because code and drivers change.
MOST_RUNS = 200
MOST_LISTED = 1_000
# The rate of a run is that of its last part, which has to be so long.
LEAST_MEASURED = timedelta(minutes=5)

_RUN = (
    "id",
    "label",
    "project_id",
    "workload",
    "gpu_class",
    "ask",
    "price_per_hour",
    "paid",
    "currency",
    "booked_seconds",
    "at",
    "advice",
    "gpus",
    "unit",
    "per_hour",
    "driver",
)
_PLAIN = (
    "watched",
    "measured",
    "idle",
    "works",
    "busy",
    "top",
    "swing",
    "throttled",
    "energy_mj",
    "energy_seconds",
)
_MEANS = ("bandwidth", "tensor", "pcie_kb", "nvlink_kb")
_SUMS = (
    *_PLAIN[:8],
    *(name for mean in _MEANS for name in (f"{mean}_s", mean)),
    "memory_mb",
    "memory_total_mb",
    *_PLAIN[8:],
    "last",
)
ROW_S = 300
# A run that never began, or that nobody came to, says nothing about the work.
_FINISHED = f"""
SELECT b.id, 'BK-' || b.number || coalesce('[' || b.array_index || ']', ''), b.project_id,
  b.workload, b.planned_class, b.ask, b.price_per_hour, coalesce(b.charged + b.corrected, 0),
  b.currency, b.duration_seconds, coalesce(p.at, b.ended_at, b.submitted) AS at,
  coalesce(b.labels->>'advice', ''), {DEVICES} AS devices, coalesce(p.unit, ''),
  CASE WHEN p.step > p.anchor_step AND p.at - p.anchor_at >= %(least)s
    THEN (p.step - p.anchor_step) / extract(epoch FROM p.at - p.anchor_at) * 3600 END,
  coalesce(p.driver, '')
FROM allocation_booking b
LEFT JOIN allocation_progress p ON p.booking_id = b.id
WHERE b.project_id = ANY(%(projects)s) AND b.state = 'ended' AND b.outcome <> 'no_show'
  AND b.planned_class <> '' AND NOT b.ask ? 'groups'
"""  # noqa: S608 (our own text)
_OF_ONE = _FINISHED + " AND b.workload = %(name)s ORDER BY at DESC, b.id LIMIT %(most)s"
_OF_ALL = _FINISHED + " AND b.workload <> '' ORDER BY at DESC, b.id LIMIT %(most)s"
# What is measured of work leaves the idle rows out. Seconds stand next to each sum, because
# not each reading has each value.
_DEVICES = """
SELECT a.booking_id, a.gpu_id, (g.node_id)::text,
  coalesce(extract(epoch FROM upper(a.period) - lower(a.period)), 0)::float8, lower(a.period), u.*
FROM allocation_allocation a
JOIN allocation_gpu g ON g.id = a.gpu_id
CROSS JOIN LATERAL (
  SELECT coalesce(sum(seconds), 0), coalesce(sum(measured), 0),
    coalesce(sum(measured) FILTER (WHERE idle), 0),
    coalesce(sum(measured) FILTER (WHERE works), 0),
    coalesce(sum(busy_avg * measured) FILTER (WHERE works), 0),
    coalesce(max(busy_max), 0),
    coalesce(sum((busy_max - busy_min) * measured) FILTER (WHERE works), 0),
    coalesce(sum(throttled) FILTER (WHERE works), 0),
    coalesce(sum(measured) FILTER (WHERE works AND bandwidth_avg IS NOT NULL), 0),
    coalesce(sum(bandwidth_avg * measured) FILTER (WHERE works), 0),
    coalesce(sum(measured) FILTER (WHERE works AND tensor_avg IS NOT NULL), 0),
    coalesce(sum(tensor_avg * measured) FILTER (WHERE works), 0),
    coalesce(sum(measured) FILTER (WHERE works AND pcie_kb IS NOT NULL), 0),
    coalesce(sum(pcie_kb::float8 * measured) FILTER (WHERE works), 0),
    coalesce(sum(measured) FILTER (WHERE works AND nvlink_kb IS NOT NULL), 0),
    coalesce(sum(nvlink_kb::float8 * measured) FILTER (WHERE works), 0),
    max(memory_max_mb), max(memory_total_mb),
    coalesce(sum(energy_mj), 0), coalesce(sum(seconds) FILTER (WHERE energy_mj IS NOT NULL), 0),
    max(at) FILTER (WHERE NOT idle)
  FROM (
    SELECT *, measured > 0 AND (processes_max = 0 OR busy_avg < %(idle)s) AS idle,
      measured > 0 AND NOT (coalesce(processes_max, 1) = 0 OR busy_avg < %(idle)s) AS works
    FROM allocation_gpuuse r WHERE r.allocation_id = a.id) r) u
WHERE a.booking_id = ANY(%(bookings)s) AND a.state IN ('releasing', 'ended') AND NOT a.abandoned
ORDER BY a.booking_id, lower(a.period), a.gpu_id
"""


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over `seconds`."""

    seconds: float
    total: float


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """What a GPU, slice or share was measured to do in a run. Means leave idle time out; `last` is the
    last five minutes that were not idle, as seconds since its start. Memory is in MB."""

    gpu: UUID
    node: str
    held: float
    watched: float = 0
    measured: float = 0
    idle: float = 0
    works: float = 0
    busy: float = 0
    top: float = 0
    swing: float = 0
    throttled: float = 0
    bandwidth: Mean = Mean(0, 0)
    tensor: Mean = Mean(0, 0)
    pcie_kb: Mean = Mean(0, 0)
    nvlink_kb: Mean = Mean(0, 0)
    memory_mb: int | None = None
    memory_total_mb: int | None = None
    energy_mj: float = 0
    energy_seconds: float = 0
    last: float | None = None


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A finished booking of a workload. `per_hour`: steps of the whole run in an hour, at its last rate."""

    id: UUID
    label: str
    project_id: UUID
    workload: str
    gpu_class: str
    ask: Mapping[str, Any]
    price_per_hour: Decimal
    paid: Decimal
    currency: str
    booked_seconds: int
    at: datetime
    advice: str
    gpus: int
    unit: str
    per_hour: float | None
    driver: str = ""
    devices: Sequence[DeviceUse] = field(default=())
    host: HostSignals = field(default=HostSignals())

    @property
    def slice(self) -> str:
        """The profile of its slices or `share`; empty: whole GPUs."""
        return str(self.ask.get("profile") or ("share" if self.ask.get("share") else ""))

    @property
    def per_gpu_hour(self) -> float | None:
        """Steps of a GPU in an hour, of whole GPUs only."""
        return None if self.per_hour is None or self.slice else self.per_hour / self.gpus

    @property
    def cost_per_unit(self) -> Decimal | None:
        """What a step cost, outside of peak hours."""
        return None if self.per_hour is None else self.price_per_hour / Decimal(self.per_hour)

    @property
    def held(self) -> float:
        """Seconds of all its devices together."""
        return sum(each.held for each in self.devices)

    @property
    def coverage(self) -> float:
        """The part of the held time with a utilisation."""
        return self._part(sum(each.measured for each in self.devices))

    @property
    def memory_coverage(self) -> float:
        """The part of the held time with readings of memory."""
        known = sum(each.watched for each in self.devices if each.memory_mb is not None)
        return self._part(known)

    @property
    def idle(self) -> float | None:
        """The idle part of the measured time; None: not measured."""
        measured = sum(each.measured for each in self.devices)
        return sum(each.idle for each in self.devices) / measured if measured else None

    @property
    def peak_memory_mb(self) -> int | None:
        """The most memory that one of its devices had in use."""
        return max((each.memory_mb for each in self.devices if each.memory_mb is not None), default=None)

    @property
    def fullest(self) -> list[float]:
        """The highest part of the memory in use, of each device with readings."""
        return [
            each.memory_mb / each.memory_total_mb
            for each in self.devices
            if each.memory_mb is not None and each.memory_total_mb
        ]

    @property
    def watts(self) -> float | None:
        """The mean power of all its devices together; None: not measured on each."""
        if not self.devices or not all(each.energy_seconds for each in self.devices):
            return None
        places = len({each.gpu for each in self.devices})
        seconds = sum(each.energy_seconds for each in self.devices)
        return sum(each.energy_mj for each in self.devices) / 1_000 / seconds * places

    @property
    def signals(self) -> Signals | None:
        """The means of the time that was not idle; None: no such time was measured."""
        works = sum(each.works for each in self.devices)
        if not works:
            return None

        def mean(name: str) -> float | None:
            parts: list[Mean] = [getattr(each, name) for each in self.devices]
            known = sum(each.seconds for each in parts)
            value = sum(each.total for each in parts) / known if known else None
            return measured_mean([(value, int(known)), (None, int(works - known))])

        pcie, nvlink, peak = mean("pcie_kb"), mean("nvlink_kb"), nvlink_peak_kb(self.gpu_class)
        return Signals(
            watched=self.coverage,
            busy=sum(each.busy for each in self.devices) / works,
            top=max(each.top for each in self.devices),
            swing=sum(each.swing for each in self.devices) / works,
            held=sum(each.throttled for each in self.devices) / works,
            bandwidth=mean("bandwidth"),
            tensor=mean("tensor"),
            pcie_gib=None if pcie is None else pcie / GIB,
            links=None if nvlink is None or peak is None else nvlink / peak,
            gpus=self.gpus,
            cpu=self.host.cpu,
            network_gib=self.host.network_gib,
        )

    @property
    def worked_seconds(self) -> float | None:
        """Seconds from its start to the end of its last work; None: no work was measured."""
        return max((each.last for each in self.devices if each.last is not None), default=None)

    @property
    def longest(self) -> float:
        """Seconds for which its devices were held, the longest of them."""
        return max((each.held for each in self.devices), default=0)

    def _part(self, seconds: float) -> float:
        return min(1.0, seconds / self.held) if self.held else 0.0


def runs_of(project_id: UUID, name: str, *, with_use: bool = True) -> list[FinishedRun]:
    """The newest finished runs of a workload in a project, the newest first."""
    facts = {"projects": [project_id], "name": name, "least": LEAST_MEASURED, "most": MOST_RUNS}
    return _runs(_rows(_OF_ONE, facts), with_use=with_use)


def runs_of_projects(projects: Iterable[UUID], *, with_use: bool = True) -> list[FinishedRun]:
    """The newest finished runs of all workloads of projects, the newest first."""
    facts = {"projects": list(projects), "least": LEAST_MEASURED, "most": MOST_LISTED}
    return _runs(_rows(_OF_ALL, facts), with_use=with_use)


def _runs(rows: Sequence[Sequence[Any]], *, with_use: bool) -> list[FinishedRun]:
    devices: dict[UUID, list[DeviceUse]] = {}
    hosts: Mapping[UUID, HostSignals] = {}
    if with_use and rows:
        bookings = [row[0] for row in rows]
        for booking, *row in _rows(_DEVICES, {"bookings": bookings, "idle": IDLE_PERCENT}):
            devices.setdefault(booking, []).append(_device(row))
        # What ran on no device has no signals.
        hosts = host_signals([*devices])
    return [_run(row, tuple(devices.get(row[0], ())), hosts.get(row[0], HostSignals())) for row in rows]


def _run(row: Sequence[Any], devices: Sequence[DeviceUse], host: HostSignals) -> FinishedRun:
    named = dict(zip(_RUN, row, strict=True))
    per_hour = named["per_hour"]
    named |= {"ask": json.loads(named["ask"]), "per_hour": None if per_hour is None else float(per_hour)}
    return FinishedRun(**named, devices=devices, host=host)


def _device(row: Sequence[Any]) -> DeviceUse:
    gpu, node, held, starts, *found = row
    named = dict(zip(_SUMS, found, strict=True))
    last = named.pop("last")
    values: dict[str, Any] = {name: float(named[name]) for name in _PLAIN}
    values |= {name: Mean(float(named[f"{name}_s"]), float(named[name])) for name in _MEANS}
    values |= {name: named[name] for name in ("memory_mb", "memory_total_mb")}
    worked = None if last is None else max(0.0, (last - starts).total_seconds() + ROW_S)
    return DeviceUse(gpu, node, held, **values, last=worked)


def _rows(statement: str, facts: dict[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, facts)
        return list(cursor.fetchall())
