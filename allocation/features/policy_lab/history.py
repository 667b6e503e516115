"""Reads the site's past: requests with their times, lengths of runs, outages and maintenance."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from random import Random

from django.db import connection
from django.db.models import Q

from allocation.features.policy_lab.demand import source_of
from allocation.features.policy_lab.play import History, Outage, Past, Planned
from allocation.models import Booking, Gpu, GpuEvent, Maintenance
from allocation.rules.ask import MIN_DURATION_SECONDS
from allocation.rules.states import State
from allocation.services.policy.scenarios import Key, Value, scenario_site
from allocation.services.snapshot.hardware import maintenance_rows
from allocation.services.snapshot.snapshot import calendar_read, requests_of, seconds
from solver import Request, Snapshot

# What never waited for the solver is no demand on it.
_NEVER_ASKED = (State.AWAITING_APPROVAL, State.WAITLISTED, State.OFFERED, State.REJECTED, State.EXPIRED)
_BROKEN = (GpuEvent.Kind.UNREACHABLE, GpuEvent.Kind.HANG)
# A shorter silence of a node takes no work from it.
SHORTEST_OUTAGE = timedelta(minutes=10)
PERMILLE = 1_000
_RUNS = """
SELECT r.booking_id, lower(r.spans), upper(r.spans),
       (SELECT sum(extract(epoch FROM upper(each) - lower(each))) FROM unnest(r.spans) AS each)::bigint
FROM (
  SELECT a.booking_id, range_agg(a.period * tstzrange('-infinity', %(now)s)) AS spans
  FROM allocation_allocation a
  WHERE a.state IN ('active', 'releasing', 'ended') AND a.period && tstzrange(%(since)s, %(now)s)
  GROUP BY 1) r
WHERE NOT isempty(r.spans)
"""
_SEEN_GPUS = """
SELECT DISTINCT a.gpu_id::text FROM allocation_allocation a
WHERE a.state IN ('active', 'releasing', 'ended') AND a.period && tstzrange(%(since)s, %(now)s)
"""
_ENERGY = """
SELECT g.gpu_class_id, sum(r.energy_mj)::bigint, sum(r.seconds * a.units)::bigint
FROM allocation_gpuuse r
JOIN allocation_allocation a ON a.id = r.allocation_id
JOIN allocation_gpu g ON g.id = a.gpu_id
WHERE r.at >= %(since)s AND r.at < %(now)s AND r.energy_mj IS NOT NULL
GROUP BY 1 ORDER BY 1
"""


@dataclass(frozen=True, slots=True)
class Names:
    """Names of what a report speaks of, by id."""

    bookings: dict[str, str]
    tenants: dict[str, str]
    projects: dict[str, str]

    def with_copies(self, history: History) -> "Names":
        """The same with those of bookings that were drawn from others, as `like` these."""
        ids = (each.request.booking for each in history.past)
        copies = {name: f"like {self.bookings[source_of(name)]}" for name in ids if name not in self.bookings}
        return replace(self, bookings=self.bookings | copies)


def history_read(since: datetime, until: datetime) -> tuple[History, Names]:
    """The past in [since, until), for the system's role. Fleet, tiers and limits are those of now."""
    rows = list(
        Booking.objects.filter(submitted__lt=until)
        .filter(Q(ended_at=None) | Q(ended_at__gt=since))
        .exclude(state__in=_NEVER_ASKED)
        .select_related("tier", "series", "tenant", "project")
        .order_by("id")
    )
    runs = _runs(since, until)
    past = tuple(_past(row, runs.get(str(row.id)), since, until) for row in rows)
    site = _emptied(calendar_read(until), seconds(since), _gpus_seen(since, until))
    names = Names(
        {str(row.id): row.label for row in rows},
        {str(row.tenant_id): row.tenant.slug for row in rows},
        {str(row.project_id): row.project.slug for row in rows},
    )
    history = History(site, past, seconds(until), _outages(since, until), _maintenance(since, until))
    return history, names


def history_with(history: History, scenario: Mapping[Key, Value]) -> History:
    """The same past on a site with the tiers and limits of a scenario."""
    if not scenario:
        return history
    asked = replace(history.site, requests=tuple(each.request for each in history.past))
    site = scenario_site(asked, scenario)
    past = (replace(each, request=request) for each, request in zip(history.past, site.requests, strict=True))
    return replace(history, site=replace(site, requests=()), past=tuple(past))


