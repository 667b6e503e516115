"""One turn of the worker of capacity: what plans need, what providers list, what machines do.

The lock belongs to the session, so a worker that is killed leaves none. Providers are asked outside
of transactions.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial

from django.db import connection
from django.db.models import Q, QuerySet

from allocation.features.capacity.acquiring import machines_plan, machines_request
from allocation.features.capacity.burst import bookings_burst
from allocation.features.capacity.causes.backlog import backlog_plan, backlogs_due
from allocation.features.capacity.causes.forecast import forecast_plan, forecasts_due
from allocation.features.capacity.cloud import Cloud
from allocation.features.capacity.models import CapacityMachine, CapacityPlan
from allocation.features.capacity.orphans import orphans_asked, orphans_note
from allocation.features.capacity.pooling import bookings_pool
from allocation.features.capacity.providers import (
    Listed,
    Machines,
    Provider,
    ProviderFailed,
    providers,
)
from allocation.features.capacity.services import plans_end, plans_of_departed_cancel
from allocation.features.capacity.watching import machine_watch, machines_give_back
from allocation.models import Booking
from allocation.rules.states import State
from allocation.services.record.counters import counter_add
from tenants.failures import FailureLog

logger = logging.getLogger(__name__)

LOCK = 7_120_036
QUEUE = "capacity"
FAILED = "provider_failed:"


def bookings_due(now: datetime) -> QuerySet[Booking]:
    """Waiting bookings that may burst."""
    return Booking.objects.filter(state=State.QUEUED, pool="", ask__may_burst=True)


def capacity_due(now: datetime) -> QuerySet[CapacityPlan]:
    """The plans for which a turn has something to do."""
    open_plans = CapacityPlan.objects.filter(Q(state=CapacityPlan.State.ACTIVE, starts__lte=now))
    with_machines = CapacityPlan.objects.filter(machines__state__in=CapacityMachine.OPEN)
    return (open_plans | with_machines).distinct()


def capacity_turn(now: datetime, open_provider: Callable[[Provider], Machines] = Cloud) -> bool:
    """Runs one turn, unless another worker does; returns whether it ran."""
    with _lock() as is_taken:
        if is_taken:
            _turn(now, open_provider)
        return is_taken


@contextmanager
def _lock() -> Iterator[bool]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(1, %s)", [LOCK])
        is_taken = bool(cursor.fetchone()[0])
    try:
        yield is_taken
    finally:
        if is_taken:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(1, %s)", [LOCK])


def _turn(now: datetime, open_provider: Callable[[Provider], Machines]) -> None:
    failures = FailureLog(QUEUE, now)
    by_name = {each.name: each for each in providers()}
    opened: dict[str, Machines] = {}

    def at(provider: Provider) -> Machines:
        if provider.name not in opened:
            opened[provider.name] = open_provider(provider)
        return opened[provider.name]

    plans_of_departed_cancel(now)
    bookings_burst(now)
    for rule in list(backlogs_due(now).order_by("id").values_list("id", flat=True)):
        failures.handle(f"backlog rule {rule}", partial(backlog_plan, rule, now))
    for rule in list(forecasts_due(now).order_by("id").values_list("id", flat=True)):
        failures.handle(f"forecast rule {rule}", partial(forecast_plan, rule, now))
    machines_plan(now)
    listed = _listed(by_name, at)
    machines_request(at, by_name, listed, now)
    open_machines = CapacityMachine.objects.filter(state__in=CapacityMachine.OPEN)
    for key in list(open_machines.order_by("requested", "id").values_list("id", flat=True)):
        failures.handle(f"machine {key}", partial(machine_watch, key, by_name, listed, now))
    machines_give_back(at, by_name, listed)
    orphans_note(by_name, listed, now)
    for orphan in orphans_asked(listed):
        _orphan_give_back(at(by_name[orphan.provider]), orphan)
    active = CapacityPlan.objects.filter(state=CapacityPlan.State.ACTIVE).order_by("created", "id")
    for key in list(active.values_list("id", flat=True)):
        failures.handle(f"plan {key}", partial(bookings_pool, key, by_name, now))
    plans_end(now)


def _listed(by_name: dict[str, Provider], at: Callable[[Provider], Machines]) -> dict[str, list[Listed]]:
    """What each provider lists; one that does not answer is left out of this turn."""
    found: dict[str, list[Listed]] = {}
    for name, provider in by_name.items():
        try:
            found[name] = list(at(provider).listing())
        except ProviderFailed as error:
            logger.warning("%s", error)
            counter_add(FAILED + name)
    return found


def _orphan_give_back(at: Machines, orphan: CapacityMachine) -> None:
    try:
        at.release(orphan.provider_id)
    except ProviderFailed as error:
        logger.warning("%s", error)
