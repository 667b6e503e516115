"""The use of GPUs in the demo's past, in the five-minute rows that readings become.

Nodes of the simulated past report when programs begin and not every ten seconds, so these rows
are written directly, and so is what their programs said last. What a booking does with its GPUs follows
from its workload (`devtools.demo.uses`), else from its number: most are busy, one in five waits for
its input, and one in nine has idle hours.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from math import ceil, sin

from allocation.features.progress.models import Progress
from allocation.models import Allocation, Booking, GpuUse
from allocation.queries.bookings.money.held_use import watts_of
from allocation.queries.fleet.telemetry import ROLLUP_STEP, rollup_bucket_of
from allocation.rules.states import State
from allocation.rules.workload_names import workload_of
from devtools.demo.uses import USES, Use, rate_of, works_at

SECONDS = int(ROLLUP_STEP.total_seconds())
# Every fourteenth row is missing, as after a restart of an agent.
MISSED = 14
# The rate of a run is that of so long before its end.
REPORTED = timedelta(minutes=20)
PLAIN = Use(88, 11, 53, 35)
RAN = ("active", "releasing", "ended")


def use_write(until: datetime) -> None:
    """Writes the rows of all whole GPUs that bookings had before `until`, and of slices their memory."""
    places = (
        Allocation.objects.filter(state__in=RAN, period__startswith__lt=until)
        .select_related("booking", "gpu__model")
        .order_by("id")
    )
    rows = (row for place in places for row in _rows(place, until))
    GpuUse.objects.bulk_create(list(rows), batch_size=2_000, ignore_conflicts=True)


def progress_write(until: datetime) -> None:
    """Writes what programs of finished runs said last, of workloads that report."""
    runs = Booking.objects.filter(state=State.ENDED, ended_at__lte=until).order_by("id")
    rows = (row for run in runs for row in _reports(run))
    Progress.objects.bulk_create(list(rows), ignore_conflicts=True)


def _reports(run: Booking) -> Iterator[Progress]:
    use = USES.get(workload_of(run))
    if use is None or run.ask.get("profile") or run.ready_at is None or run.released_at is None:
        return
    rate = rate_of(use, run.planned_class, run.number)
    if rate is None:
        return
    # A program says nothing more once its work is done.
    at = run.released_at - use.idle * (run.released_at - run.ready_at)
    since = at - REPORTED
    if since <= run.ready_at:
        return
    per_second = rate * run.ask["count"] / 3600
    steps = per_second * (at - run.ready_at).total_seconds()
    before = steps - per_second * REPORTED.total_seconds()
    yield Progress(
        booking=run,
        tenant_id=run.tenant_id,
        step=round(steps, 1),
        unit="step",
        metrics={},
        at=at,
        anchor_at=since,
        anchor_step=round(before, 1),
        mark_at=since,
        mark_step=round(before, 1),
    )


def _rows(place: Allocation, until: datetime) -> Iterator[GpuUse]:
    since, ends = place.period.lower, min(place.period.upper or until, until)
    number, memory = place.booking.number, place.gpu.model.memory_mb
    at, step = rollup_bucket_of(since) + ROLLUP_STEP, 0
    is_whole = place.mode == "whole"
    watts = watts_of(place.gpu.gpu_class_id)
    use = USES.get(workload_of(place.booking))
    part = 0.7 if use is None else use.memory
    while at + ROLLUP_STEP < ends:
        if (step + number) % MISSED:
            busy = _busy(number, step) if use is None else _busy_of(use, place, ends, at, step)
            power = round(1000 * watts * (0.12 + 0.83 * busy / 100)) if is_whole else None
            yield GpuUse(
                gpu_id=place.gpu_id,
                tenant_id=place.tenant_id,
                slot=None if is_whole else place.start,
                allocation_id=place.id,
                at=at,
                seconds=SECONDS,
                memory_avg_mb=ceil(memory * place.size / 8 * part * 0.9),
                memory_max_mb=ceil(memory * place.size / 8 * part),
                memory_total_mb=ceil(memory * place.size / 8),
                power_avg_mw=power,
                power_max_mw=power,
                temperature_max_c=62,
                processes_max=1,
                energy_mj=power * SECONDS if power else None,
                **(_measured(use or PLAIN, busy) if is_whole else {"measured": 0}),
            )
        at, step = at + ROLLUP_STEP, step + 1


def _measured(use: Use, busy: float) -> dict[str, float | int]:
    """What GPUs measure of their whole, by how busy they are."""
    works = busy / use.busy
    return {
        "measured": SECONDS,
        "busy_min": max(0, round(busy - use.swing / 2)),
        "busy_avg": busy,
        "busy_max": min(100, round(busy + use.swing / 2)) if busy else 0,
        "bandwidth_avg": min(100.0, use.bandwidth * works),
        "sm_avg": 0.8 * busy,
        "tensor_avg": min(100.0, use.tensor * works),
        "pcie_kb": round(use.pcie_kb * works),
        "nvlink_kb": round(use.nvlink_kb * works),
        "throttled": 0,
    }


def _busy_of(use: Use, place: Allocation, ends: datetime, at: datetime, step: int) -> float:
    if not works_at(use, place.period.lower, ends, at):
        return 0.0
    return use.busy * (1 + 0.03 * sin(step + place.booking.number))


def _busy(number: int, step: int) -> float:
    """Percent busy of a booking, so many steps after its start."""
    wave = 4 * sin(step / 3 + number)
    if number % 9 == 4 and step % 30 > 12:
        return 0.0
    return (38.0 if number % 5 == 2 else 88.0) + wave
