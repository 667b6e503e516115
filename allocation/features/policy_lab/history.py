"""Reads the site's past: its bookings, outages and maintenance, with fleet and rules of now."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from random import Random

from django.db import connection
from django.db.models import Q

from allocation.features.policy_lab.demand import source_of
from allocation.features.policy_lab.past_bookings import Bookings, bookings_read
from allocation.features.policy_lab.plays.past import History, Outage, Planned
from allocation.models import Gpu, GpuEvent, Maintenance
from allocation.queries.fleet.use_hours import USE, use_summed_until
from allocation.services.policy.scenario_sites import scenario_site
from allocation.services.policy.scenarios import Key, Value
from allocation.services.snapshot.hardware import maintenance_rows
from allocation.services.snapshot.quota_rows import used_read
from allocation.services.snapshot.snapshot import calendar_read, seconds
from solver import Snapshot, Used

_BROKEN = (GpuEvent.Kind.UNREACHABLE, GpuEvent.Kind.HANG)
# A shorter silence of a node takes no work from it.
SHORTEST_OUTAGE = timedelta(minutes=10)
PERMILLE = 1_000
_SEEN_GPUS = """
SELECT DISTINCT a.gpu_id::text FROM allocation_allocation a
WHERE a.state IN ('active', 'releasing', 'ended') AND a.period && tstzrange(%(since)s, %(now)s)
"""
_ENERGY = f"""
SELECT g.gpu_class_id, sum(r.energy_mj)::bigint, sum(r.with_energy * a.units)::bigint
FROM ({USE}) r
JOIN allocation_allocation a ON a.id = r.allocation_id
JOIN allocation_gpu g ON g.id = a.gpu_id
WHERE r.with_energy > 0
GROUP BY 1 ORDER BY 1
"""  # noqa: S608 (our own text)


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
    found = bookings_read(since, until)
    site = _emptied(calendar_read(until), seconds(since), _gpus_seen(since, until), used_read(since))
    history = History(site, found.past, seconds(until), _outages(since, until), _maintenance(since, until))
    return history, _names_of(found)


def _names_of(found: Bookings) -> Names:
    return Names(
        found.labels,
        {str(row.tenant_id): row.tenant.slug for row in found.rows},
        {str(row.project_id): row.project.slug for row in found.rows},
    )


def history_with(history: History, scenario: Mapping[Key, Value]) -> History:
    """The same past on a site with the tiers and limits of a scenario."""
    if not scenario:
        return history
    asked = [request for each in history.past for request in each.requests]
    site = scenario_site(replace(history.site, requests=tuple(asked)), scenario)
    requests = iter(site.requests)
    past = tuple(each.with_requests([next(requests) for _ in each.requests]) for each in history.past)
    return replace(history, site=replace(site, requests=()), past=past)


def lengths_of(history: History, seed: int) -> dict[str, int]:
    """How long each booking runs. Unknown ones are drawn from what others of the tier used of what they
    asked for; the same seed draws the same."""
    by_tier: dict[str, list[int]] = {}
    for each in history.past:
        if each.really is not None and not each.is_first:
            part = each.really * PERMILLE // each.longest
            by_tier.setdefault(each.request.tier, []).append(min(PERMILLE, part))
    found = {}
    for each in history.past:
        request = each.request
        if each.really is not None:
            found[request.booking] = each.really
            continue
        parts = by_tier.get(request.tier) or [PERMILLE]
        part = Random(f"{seed} {request.booking}").choice(parts)  # noqa: S311 (not a secret)
        found[request.booking] = max(1, each.least, each.longest * part // PERMILLE)
    return found


def is_drawn(history: History) -> bool:
    """Whether any length is unknown, so that seeds make a difference."""
    return any(each.really is None for each in history.past)


def energy_read(since: datetime, until: datetime) -> dict[str, tuple[int, int]]:
    """Measured millijoules and unit-seconds by class; a class without readings is missing."""
    with connection.cursor() as cursor:
        cursor.execute(_ENERGY, {"starts": since, "ends": until, "summed_until": use_summed_until()})
        return {name: (energy, units) for name, energy, units in cursor.fetchall() if units}


def _gpus_seen(since: datetime, until: datetime) -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute(_SEEN_GPUS, {"since": since, "now": until})
        return {row[0] for row in cursor.fetchall()}


def _emptied(site: Snapshot, begin: int, seen: set[str], used: Iterable[Used]) -> Snapshot:
    """The fleet and the rules of a site, and what was used before. GPUs that had a run can be used.
    Cool-downs of present bookings are left out, and rules that depend on the time are `Rules`."""
    return Snapshot(
        now=begin,
        models=site.models,
        gpus=tuple(replace(gpu, usable=gpu.usable or gpu.id in seen, silent=False) for gpu in site.gpus),
        held=(),
        requests=(),
        extensions=(),
        limits=site.limits,
        tiers=site.tiers,
        used=tuple(used),
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
