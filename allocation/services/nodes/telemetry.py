"""Telemetry: readings are bounded and stored once, then kept as five-minute rows for 90 days, and as sums
by hour for 400."""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from uuid import UUID

from django.db import connection, transaction
from django.db.models import F, Max, Min

import wire
from allocation.models import Allocation, Gpu, GpuSample, GpuUse, GpuUseDay, Node
from allocation.points import NODE_TELEMETRY, program_lines_keep
from allocation.queries.fleet.telemetry import (
    ROLLUP_STEP,
    SAMPLES_KEPT,
    rollup_bucket_of,
    rollup_columns,
    rollup_parameters,
    rollup_sql,
)
from allocation.queries.fleet.use_hours import USE_SUM, use_summed_until
from allocation.rules.nodes.plausibility import is_implausible
from allocation.services.record.counters import counter_add
from tenants.platform.database.compiled import Compiled

USE_KEPT = timedelta(days=90)
# As long as histories of bookings: a month and that of the year before can be compared.
SUMS_KEPT, DAY = timedelta(days=400), timedelta(days=1)
# At most one reading of a device in this time.
READ_EVERY_S = 5
# An agent that was disconnected sends its readings later; its clock is believed this far.
LATE = timedelta(minutes=15)
# Rows may change while readings of their time may arrive.
UNSETTLED = LATE + ROLLUP_STEP
_SLOTS = frozenset((None, *range(8)))
# A backlog is processed in pieces, each in its own transaction.
PIECE = timedelta(hours=6)

_gpus = Compiled(
    lambda _now, nodes: Gpu.objects.filter(node_id__in=nodes).values_list("node_id", "uuid", "id")
)
_running = Compiled(
    lambda _now, nodes: Allocation.objects.filter(
        gpu__node_id__in=nodes, state=Allocation.State.ACTIVE
    ).values_list("gpu__node_id", "id", "tenant_id")
)


def samples_store(readings: Sequence[tuple[UUID, wire.Telemetry]], now: datetime) -> None:
    """Stores readings, each with its node. Excess and impossible values are dropped and counted."""
    if not readings:
        return
    nodes = {node_id for node_id, _ in readings}
    gpus = {(node_id, uuid): gpu_id for node_id, uuid, gpu_id in _gpus(now, nodes)}
    tenants = {(node_id, row.hex): tenant for node_id, row, tenant in _running(now, nodes)}
    too_many = impossible = 0
    implausible: Counter[UUID] = Counter()
    samples = []
    for node_id, telemetry in readings:
        at = _moment(telemetry.sent_at, now)
        too_many += max(0, len(telemetry.samples) - wire.SAMPLES_MAX)
        for sample in telemetry.samples[: wire.SAMPLES_MAX]:
            gpu, whose = (node_id, sample.gpu), (node_id, sample.allocation or "")
            if gpu in gpus and sample.slot in _SLOTS:
                values = _values(sample)
                impossible += _impossible_count(sample, values)
                implausible[node_id] += is_implausible(values, whole=sample.slot is None)
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
    for node_id, count in sorted((+implausible).items()):
        Node.objects.filter(id=node_id).update(implausible=F("implausible") + count)
    counter_add("telemetry_too_many", too_many)
    counter_add("telemetry_absurd", impossible)
    program_lines_keep(_lines(readings, tenants), now)
    for keep in NODE_TELEMETRY:
        keep(readings, now)


def _lines(
    readings: Sequence[tuple[UUID, wire.Telemetry]], running: Container[tuple[UUID, str]]
) -> list[tuple[UUID, str]]:
    """The lines of programs, each with an allocation that is active on the node that sent it."""
    return [
        (UUID(said.allocation), said.line)
        for node_id, telemetry in readings
        for said in telemetry.progress[: wire.PROGRESS_MAX]
        if (node_id, said.allocation) in running
    ]


def usage_roll_up(now: datetime) -> int:
    """Writes the five-minute rows of new readings; returns how many.

    Rows depend on readings alone and are upserted by key, so an interrupted or concurrent run gives
    the same result. Recent rows are written again while readings may still arrive.
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


def usage_sum_up(now: datetime) -> int:
    """Writes the sums of the oldest day without them, when its rows are final; returns how many.

    Each call writes one day. It is one statement for all organisations, so an interrupted run has written
    nothing.
    """
    first, last = _unsummed(), GpuUse.objects.aggregate(at=Max("at"))["at"]
    if first is None or last is None:
        return 0
    starts = datetime.combine(first.astimezone(UTC).date(), time(), UTC)
    ends = starts + DAY
    if min(last, now) < ends + UNSETTLED:
        return 0
    with connection.cursor() as cursor:
        cursor.execute(USE_SUM, {"day": starts.date(), "starts": starts, "ends": ends})
        return int(cursor.rowcount)


def _unsummed() -> datetime | None:
    """The oldest row of an allocation whose day has no sums."""
    rows = GpuUse.objects.filter(at__gte=use_summed_until(), allocation_id__isnull=False)
    return rows.order_by("at").values_list("at", flat=True).first()


def telemetry_sweep(now: datetime) -> int:
    """Removes readings that have become rows, rows that are in sums, and sums that are too old; returns
    how many.

    Each call removes one piece of a backlog, so that no task takes long.
    """
    rows = GpuUse.objects.aggregate(first=Min("at"), last=Max("at"))
    if rows["last"] is None:
        # Readings that were never rolled up are kept.
        return 0
    first = GpuSample.objects.aggregate(first=Min("at"))["first"] or now
    read = min(now - SAMPLES_KEPT, rows["last"], first + PIECE)
    used = min(now - USE_KEPT, rows["first"] + PIECE, _unsummed() or now)
    gone = GpuSample.objects.filter(at__lt=read).delete()[0]
    gone += GpuUse.objects.filter(at__lt=used).delete()[0]
    return gone + GpuUseDay.objects.filter(day__lt=(now - SUMS_KEPT).astimezone(UTC).date()).delete()[0]


_MEASURED = tuple(
    name for name in rollup_columns().split(", ") if name not in ("gpu_id", "slot", "allocation_id", "at")
)
_UPDATES = ", ".join(f"{name} = excluded.{name}" for name in _MEASURED)
# Unchanged rows are not written again: each would leave a dead tuple.
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
    """Time of measurement to five seconds, by the node's clock if that is plausible."""
    is_plausible = 0 <= now.timestamp() - sent_at <= LATE.total_seconds()
    measured = int(sent_at if is_plausible else now.timestamp())
    return datetime.fromtimestamp(measured // READ_EVERY_S * READ_EVERY_S, UTC)


_PERCENT, _NATURAL, _FEW = 100, 2_000_000_000, 30_000
# KiB per second: more than any GPU has, and the sum of both directions fits its column.
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
    "sm": _PERCENT,
    "sm_mhz": 10_000,
    "throttle": 0xFFFF_FFFF,
    "pcie_rx_kb": _PCIE,
    "pcie_tx_kb": _PCIE,
    "nvlink_rx_kb": _NVLINK,
    "nvlink_tx_kb": _NVLINK,
    "energy_mj": 1 << 60,
}


def _values(sample: wire.Sample) -> dict[str, int | None]:
    """The values of a sample, with impossible ones as None."""
    found: dict[str, int | None] = {}
    for name, most in _MOST.items():
        value = getattr(sample, name)
        found[name] = value if value is not None and 0 <= value <= most else None
    return found


def _impossible_count(sample: wire.Sample, values: Mapping[str, int | None]) -> int:
    """How many values of the sample `_values` has left out."""
    return sum(value is None and getattr(sample, name) is not None for name, value in values.items())
