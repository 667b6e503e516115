"""Queries on ninety days of telemetry: `python -m tests.bench.live.telemetry`.

A new PostgreSQL gets GPUs × days × 288 generated five-minute rows, in the order of time, as the
roll-up writes them, and two days of readings of the queried GPU. The bench measures

- "this booking, this hour", for old and recent bookings, and the curves of pages, through row-level
  security as a web process;
- one roll-up of a whole fleet's last minutes, and the removal of old rows.

With `--sums` it measures the sums by hour of a year instead: a day of random rows of all GPUs is summed up,
and copied to all days.
"""

import argparse
import contextlib
import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import django

from tests.bench.machine import machine, report, spread
from tests.servers.servers import Servers

NOW = datetime(2026, 11, 17, 10, tzinfo=UTC)
# A booking of twelve hours on every GPU, one after the other.
LASTS = timedelta(hours=12)

_ROWS = """
INSERT INTO allocation_gpuuse (gpu_id, tenant_id, allocation_id, at, seconds, measured, busy_min,
  busy_avg, busy_max, memory_avg_mb, memory_max_mb, memory_total_mb, power_avg_mw, power_max_mw,
  temperature_max_c, processes_max, bandwidth_avg, tensor_avg, pcie_kb, nvlink_kb, throttled,
  energy_mj)
SELECT g.id, %(tenant)s, md5(g.number || ':' || floor(extract(epoch FROM t) / %(lasts)s))::uuid, t,
  300, 300, 40, 60 + g.number %% 30, 99, 50000, 60000, 81559, 500000, 650000, 61, 1, 40.5, 30.5,
  1000, 200000, 0, 150000000
FROM generate_series(%(since)s, %(until)s - interval '5 minutes', interval '5 minutes') t,
  allocation_gpu g
"""
# Each value is another one, so that nothing is small because it repeats.
_RANDOM_ROWS = """
INSERT INTO allocation_gpuuse (gpu_id, tenant_id, allocation_id, at, seconds, measured, busy_min,
  busy_avg, busy_max, processes_max, bandwidth_avg, tensor_avg, sm_avg, pcie_kb, nvlink_kb, energy_mj)
SELECT g.id, %(tenant)s, md5(g.number || ':' || floor(extract(epoch FROM t) / %(lasts)s))::uuid, t,
  300, 270 + 30 * random(), 0, 100 * random(), 100, 1, 100 * random(), 100 * random(), 100 * random(),
  1000000 * random(), 90000000 * random(), 200000000 * random()
FROM generate_series(%(since)s, %(until)s - interval '5 minutes', interval '5 minutes') t,
  allocation_gpu g
"""
_COPIES = """
INSERT INTO allocation_gpuuseday ({columns}, day, allocation_id)
SELECT {columns}, day - n, md5(allocation_id::text || n)::uuid
FROM allocation_gpuuseday, generate_series(1, %(days)s - 1) n
"""
_ALL_SUMS = """
SELECT count(*), sum(seconds), sum(unused), sum(measured), sum(busy), sum(energy_mj), sum(with_energy),
  sum(bandwidth), sum(tensor), sum(link_kib), sum(sm)
FROM ({use}) u GROUP BY date_trunc('day', u.hour)
"""
_READINGS = """
INSERT INTO allocation_gpusample (gpu_id, tenant_id, allocation_id, at, utilisation,
  memory_used_mb, memory_total_mb, power_mw, temperature_c, processes, bandwidth, energy_mj)
SELECT g.id, %(tenant)s, md5(g.number || ':' || floor(extract(epoch FROM t) / %(lasts)s))::uuid, t,
  60, 50000, 81559, 500000, 61, 1, 40, extract(epoch FROM t)::bigint * 500000
FROM generate_series(%(since)s, %(until)s - interval '10 seconds', interval '10 seconds') t,
  allocation_gpu g
"""


