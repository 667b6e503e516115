"""The demo site: hardware, people, money, and two weeks of bookings around today.

Everything that is booked, runs, is paused, ends and is charged comes out of the portal's own
services: on the first start the past week is lived through at the clock of then (`seed_past`).
"""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path

from django.db import transaction
from django.db.models import Max

from allocation.models import Booking, BookingEvent
from billing.rules import midnight
from portal.demo.catalogue import catalogue_seed
from portal.demo.features import (
    current_requests,
    feature_actions,
    maintenance_planned,
    series_asked,
)
from portal.demo.history import history_simulate
from portal.demo.nodes import DemoFleet, nodes_enrol
from portal.demo.people import credentials_write, people_seed
from portal.demo.week import People, booking_actions, day_plans, opening_plans
from tenants.audit import audit_record
from tenants.models import AuditEntry, Tenant
from tenants.platform.errors import Refused

PAST_DAYS = 7
COMING_DAYS = 7
MARK = "demo.filled"
MINUTE = timedelta(minutes=1)


def seed(*, now: datetime, path: Path, url: str) -> int:
    """Makes what is missing and returns how many bookings are new.

    On the first start the past week is lived through; a start that was broken off goes on where it
    was. The first start of a later day asks for what begins then and on the days that have come
    since. Must run as the database's owner, who sees every tenant, outside a transaction.
    """
    now = now.replace(microsecond=0)
    today = now.astimezone(UTC).date()
    begin = midnight(today - timedelta(days=PAST_DAYS + 1))
    before = Booking.objects.count()
    is_first = not AuditEntry.objects.filter(action=MARK).exists()
    catalogue_seed(begin)
    people_seed(today, begin if is_first else now)
    if is_first:
        nodes_enrol(begin)
        _past(begin, now.replace(second=0), today)
    if not _is_marked("asked", today):
        _today(now, today)
        _mark("asked", today, now)
    credentials_write(path, url, now)
    return Booking.objects.count() - before


def _past(begin: datetime, edge: datetime, today: date) -> None:
    """Goes on after the last event, where a start was broken off."""
    last = BookingEvent.objects.aggregate(at=Max("at"))["at"]
    people = People(set())
    fleet = DemoFleet(people.no_shows)
    plans = [plan for day in _days(today, -PAST_DAYS) for plan in day_plans(day, edge)]
    acts = [
        *booking_actions(people, (*plans, *opening_plans(edge))),
        *feature_actions(people, fleet, today),
    ]
    history_simulate(acts, fleet, since=max(begin, last or begin), until=edge)
    fleet.finish(edge)
    for day in _days(today, 0):
        _mark("planned", day, edge)


def _today(now: datetime, today: date) -> None:
    """What is asked for now; the portal decides as soon as it runs."""
    people = People(set())
    soon = now.replace(second=0) + MINUTE
    lines = [plan.line for plan in opening_plans(soon)]
    for day in _days(today, 0):
        if not _is_marked("planned", day):
            lines += [plan.line for plan in day_plans(day, soon)]
            _mark("planned", day, now)
    for line in (*lines, *current_requests(today)):
        with suppress(Refused), transaction.atomic():
            people.book(line, now)
    for ask in (series_asked, partial(maintenance_planned, today + timedelta(days=2))):
        with suppress(Refused), transaction.atomic():
            ask(now)


def _days(today: date, first: int) -> Iterator[date]:
    return (today + timedelta(days=offset) for offset in range(first, COMING_DAYS))


def _is_marked(kind: str, day: date) -> bool:
    return AuditEntry.objects.filter(
        action=MARK, object_kind=kind, object_id=day.isoformat()
    ).exists()


def _mark(kind: str, day: date, now: datetime) -> None:
    tenant = Tenant.objects.get(slug="helix")
    target = (kind, day.isoformat())
    audit_record(tenant_id=tenant.id, actor_id=None, action=MARK, target=target, now=now)
