"""Readings become rows: bounded, told once, and kept as five-minute rows for ninety days."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db import connection, transaction
from django.db.models import F, Max, Min

from allocation import wire
from allocation.models import Allocation, Gpu, GpuSample, GpuUse, Node
from allocation.queries.fleet.telemetry import (
    ROLLUP_STEP,
    SAMPLES_KEPT,
    rollup_bucket_of,
    rollup_columns,
    rollup_parameters,
    rollup_sql,
)
from allocation.rules.nodes.plausible import is_implausible
from allocation.services.record.counters import counter_add

USE_KEPT = timedelta(days=90)
# One reading of a device in this time at most, whatever a node says.
READ_EVERY_S = 5
# An agent that was cut off sends what it measured meanwhile; its clock is believed this far.
LATE = timedelta(minutes=15)
# Rows may still change while readings of their time may come.
UNSETTLED = LATE + ROLLUP_STEP
_SLOTS = frozenset((None, *range(8)))
# A long way behind is caught up with in pieces, each a transaction of its own.
PIECE = timedelta(hours=6)


def samples_store(said: Sequence[tuple[UUID, wire.Telemetry]], now: datetime) -> None:
    """Keeps readings, each with its node. What is too much, or absurd, is dropped and counted."""
    if not said:
        return
    nodes = {node_id for node_id, _ in said}
    gpus = {
        (node_id, uuid): gpu_id
        for node_id, uuid, gpu_id in Gpu.objects.filter(node_id__in=nodes).values_list(
            "node_id", "uuid", "id"
        )
    }
    running = Allocation.objects.filter(gpu__node_id__in=nodes, state=Allocation.State.ACTIVE)
    tenants = {
        (node_id, row.hex): tenant
        for node_id, row, tenant in running.values_list("gpu__node_id", "id", "tenant_id")
    }
    too_many, absurd = 0, [0]
    odd: Counter[UUID] = Counter()
    samples = []
    for node_id, telemetry in said:
        at = _moment(telemetry.sent_at, now)
        too_many += max(0, len(telemetry.samples) - wire.SAMPLES_MAX)
        for sample in telemetry.samples[: wire.SAMPLES_MAX]:
            gpu, whose = (node_id, sample.gpu), (node_id, sample.allocation or "")
            if gpu in gpus and sample.slot in _SLOTS:
                values = _values(sample, absurd)
                odd[node_id] += is_implausible(values, whole=sample.slot is None)
                samples.append(
                    GpuSample(
                        gpu_id=gpus[gpu],
                        tenant_id=tenants.get(whose),
                        slot=sample.slot,
                        allocation_id=UUID(whose[1]) if whose in tenants else None,
                        at=at,
                        **values,
                    )
                )
    GpuSample.objects.bulk_create(samples, ignore_conflicts=True)
    for node_id, count in sorted((+odd).items()):
        Node.objects.filter(id=node_id).update(implausible=F("implausible") + count)
    counter_add("telemetry_too_many", too_many)
    counter_add("telemetry_absurd", absurd[0])


def usage_roll_up(now: datetime) -> int:
    """Writes the five-minute rows of what was read since the last time; returns how many.

    Rows follow from readings alone and are written by their key, so that killed anywhere, or run
    twice at once, it leaves the same. Young rows are made again while readings may still come.
    """
    until = rollup_bucket_of(now)
    last = GpuUse.objects.aggregate(last=Max("at"))["last"]
    since = last - UNSETTLED if last else GpuSample.objects.aggregate(at=Min("at"))["at"]
    written = 0
    while since is not None and rollup_bucket_of(since) < until:
        first, since = rollup_bucket_of(since), min(until, rollup_bucket_of(since) + PIECE)
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(_ROLL, rollup_parameters(ROLLUP_STEP, first, since))
            written += cursor.rowcount
    return written


def telemetry_sweep(now: datetime) -> int:
    """Removes readings that are rows by now, and rows that are too old; returns how many.

    A long backlog goes in pieces, one each time, so that no task takes long.
    """
    rows = GpuUse.objects.aggregate(first=Min("at"), last=Max("at"))
    if rows["last"] is None:
        # What was never rolled up is not thrown away, however old.
        return 0
    first = GpuSample.objects.aggregate(first=Min("at"))["first"] or now
    read = min(now - SAMPLES_KEPT, rows["last"], first + PIECE)
    used = min(now - USE_KEPT, rows["first"] + PIECE)
    gone = GpuSample.objects.filter(at__lt=read).delete()[0]
    return gone + GpuUse.objects.filter(at__lt=used).delete()[0]


_MEASURED = tuple(
    name
    for name in rollup_columns().split(", ")
    if name not in ("gpu_id", "slot", "allocation_id", "at")
)
_UPDATES = ", ".join(f"{name} = excluded.{name}" for name in _MEASURED)
# A row that is made again and is the same is not written: each would be a dead one more.
_IS_OTHER = (
    f"({', '.join(f'allocation_gpuuse.{name}' for name in _MEASURED)})"
    f" IS DISTINCT FROM ({', '.join(f'excluded.{name}' for name in _MEASURED)})"
)
_ROLL = (
    f"INSERT INTO allocation_gpuuse ({rollup_columns()}) {rollup_sql('true')}"
    f" ON CONFLICT ON CONSTRAINT use_once DO UPDATE SET {_UPDATES}"
    f" WHERE {_IS_OTHER}"
)


def _moment(sent_at: int, now: datetime) -> datetime:
    """When it was measured, to five seconds: the node's clock, unless that can't be."""
    spoken = sent_at if 0 <= now.timestamp() - sent_at <= LATE.total_seconds() else now.timestamp()
    return datetime.fromtimestamp(int(spoken) // READ_EVERY_S * READ_EVERY_S, UTC)


_PERCENT, _NATURAL, _FEW = 100, 2_000_000_000, 30_000
# KiB a second: more than any GPU has, and the sum of both directions still fits its column.
_PCIE, _NVLINK = 500 << 20, 900 << 20
_MOST = {
    "utilisation": _PERCENT,
    "memory_used_mb": _NATURAL,
    "memory_total_mb": _NATURAL,
    "power_mw": _NATURAL,
    "temperature_c": 150,
    "processes": _FEW,
    "bandwidth": _PERCENT,
    "tensor": _PERCENT,
    "sm_mhz": 10_000,
    "throttle": 0xFFFF_FFFF,
    "pcie_rx_kb": _PCIE,
    "pcie_tx_kb": _PCIE,
    "nvlink_rx_kb": _NVLINK,
    "nvlink_tx_kb": _NVLINK,
    "energy_mj": 1 << 60,
}


def _values(sample: wire.Sample, absurd: list[int]) -> dict[str, int | None]:
    """An absurd reading is no reading; how many there were is added to `absurd`."""
    found: dict[str, int | None] = {}
    for name, most in _MOST.items():
        value = getattr(sample, name)
        fits = value is None or 0 <= value <= most
        absurd[0] += not fits
        found[name] = value if fits else None
    return found