@contextlib.contextmanager
def database() -> Iterator[Servers]:
    """Opens a new, migrated database as the web process does."""
    servers = Servers()
    os.environ.update(servers.environment())
    try:
        servers.database_ensure()
        django.setup()
        yield servers
    finally:
        servers.close()


def history_fill(gpus: int, days: int, tenant: UUID) -> dict[str, Any]:
    """Generates hardware, rows and readings; returns their number and size."""
    from django.db import connection  # noqa: PLC0415 (Django is there only now)

    from tests.roles import as_system  # noqa: PLC0415

    began = time.perf_counter()
    with as_system(), connection.cursor() as cursor:
        _hardware(gpus, tenant)
        values: dict[str, Any] = {"tenant": tenant, "lasts": int(LASTS.total_seconds())}
        for day in range(days, 0, -1):
            since = NOW - timedelta(days=day)
            cursor.execute(_ROWS, {**values, "since": since, "until": since + timedelta(days=1)})
        cursor.execute(_READINGS, {**values, "since": NOW - timedelta(hours=2), "until": NOW})
        cursor.execute("ANALYZE allocation_gpuuse; ANALYZE allocation_gpusample")
        cursor.execute(
            "SELECT count(*), pg_table_size('allocation_gpuuse'),"
            " pg_indexes_size('allocation_gpuuse') FROM allocation_gpuuse"
        )
        rows, table, indexes = cursor.fetchone()
        cursor.execute("SELECT count(*) FROM allocation_gpusample")
        (readings,) = cursor.fetchone()
    return {
        "rows": rows,
        "readings": readings,
        "table_mb": table >> 20,
        "indexes_mb": indexes >> 20,
        "filled_s": round(time.perf_counter() - began, 1),
    }


def _hardware(gpus: int, tenant: UUID) -> None:
    from allocation.models import Gpu, GpuModel, Node, Rack  # noqa: PLC0415
    from tenants.models import GpuClass, Tenant  # noqa: PLC0415

    Tenant.objects.create(id=tenant, slug="bench", name="Bench")
    gpu_class = GpuClass.objects.create(slug="h100", label="H100", order=0)
    model = GpuModel.objects.create(
        slug="h100-80gb", product_name="H100", gpu_class=gpu_class, memory_mb=81_559
    )
    rack = Rack.objects.create(name="a1")
    for first in range(0, gpus, 8):
        node = Node.objects.create(name=f"n{first // 8}", rack=rack)
        Gpu.objects.bulk_create(
            Gpu(
                number=first + index,
                node=node,
                index=index,
                uuid=f"GPU-{first + index}",
                model=model,
                gpu_class=gpu_class,
            )
            for index in range(min(8, gpus - first))
        )


