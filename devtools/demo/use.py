"""The use of GPUs in the demo's past, in the five-minute rows that readings become.

Nodes of the simulated past report when programs begin and not every ten seconds, so these rows
are written directly. What a booking does with its GPUs follows from its number: most are busy, one
in five waits for its input, and one in nine has idle hours.
"""

from collections.abc import Iterator
from datetime import datetime
from math import ceil, sin

from allocation.models import Allocation, GpuUse
from allocation.queries.bookings.money.held_use import watts_of
from allocation.queries.fleet.telemetry import ROLLUP_STEP, rollup_bucket_of

SECONDS = int(ROLLUP_STEP.total_seconds())
# Every fourteenth row is missing, as after a restart of an agent.
MISSED = 14
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


def _rows(place: Allocation, until: datetime) -> Iterator[GpuUse]:
    since, ends = place.period.lower, min(place.period.upper or until, until)
    number, memory = place.booking.number, place.gpu.model.memory_mb
    at, step = rollup_bucket_of(since) + ROLLUP_STEP, 0
    is_whole = place.mode == "whole"
    watts = watts_of(place.gpu.gpu_class_id)
    while at + ROLLUP_STEP < ends:
        if (step + number) % MISSED:
            busy = _busy(number, step)
            power = round(1000 * watts * (0.12 + 0.83 * busy / 100)) if is_whole else None
            yield GpuUse(
                gpu_id=place.gpu_id,
                tenant_id=place.tenant_id,
                slot=None if is_whole else place.start,
                allocation_id=place.id,
                at=at,
                seconds=SECONDS,
                measured=SECONDS if is_whole else 0,
                busy_min=max(0, round(busy) - 6) if is_whole else None,
                busy_avg=busy if is_whole else None,
                busy_max=min(100, round(busy) + 5) if is_whole else None,
                memory_avg_mb=ceil(memory * place.size / 8 * 0.6),
                memory_max_mb=ceil(memory * place.size / 8 * 0.7),
                memory_total_mb=ceil(memory * place.size / 8),
                power_avg_mw=power,
                power_max_mw=power,
                temperature_max_c=62,
                processes_max=1,
                bandwidth_avg=busy * 0.6 if is_whole else None,
                tensor_avg=busy * 0.4 if is_whole else None,
                energy_mj=power * SECONDS if power else None,
            )
        at, step = at + ROLLUP_STEP, step + 1


def _busy(number: int, step: int) -> float:
    """Percent busy of a booking, so many steps after its start."""
    wave = 4 * sin(step / 3 + number)
    if number % 9 == 4 and step % 30 > 12:
        return 0.0
    return (38.0 if number % 5 == 2 else 88.0) + wave
