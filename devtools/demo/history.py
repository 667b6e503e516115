"""Simulates the demo's past on one clock: people act, nodes report, and the portal decides.

This module writes nothing itself. Each step calls the services that pages, REST, the reader and
the tasks call, at an instant of the past; the next step is at the next instant with work to do.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, Min, Q
from django.db.models.functions import Lower

from allocation.models import Allocation, Booking, Pause
from allocation.queries.fleet.catalogue import class_labels, zone_labels
from allocation.rules.states import State
from allocation.services.decide.cycle import cycle_run, tick_run
from allocation.services.decide.due import Work
from allocation.services.nodes.telemetry import usage_roll_up
from allocation.services.record.open_pauses import OPEN
from allocation.services.runs.no_shows import presence_watch
from allocation.services.snapshot.kept import snapshot_keeper
from allocation.words.amounts import class_names
from billing.price_books import currency_latest
from devtools.demo.nodes import DemoFleet
from portal.integrations.mail.send import mails_send
from portal.integrations.relay import outbox_relay
from portal.storage.audit_sources import audit_seal_all
from tenants.platform.errors import Refused


@dataclass(frozen=True, slots=True)
class Intervals:
    """How often a cycle runs while bookings are queued, and how often messages, mails, rows of use
    and seals are processed."""

    turn: timedelta = timedelta(minutes=30)
    housekeeping: timedelta = timedelta(hours=6)


INTERVALS = Intervals()


@dataclass(frozen=True, slots=True)
class TimedAction:
    """An action of a person or of hardware at an instant. A refused action has no effect."""

    at: datetime
    do: Callable[[datetime], object]


def history_simulate(
    acts: Iterable[TimedAction],
    fleet: DemoFleet,
    *,
    since: datetime,
    until: datetime,
    intervals: Intervals = INTERVALS,
) -> None:
    """Simulates everything after `since` and before `until`."""
    waiting = sorted((act for act in acts if since < act.at < until), key=lambda act: act.at)
    now, kept, clock = since, since, since
    while (now := min(_next_due(now, clock, waiting, fleet), default=until)) < until:
        news = _acts(waiting, now) or now >= clock
        freed = fleet.reports(now)
        if fleet.measurements(now):
            news |= bool(presence_watch(now))
        if news or freed:
            # More than a minute has passed, so the portal would compare a kept snapshot with a
            # fresh one in each turn: twice the work for the same plan.
            snapshot_keeper.forget()
            (cycle_run if news or Work(now).is_undecided else tick_run)(now)
            fleet.document_read(now)
            clock = min(_clock_due(now, intervals.turn), default=until)
        if now - kept >= intervals.housekeeping:
            _housekeeping(now)
            kept = now
    _housekeeping(until)


def _next_due(
    after: datetime, clock: datetime, acts: list[TimedAction], fleet: DemoFleet
) -> Iterator[datetime]:
    """Yields the instants at which something is due next."""
    if acts:
        yield acts[0].at
    yield from (at for at in (clock, *fleet.due()) if at > after)


def _acts(waiting: list[TimedAction], now: datetime) -> bool:
    """Runs the actions that are due; returns whether there were any."""
    due = [act for act in waiting if act.at <= now]
    del waiting[: len(due)]
    for act in due:
        with suppress(Refused), transaction.atomic():
            act.do(now)
    return bool(due)


def _clock_due(after: datetime, turn: timedelta) -> Iterator[datetime]:
    """Yields the instants at which the clock alone requires a cycle: starts, ends, changes of a
    GPU's mode before a start, and ends of grace."""
    planned = (State.QUEUED, State.SCHEDULED, State.PAUSED)
    begins = Q(state__in=planned, planned_starts__gt=after)
    ends = Q(state__in=(State.SCHEDULED, State.STARTING, State.ACTIVE), planned_ends__gt=after)
    bookings = Booking.objects.aggregate(
        starts=Min("planned_starts", filter=begins), ends=Min("planned_ends", filter=ends)
    )
    pauses = Pause.objects.filter(OPEN, emptied_at=None, deadline__gt=after)
    resets = Allocation.objects.filter(
        state=Allocation.State.PLANNED, gpu__model__mode_switch="reset", gpu__mode_wanted=""
    ).exclude(mode=F("gpu__mode"))
    change = resets.aggregate(at=Min(Lower("period")), ahead=Min("gpu__model__switch_seconds"))
    found = [bookings["starts"], bookings["ends"], pauses.aggregate(at=Min("deadline"))["at"]]
    if change["at"] is not None:
        found.append(change["at"] - timedelta(seconds=change["ahead"]))
    if Booking.objects.filter(state__in=(State.QUEUED, State.PAUSED)).exists():
        found.append(after + turn)
    yield from (at for at in found if at is not None and at > after)


def _housekeeping(now: datetime) -> None:
    """Runs the other periodic tasks. Their sentences name classes by labels, as in a worker."""
    with class_names(class_labels, zone_labels, currency=currency_latest):
        outbox_relay(now)
        mails_send(now)
    usage_roll_up(now)
    audit_seal_all(now)