def _timed(times: int, ask: Callable[[], object]) -> dict[str, float]:
    spent = []
    for _ in range(times):
        began = time.perf_counter()
        ask()
        spent.append(time.perf_counter() - began)
    return {**spread(spent), "first_ms": round(spent[0] * 1000, 1)}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Everything, on a fresh database."""
    tenant = uuid4()
    with database():
        filled = history_fill(options.gpus, options.days, tenant)
        return {
            "gpus": options.gpus,
            "days": options.days,
            **filled,
            **_questions(tenant, options),
            **_work(),
            "machine": machine(),
        }


def _questions(tenant: UUID, options: argparse.Namespace) -> dict[str, Any]:
    from django.db import connection  # noqa: PLC0415

    from allocation.queries.fleet.telemetry import use_of_allocations  # noqa: PLC0415
    from tenants.platform.wall import tenant_tx  # noqa: PLC0415

    def booking(number: int, at: datetime) -> list[UUID]:
        stretch = int(at.timestamp()) // int(LASTS.total_seconds())
        with connection.cursor() as cursor:
            cursor.execute("SELECT md5(%s || ':' || %s)::uuid", [str(number), str(stretch)])
            return [cursor.fetchone()[0]]

    def ask(back: timedelta, lasts: timedelta, count: int = 1) -> Callable[[], object]:
        since = NOW - back
        whose = [name for number in range(count) for name in booking(number, since)]

        def asked() -> object:
            with tenant_tx(tenant):
                return use_of_allocations(allocations=whose, since=since, until=since + lasts, now=NOW)

        return asked

    hour, most = timedelta(hours=1), timedelta(days=options.days)
    return {
        "this_booking_this_hour_old": _timed(50, ask(most - hour, hour)),
        "this_booking_this_hour_middle": _timed(50, ask(most / 2, hour)),
        "this_booking_this_hour_now": _timed(50, ask(hour, hour)),
        "whole_booking_12h": _timed(50, ask(most / 2, LASTS)),
        "gang_of_32_12h": _timed(20, ask(most / 2, LASTS, 32)),
    }


def _work() -> dict[str, Any]:
    from allocation.services.nodes.telemetry import telemetry_sweep, usage_roll_up  # noqa: PLC0415
    from tests.roles import as_system  # noqa: PLC0415

    with as_system():
        return {
            "roll_up": _timed(5, lambda: usage_roll_up(NOW)),
            "sweep_ten_minutes": _timed(1, lambda: telemetry_sweep(NOW + timedelta(minutes=10))),
        }


def sums_measure(options: argparse.Namespace) -> dict[str, Any]:
    """A year of sums by hour on a fresh database: their size, and the time to make and to read them."""
    with database():
        from django.db import connection  # noqa: PLC0415

        from allocation.queries.fleet.use_hours import USE, use_summed_until  # noqa: PLC0415
        from allocation.services.nodes.telemetry import usage_sum_up  # noqa: PLC0415
        from tests.roles import as_owner  # noqa: PLC0415

        tenant, midnight = uuid4(), NOW.replace(hour=0)
        day = {"since": midnight - timedelta(days=1), "until": midnight + timedelta(hours=1)}
        with as_owner(), connection.cursor() as cursor:
            _hardware(options.gpus, tenant)
            cursor.execute(_RANDOM_ROWS, {"tenant": tenant, "lasts": int(LASTS.total_seconds()), **day})
            made = _timed(1, lambda: usage_sum_up(NOW))
            cursor.execute(
                "SELECT string_agg(column_name, ', ') FROM information_schema.columns"
                " WHERE table_name = 'allocation_gpuuseday'"
                " AND column_name NOT IN ('id', 'day', 'allocation_id')"
            )
            cursor.execute(_COPIES.format(columns=cursor.fetchone()[0]), {"days": options.days})
            cursor.execute("ANALYZE allocation_gpuuseday")
            cursor.execute(
                "SELECT count(*), sum(cardinality(hours)), pg_table_size('allocation_gpuuseday'),"
                " pg_indexes_size('allocation_gpuuseday') FROM allocation_gpuuseday"
            )
            rows, hours, table, indexes = cursor.fetchone()
            facts = {"starts": midnight - timedelta(days=options.days), "ends": NOW}
            facts["summed_until"] = use_summed_until()
            read = _timed(3, lambda: cursor.execute(_ALL_SUMS.format(use=USE), facts))
    return {
        "gpus": options.gpus,
        "days": options.days,
        "rows": rows,
        "gpu_hours": hours,
        "table_mb": table >> 20,
        "indexes_mb": indexes >> 20,
        "sum_up_a_day": made,
        "read_all": read,
        "machine": machine(),
    }


def arguments() -> argparse.ArgumentParser:
    """The options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live.telemetry", description=__doc__)
    parser.add_argument("--gpus", type=int, default=256)
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--sums", action="store_true", help="measure the sums by hour")
    parser.add_argument("--out", type=Path, default=None, help="folder for telemetry.json")
    return parser


if __name__ == "__main__":
    chosen = arguments().parse_args()
    measured = sums_measure(chosen) if chosen.sums else measure(chosen)
    report("telemetry-sums" if chosen.sums else "telemetry", measured, chosen.out)
