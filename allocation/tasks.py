"""Celery's way in. Every task is safe to run twice: the database is the truth."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from celery import shared_task
from django.utils import timezone

from allocation.services.decide.cycle import cycle_run, tick_run
from allocation.services.decide.self_check import invariants_run
from allocation.services.nodes.clock import ClockReading, clock_in_doubt
from allocation.services.nodes.telemetry import telemetry_sweep, usage_roll_up
from allocation.services.publish.publish import publish_due
from allocation.services.record.liveness import program_seen
from allocation.services.runs.no_shows import presence_watch
from allocation.services.runs.slow_starts import slow_starts_notify
from tenants.outbox import task_request_clear
from tenants.platform.log_ids import log_ids

# A turn after the other would take the machine from those whose words they turn on.
MAX_REST_SECONDS = 2.0


class Pace:
    """Turns that are asked for one after the other: in between the solver rests as long as the last
    one took, and who asks meanwhile is in the next one together."""

    def __init__(self) -> None:
        """The first is not waited for."""
        self._ended, self._took = -math.inf, 0.0

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Measures one."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._ended = time.monotonic()
            self._took = self._ended - began

    def rest(self) -> None:
        """Returns when the next may begin."""
        left = min(self._took, MAX_REST_SECONDS) - (time.monotonic() - self._ended)
        if left > 0:
            time.sleep(left)


_pace = Pace()


def clock_read() -> ClockReading:
    """This machine's clocks. The id is new after every start, and every container's is its host's,
    as the clock that never jumps is."""
    machine = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ClockReading(timezone.now(), time.clock_gettime(time.CLOCK_BOOTTIME), machine)


@shared_task(name="allocation.cycle")
def allocation_cycle() -> None:
    """One turn of the decision-maker, by a clock that has not jumped."""
    _pace.rest()
    task_request_clear("allocation.cycle")
    reading = clock_read()
    if not clock_in_doubt(reading):
        with _pace.turn(), log_ids(task="allocation.cycle"):
            cycle_run(reading.wall)


@shared_task(name="allocation.tick")
def allocation_tick() -> None:
    """A turn if the clock asks for one: this is what starts and ends bookings on time."""
    reading = clock_read()
    program_seen("solver", reading.wall)
    if not clock_in_doubt(reading):
        with log_ids(task="allocation.tick"):
            tick_run(reading.wall)


@shared_task(name="allocation.publish")
def allocation_publish() -> None:
    """Writes assignments that were not written yet."""
    task_request_clear("allocation.publish")
    publish_due(timezone.now())


@shared_task(name="allocation.stalls")
def allocation_stalls() -> None:
    """Tells who waits for a node that does not get anything ready."""
    slow_starts_notify(timezone.now())


@shared_task(name="allocation.presence")
def allocation_presence() -> None:
    """Warns of bookings that nobody uses, and ends them; by a clock that has not jumped."""
    reading = clock_read()
    if not clock_in_doubt(reading):
        presence_watch(reading.wall)


@shared_task(name="allocation.telemetry")
def allocation_telemetry() -> None:
    """Rolls readings up into five-minute rows, and removes what is older than it is useful."""
    now = timezone.now()
    usage_roll_up(now)
    telemetry_sweep(now)


@shared_task(name="allocation.invariants")
def allocation_invariants() -> None:
    """Asks whether every promise holds; the answer is at /statusz."""
    task_request_clear("allocation.invariants")
    invariants_run(timezone.now())