def lengths_of(history: History, seed: int) -> dict[str, int]:
    """How long each booking runs. Unknown ones are drawn from what others of the tier used of what they
    asked for; the same seed draws the same."""
    by_tier: dict[str, list[int]] = {}
    for each in history.past:
        if each.really is not None and not each.is_first:
            part = each.really * PERMILLE // max(1, each.request.duration)
            by_tier.setdefault(each.request.tier, []).append(min(PERMILLE, part))
    found = {}
    for each in history.past:
        request = each.request
        if each.really is not None:
            found[request.booking] = each.really
            continue
        parts = by_tier.get(request.tier) or [PERMILLE]
        part = Random(f"{seed} {request.booking}").choice(parts)  # noqa: S311 (not a secret)
        found[request.booking] = max(1, each.least, request.duration * part // PERMILLE)
    return found


def is_drawn(history: History) -> bool:
    """Whether any length is unknown, so that seeds make a difference."""
    return any(each.really is None for each in history.past)


def energy_read(since: datetime, until: datetime) -> dict[str, tuple[int, int]]:
    """Measured millijoules and unit-seconds by class; a class without readings is missing."""
    with connection.cursor() as cursor:
        cursor.execute(_ENERGY, {"since": since, "now": until})
        return {name: (energy, units) for name, energy, units in cursor.fetchall() if units}


def _runs(since: datetime, until: datetime) -> dict[str, tuple[datetime, datetime, int]]:
    with connection.cursor() as cursor:
        cursor.execute(_RUNS, {"since": since, "now": until})
        return {str(row[0]): (row[1], row[2], int(row[3])) for row in cursor.fetchall()}


def _past(row: Booking, run: tuple[datetime, datetime, int] | None, since: datetime, until: datetime) -> Past:
    """A booking as it was asked for; one that ran before `since` continues with what was left of it."""
    (request,) = requests_of((row,), until)
    request = replace(
        request,
        duration=max(MIN_DURATION_SECONDS, row.duration_seconds),
        latest=seconds(row.deadline) if row.deadline else None,
        fixed=row.starts is not None,
        planned=None,
        series=None,
        override="",
        revision=0,
    )
    is_over = row.ended_at is not None and row.ended_at <= until
    if run is None:
        is_dropped = is_over and row.state != State.REFUSED and row.ended_at is not None
        cancelled = seconds(row.ended_at) if is_dropped and row.ended_at else None
        return Past(_from(request, since), cancelled=cancelled)
    began, ended, length = run
    if began < since:
        left = max(1, seconds(ended) - seconds(since))
        rest = max(left, request.duration - (seconds(since) - seconds(began)))
        begin = seconds(since)
        request = replace(request, submitted=begin, earliest=begin, duration=rest, latest=None, fixed=False)
        really = left if is_over else None
        return Past(request, really, least=left, is_first=True)
    request = replace(request, duration=max(request.duration, length))
    return Past(_from(request, since), max(1, length) if is_over else None, least=length)


def _from(request: Request, since: datetime) -> Request:
    """The request, asked for at the earliest when the history begins."""
    begin = seconds(since)
    if request.submitted >= begin:
        return request
    return replace(request, submitted=begin, earliest=max(begin, request.earliest))


def _gpus_seen(since: datetime, until: datetime) -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute(_SEEN_GPUS, {"since": since, "now": until})
        return {row[0] for row in cursor.fetchall()}


def _emptied(site: Snapshot, begin: int, seen: set[str]) -> Snapshot:
    """The fleet and the rules of a site. GPUs that had a run can be used. Exceptions, caps and cool-downs
    of present bookings are left out."""
    return Snapshot(
        now=begin,
        models=site.models,
        gpus=tuple(replace(gpu, usable=gpu.usable or gpu.id in seen, silent=False) for gpu in site.gpus),
        held=(),
        requests=(),
        extensions=(),
        limits=site.limits,
        tiers=site.tiers,
        used=tuple(each for each in site.used if each.day + 86_400 <= begin),
        hosts=site.hosts,
        labs=site.labs,
        persons=site.persons,
    )


def _outages(since: datetime, until: datetime) -> tuple[Outage, ...]:
    """The times in which nodes did not answer, or drivers hung."""
    rows = GpuEvent.objects.filter(kind__in=_BROKEN, at__lt=until)
    rows = rows.filter(Q(until=None) | Q(until__gt=since)).order_by("at", "id")
    gpus: dict[object, list[str]] = {}
    for gpu, node in Gpu.objects.order_by("id").values_list("id", "node_id"):
        gpus.setdefault(node, []).append(str(gpu))
    return tuple(
        Outage(gpu, seconds(row.at), seconds(row.until or until))
        for row in rows
        if (row.until or until) - row.at >= SHORTEST_OUTAGE
        for gpu in ([str(row.gpu_id)] if row.gpu_id else gpus.get(row.node_id, ()))
    )


def _maintenance(since: datetime, until: datetime) -> tuple[Planned, ...]:
    """What was planned, with the end that it really had."""
    found: list[Planned] = []
    for row in Maintenance.objects.filter(starts__lt=until, ends__gt=since).order_by("created", "id"):
        ends = min(row.ends, row.ended_at) if row.ended_at else row.ends
        found += [
            Planned(seconds(row.created), replace(blackout, ends=seconds(ends)))
            for blackout in (maintenance_rows([row]) if ends > row.starts else ())
        ]
    return tuple(found)
