"""Celery tasks. Every task is safe to run twice."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from celery import shared_task
from django.utils import timezone

from allocation.services.decide.cycle import cycle_run, tick_run
from allocation.services.decide.leading import MOST_SOLVE_SECONDS
from allocation.services.decide.replays import replays_run, sample_request
from allocation.services.decide.self_check import invariants_run
from allocation.services.nodes.clock import ClockReading, clock_in_doubt
from allocation.services.nodes.telemetry import telemetry_sweep, usage_roll_up, usage_sum_up
from allocation.services.operate.maintenance.watch import maintenance_announce
from allocation.services.publish.publish import publish_due
from allocation.services.record.forecasts import forecasts_store
from allocation.services.record.liveness import program_seen
from allocation.services.record.variances import variances_store
from allocation.services.runs.ends_soon import ends_soon_notify
from allocation.services.runs.idle_use import idle_watch
from allocation.services.runs.no_shows import presence_watch
from allocation.services.runs.start import slow_starts_notify
from tenants.failures import steps_apart
from tenants.outbox import task_request_clear
from tenants.platform.log_ids import log_ids

# The longest rest between two turns: back-to-back turns would starve web requests and reports. Whoever
# asks while a long turn is on waits for its end, this rest, and the next turn.
MAX_REST_SECONDS = 0.5
# A turn costs much the same for one request as for ten. After one that answered as many, more will
# come, and they share the next turn if it is not at once.
BUSY_ANSWERS, BUSY_REST_SECONDS = 5, 0.2
# Replays of one task; what is left waits for the next minute.
REPLAYS_AT_ONCE = 10
# A turn may compute for MOST_SOLVE_SECONDS, and read and write before and after. The broker gives
# its task to another worker meanwhile, which finds the lock of the turn taken.
SOFT_TIME_LIMIT, TIME_LIMIT = MOST_SOLVE_SECONDS + 60, MOST_SOLVE_SECONDS + 75


class Pace:
    """Spaces turns: after each one the solver rests as long as the turn took, and for a while after
    one that had much to answer.

    Requests that arrive meanwhile share the next turn.
    """

    def __init__(self) -> None:
        """Starts without a rest."""
        self._ended, self._took = -math.inf, 0.0
        self._is_busy = False

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Measures a turn."""
        began, self._is_busy = time.monotonic(), False
        try:
            yield
        finally:
            self._ended = time.monotonic()
            self._took = self._ended - began

    def answered(self, count: int) -> None:
        """Notes how many bookings the turn answered."""
        self._is_busy = count >= BUSY_ANSWERS

    def rest(self) -> None:
        """Waits until the next turn may begin."""
        rest = max(min(self._took, MAX_REST_SECONDS), BUSY_REST_SECONDS if self._is_busy else 0.0)
        left = rest - (time.monotonic() - self._ended)
        if left > 0:
            time.sleep(left)


_pace = Pace()


def clock_read() -> ClockReading:
    """Reads this machine's clocks. Containers share the host's boot id and monotonic clock."""
    machine = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ClockReading(timezone.now(), time.clock_gettime(time.CLOCK_BOOTTIME), machine)


@shared_task(name="allocation.cycle", soft_time_limit=SOFT_TIME_LIMIT, time_limit=TIME_LIMIT)
def allocation_cycle() -> None:
    """Runs one turn of the solver, unless the clock has jumped."""
    _pace.rest()
    task_request_clear("allocation.cycle")
    reading = clock_read()
    program_seen("solver", reading.wall)
    if not clock_in_doubt(reading):
        with _pace.turn(), log_ids(task="allocation.cycle"):
            _pace.answered(cycle_run(reading.wall).answered)


@shared_task(name="allocation.tick", soft_time_limit=SOFT_TIME_LIMIT, time_limit=TIME_LIMIT)
def allocation_tick() -> None:
    """Runs a turn if one is due, which starts and ends bookings on time. Beat sends it when it has
    work."""
    reading = clock_read()
    program_seen("solver", reading.wall)
    if not clock_in_doubt(reading):
        with log_ids(task="allocation.tick"):
            tick_run(reading.wall)


@shared_task(name="allocation.publish")
def allocation_publish() -> None:
    """Publishes the assignments of nodes that changed."""
    task_request_clear("allocation.publish")
    publish_due(timezone.now())


@shared_task(name="allocation.stalls")
def allocation_stalls() -> None:
    """Notifies owners whose start waits for a slow or unreachable node."""
    slow_starts_notify(timezone.now())


@shared_task(name="allocation.presence")
def allocation_presence() -> None:
    """Warns owners of unused, idle and ending bookings, ends no-shows and announces maintenance,
    unless the clock has jumped."""
    reading = clock_read()
    if not clock_in_doubt(reading):
        steps_apart(
            "allocation.presence",
            reading.wall,
            presence_watch,
            idle_watch,
            ends_soon_notify,
            maintenance_announce,
        )


@shared_task(name="allocation.telemetry")
def allocation_telemetry() -> None:
    """Aggregates readings into five-minute rows and these into sums by hour, and deletes expired ones."""
    steps_apart("allocation.telemetry", timezone.now(), usage_roll_up, usage_sum_up, telemetry_sweep)


@shared_task(name="allocation.forecasts", ignore_result=True)
def allocation_forecasts() -> None:
    """Stores the forecasts of budgets, on which rungs of ladders can act."""
    forecasts_store(timezone.now())


@shared_task(name="allocation.variances", ignore_result=True)
def allocation_variances() -> None:
    """Compares the spend until yesterday with plan and usual days, once for each budget."""
    variances_store(timezone.now())


@shared_task(name="allocation.invariants")
def allocation_invariants() -> None:
    """Checks all invariants; the result is at /statusz."""
    task_request_clear("allocation.invariants")
    invariants_run(timezone.now())


@shared_task(name="decisions.replay")
def decisions_replay() -> None:
    """Replays the decisions that people asked for, and asks for the sample of the night."""
    task_request_clear("decisions.replay")
    sample_request(timezone.now())
    replays_run(timezone.now, most=REPLAYS_AT_ONCE)
