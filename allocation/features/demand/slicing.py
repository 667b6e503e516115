"""Slices that nodes make ahead: the layout that expected requests need, on GPUs that are empty.

The solver itself is asked where it would place such requests now, so a layout is where it will look for
room, and no decision knows of it. A GPU is left alone if something is planned on it soon; a layout there is
removed before. A GPU that needs a reset for its mode gets it up to three hours ahead, in an hour in which
others are empty for all that may be asked for.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from math import ceil
from statistics import median
from uuid import UUID

from django.db import connection, transaction
from django.db.models import F, Max, Q

import wire
from allocation.features.demand.models import DemandForecast, DemandKind, SliceAhead
from allocation.models import Allocation, Booking, Gpu, MigPlacement, Node, Occupancy, PolicyVersion
from allocation.queries.bookings.money.demand_hours import HOUR
from allocation.rules.states import State
from allocation.services.gc_paused import gc_paused
from allocation.services.nodes.fleet import agent_supports
from allocation.services.nodes.gpu_modes import mode_request
from allocation.services.policy.policies import policy_of
from allocation.services.snapshot.snapshot import snapshot_read
from solver import Ask, Place, Request, solve

PAST_DAYS = 28
LEAST_REQUESTS = 3
"""Requests for a profile in this hour of the day, of four weeks, without which none is expected."""
MOST_SLICES = 64
LEAD = timedelta(minutes=15)
"""A GPU on which something is planned in this time is left alone."""
MADE = timedelta(minutes=1)
"""After this time, and that of a reset, a slice that was ordered is there."""
RESET_HOURS = 3
"""GPUs that need a reset are prepared for what is expected in this hour and so many more."""
LEAST_OTHERS = 5
_REQUESTS = """
SELECT profile, count(*), (array_agg(id ORDER BY submitted DESC))[1] FROM (
  SELECT b.id, b.submitted, b.ask->>'profile' AS profile
  FROM allocation_booking b
  WHERE b.submitted >= %(since)s AND b.submitted < %(until)s
    AND extract(hour FROM b.submitted AT TIME ZONE 'UTC') = ANY(%(hours)s)
    AND coalesce(nullif(b.planned_class, ''), b.ask->'classes'->>0) = %(gpu_class)s
    AND b.starts IS NULL AND b.not_before <= b.submitted AND b.ask->>'profile' IS NOT NULL
) asked GROUP BY profile ORDER BY count(*) DESC, profile
"""
# First runs on slices that nobody had made ahead.
_OTHERS = """
SELECT extract(epoch FROM b.ready_at - o.opened)::float8
FROM allocation_occupancy o
JOIN allocation_allocation a ON a.id = o.allocation_id
JOIN allocation_booking b ON b.id = a.booking_id
JOIN allocation_gpu g ON g.id = o.gpu_id
WHERE o.opened >= %(since)s AND a.profile IS NOT NULL AND g.gpu_class_id = %(gpu_class)s
  AND b.pause_count = 0 AND b.ready_at >= o.opened
  AND NOT EXISTS (
    SELECT FROM allocation_sliceahead s
    WHERE s.gpu_id = o.gpu_id AND s.start = a.start AND s.taken AND s.closed = o.opened)
"""


def slicing_turn(now: datetime) -> int:
    """Counts the slices that were taken, removes those that are no longer expected, and orders others;
    returns how many are ordered now."""
    live = PolicyVersion.objects.get(state=PolicyVersion.State.LIVE)
    most = {name: gpus for name, gpus in live.document.get("slice_ahead", {}).items() if gpus}
    open_ = SliceAhead.objects.filter(closed=None)
    if not most and not open_.exists():
        return 0
    with transaction.atomic():
        rows = list(open_.select_for_update(of=("self",)).select_related("gpu__model"))
        rows = _without_taken(rows, now)
        wanted = _wanted(live, most, {row.gpu_id for row in rows}, now) if most else {}
        stale = [row for row in rows if (row.gpu_id, _place(row)) not in wanted]
        _close(stale, now)
        there = {(row.gpu_id, _place(row)) for row in rows if row not in stale}
        new = [row for key, row in wanted.items() if key not in there]
        SliceAhead.objects.bulk_create(new)
        _resets_request({row.gpu_id for row in new}, "sliced", now)
        _documents_change({row.gpu_id for row in (*stale, *new)})
    _ready_times(now)
    return len(new)


def slices_ahead_on(nodes: Iterable[UUID]) -> Mapping[UUID, tuple[wire.DesiredSlice, ...]]:
    """Returns the slices of these nodes' documents, by GPU."""
    found: dict[UUID, list[wire.DesiredSlice]] = {}
    rows = SliceAhead.objects.filter(closed=None, gpu__node__in=list(nodes)).order_by("gpu", "start")
    for row in rows:
        made = wire.DesiredSlice(profile_id=row.profile_id, slot=row.start, size=row.size)
        found.setdefault(row.gpu_id, []).append(made)
    return {gpu: tuple(slices) for gpu, slices in found.items()}


@dataclass(frozen=True, slots=True)
class SlicingUse:
    """What slices made ahead did in the last four weeks, of a class: how many are there now, were taken,
    and were removed; and the seconds that bookings began earlier by them (None: too few others to tell), and
    by the resets that were made before they came."""

    gpu_class: str
    gpus: int
    now: int
    hits: int
    misses: int
    seconds_saved: float | None
    reset_seconds_saved: int = 0


def slicing_uses(now: datetime) -> list[SlicingUse]:
    """Returns the classes that have slices made ahead now, had some, or may have them."""
    live = PolicyVersion.objects.get(state=PolicyVersion.State.LIVE)
    most: dict[str, int] = {n: gpus for n, gpus in live.document.get("slice_ahead", {}).items() if gpus}
    since = now - timedelta(days=PAST_DAYS)
    rows = SliceAhead.objects.filter(Q(closed=None) | Q(closed__gte=since)).select_related("gpu")
    by_class: dict[str, list[SliceAhead]] = {name: [] for name in most}
    for row in rows:
        by_class.setdefault(row.gpu.gpu_class_id or "", []).append(row)
    return [_use(name, most.get(name, 0), found, since) for name, found in sorted(by_class.items())]


def _use(name: str, gpus: int, rows: Sequence[SliceAhead], since: datetime) -> SlicingUse:
    took = [row.ready_seconds for row in rows if row.taken and row.ready_seconds is not None]
    with connection.cursor() as cursor:
        cursor.execute(_OTHERS, {"since": since, "gpu_class": name})
        others = [float(row[0]) for row in cursor.fetchall()]
    saved = None
    if len(others) >= LEAST_OTHERS:
        usual = median(others)
        saved = sum(max(0.0, usual - each) for each in took)
    is_open = [row for row in rows if row.closed is None]
    misses = sum(row.closed is not None and not row.taken for row in rows)
    hits = sum(row.taken for row in rows)
    return SlicingUse(name, gpus, len(is_open), hits, misses, saved, _resets_saved(rows))


def _resets_saved(rows: Iterable[SliceAhead]) -> int:
    """The seconds of resets for which the first booking on a GPU would have waited; the others on it would
    have found it in its mode."""
    spared = {(row.gpu_id, row.ordered): row.reset_seconds for row in rows if row.taken}
    return sum(spared.values())


def _wanted(
    live: PolicyVersion, most: Mapping[str, int], ordered: Collection[UUID], now: datetime
) -> dict[tuple[UUID, tuple[int, int, str]], SliceAhead]:
    """The slices that expected requests would get now, or after a reset, by GPU and place."""
    resets = dict(
        Gpu.objects.filter(gpu_class__in=most, model__mode_switch="reset")
        .values_list("gpu_class")
        .annotate(Max("model__switch_seconds"))
    )
    hours = {name: RESET_HOURS if name in resets else 0 for name in most}
    expected = {name: list(_expected(name, hours[name], now)) for name in sorted(most)}
    if not any(expected.values()):
        return {}
    snapshot = snapshot_read(now)
    tiers = {tier.slug: tier.priority for tier in snapshot.tiers}
    requests = [
        request for name, found in expected.items() for request in _requests(name, found, tiers, snapshot.now)
    ]
    with gc_paused():
        asked = replace(snapshot, requests=(*snapshot.requests, *requests))
        plan = solve(asked, policy_of(live), brief=True)
    own = {request.booking: request.ask.classes[0] for request in requests}
    places = [
        (place, assign.starts - snapshot.now)
        for assign in sorted(plan.assigns, key=lambda each: each.booking)
        if assign.booking in own and assign.starts <= snapshot.now + resets.get(own[assign.booking], 0)
        for place in assign.places
    ]
    left = {
        name: min(gpus, _forecast(name, now, RESET_HOURS * (name in resets))) for name, gpus in most.items()
    }
    idle = {name for name in resets if _forecast(name, now) <= _empty_count(name, now)}
    return _rows(places, left, idle, ordered, now)


def _rows(
    places: Sequence[tuple[Place, int]],
    most: dict[str, int],
    idle: Collection[str],
    ordered: Collection[UUID],
    now: datetime,
) -> dict[tuple[UUID, tuple[int, int, str]], SliceAhead]:
    """The rows for places on empty GPUs, on at most so many of each class. With each place comes in how many
    seconds it can be had. Only a GPU of a class that is idle is reset, or stays with a reset in progress."""
    empty = {gpu.id: gpu for gpu in _empty({UUID(place.gpu) for place, _ in places}, now)}
    numbers = {
        (model, profile): number
        for model, profile, number in MigPlacement.objects.values_list("model", "profile", "profile_id")
    }
    found: dict[tuple[UUID, tuple[int, int, str]], SliceAhead] = {}
    chosen: set[UUID] = set()
    for place, seconds in places:
        gpu = empty.get(UUID(place.gpu))
        if gpu is None or place.profile is None or seconds > gpu.model.switch_seconds:
            continue
        name = gpu.gpu_class_id or ""
        is_whole = gpu.model.switch_seconds > 0 and gpu.mode != Gpu.Mode.SLICED
        if is_whole and gpu.id not in ordered and name not in idle:
            continue
        if gpu.id not in chosen:
            if most.get(name, 0) <= 0:
                continue
            most[name] -= 1
            chosen.add(gpu.id)
        number = numbers[gpu.model_id, place.profile]
        row = SliceAhead(
            gpu=gpu,
            profile=place.profile,
            profile_id=number,
            start=place.start,
            size=place.size,
            ordered=now,
            reset_seconds=gpu.model.switch_seconds if is_whole and gpu.id not in ordered else 0,
        )
        found[gpu.id, _place(row)] = row
    return found


def _expected(gpu_class: str, hours: int, now: datetime) -> Iterator[tuple[str, int, Booking]]:
    """Profiles with the slices that are expected in an hour of this one and so many more, and the newest
    booking of each."""
    this = now.astimezone(UTC).hour
    facts: dict[str, datetime | list[int] | str] = {
        "since": now - timedelta(days=PAST_DAYS),
        "until": now,
        "hours": [(this + each) % 24 for each in range(hours + 1)],
        "gpu_class": gpu_class,
    }
    with connection.cursor() as cursor:
        cursor.execute(_REQUESTS, facts)
        rows = cursor.fetchall()
    newest = Booking.objects.in_bulk([row[2] for row in rows])
    for profile, count, booking in rows:
        if count >= LEAST_REQUESTS:
            yield profile, ceil(count / PAST_DAYS / (hours + 1)), newest[booking]


def _requests(
    gpu_class: str, expected: Iterable[tuple[str, int, Booking]], tiers: Mapping[str, int], now: int
) -> Iterator[Request]:
    """The expected requests, as the people ask who asked last."""
    for profile, count, like in expected:
        for number in range(min(count, MOST_SLICES)):
            yield Request(
                booking=f"ahead {gpu_class} {profile} {number:02d}",
                tenant=str(like.tenant_id),
                project=str(like.project_id),
                tier=like.tier_id,
                priority=tiers.get(like.tier_id, 0),
                submitted=now,
                ask=Ask(1, (gpu_class,), profile, "gpu", required=False),
                duration=like.duration_seconds,
                earliest=now,
                latest=None,
                fixed=False,
                planned=None,
            )


def _forecast(gpu_class: str, now: datetime, more: int = 0) -> int:
    """GPUs of the class that may be asked for in this hour, or in the busiest of this one and so many
    more, by the upper bound of the newest forecast."""
    rows = DemandForecast.objects.filter(gpu_class=gpu_class, kind=DemandKind.REQUESTED, at__lte=now)
    row = rows.order_by("-at").first()
    ahead = int((now - row.at) / HOUR) if row is not None else 0
    return ceil(max(row.high[ahead : ahead + more + 1], default=0)) if row is not None else 0


def _empty_count(gpu_class: str, now: datetime) -> int:
    """GPUs of the class, beyond one, that have nothing now and soon."""
    gpus = set(Gpu.objects.filter(gpu_class=gpu_class).values_list("id", flat=True))
    return len(list(_empty(gpus, now))) - 1


def _empty(gpus: Collection[UUID], now: datetime) -> Iterator[Gpu]:
    """Those of the GPUs that have nothing now and soon."""
    rows = Gpu.objects.filter(id__in=gpus, health=Gpu.Health.OK, node__unreachable_since=None)
    rows = rows.exclude(mode_pinned="whole").select_related("node", "model").order_by("number")
    live = Q(state__in=Allocation.LIVE) & ~Q(state="planned") | Q(
        state="planned", period__startswith__lte=now + LEAD
    )
    busy = set(Allocation.objects.filter(live, gpu__in=gpus).values_list("gpu_id", flat=True))
    busy |= set(Occupancy.objects.filter(gpu__in=gpus, closed=None).values_list("gpu_id", flat=True))
    busy |= _planned_on(now)
    return (gpu for gpu in rows if gpu.id not in busy and agent_supports(gpu.node, wire.PREPARES_SINCE))


def _planned_on(now: datetime) -> set[UUID]:
    """The GPUs on which a booking of the queue is planned soon."""
    soon = Booking.objects.filter(
        state__in=(State.QUEUED, State.PAUSED), planned_starts__lte=now + LEAD
    ).exclude(planned_places=[])
    return {
        UUID(place["gpu"]) for places in soon.values_list("planned_places", flat=True) for place in places
    }


def _without_taken(rows: Sequence[SliceAhead], now: datetime) -> list[SliceAhead]:
    """Closes the rows on which a booking has started; returns the others."""
    begun = Occupancy.objects.filter(gpu__in={row.gpu_id for row in rows}).filter(
        Q(closed=None) | Q(opened__gt=now - timedelta(days=1))
    )
    by_gpu: dict[UUID, list[Occupancy]] = {}
    for each in begun.select_related("allocation").order_by("opened", "id"):
        by_gpu.setdefault(each.gpu_id, []).append(each)
    left = []
    for row in rows:
        first = next((each for each in by_gpu.get(row.gpu_id, ()) if _is_on(each, row)), None)
        if first is None:
            left.append(row)
            continue
        own = first.allocation
        is_same = (own.profile, own.start, own.size) == (row.profile, row.start, row.size)
        made = row.ordered + MADE + timedelta(seconds=row.gpu.model.switch_seconds)
        row.closed, row.taken = first.opened, is_same and first.opened >= made
        row.save(update_fields=["closed", "taken"])
        if not own.profile:
            _resets_request({row.gpu_id}, "whole", now)
        _documents_change({row.gpu_id})
    return left


def _is_on(occupied: Occupancy, row: SliceAhead) -> bool:
    """Whether a booking began where the slice is, after it was ordered."""
    own = occupied.allocation
    return (
        occupied.opened >= row.ordered
        and own.start < row.start + row.size
        and row.start < own.start + own.size
    )


def _close(rows: Sequence[SliceAhead], now: datetime) -> None:
    """Removes what is no longer expected: the GPU becomes whole again, as whoever comes may need it. One that
    needs a reset and is planned soon changes by its plan."""
    if not rows:
        return
    SliceAhead.objects.filter(id__in=[row.id for row in rows]).update(closed=now)
    gpus = {row.gpu_id for row in rows}
    kept = SliceAhead.objects.filter(closed=None, gpu__in=gpus).values("gpu")
    busy = Occupancy.objects.filter(closed=None, gpu__in=gpus).values("gpu")
    back = Gpu.objects.filter(id__in=gpus, mode_pinned="").exclude(id__in=kept).exclude(id__in=busy)
    online = back.filter(mode=Gpu.Mode.SLICED, mode_wanted="", model__mode_switch="online")
    online.update(mode_wanted="whole", mode_wanted_at=now)
    _resets_request({gpu.id for gpu in _empty({each.id for each in back}, now)}, "whole", now)


def _resets_request(gpus: Collection[UUID], mode: str, now: datetime) -> None:
    """Requests the mode of those of the GPUs that need a reset for it, and takes back what was requested."""
    rows = Gpu.objects.select_for_update(of=("self",)).filter(id__in=gpus, model__mode_switch="reset")
    for gpu in rows.filter(mode_pinned="").order_by("id"):
        if mode != (gpu.mode_wanted or gpu.mode):
            mode_request(gpu, mode, now)


def _ready_times(now: datetime) -> None:
    """Keeps how long the bookings on slices made ahead took until they were ready."""
    rows = SliceAhead.objects.filter(taken=True, ready_seconds=None, closed__gt=now - HOUR)
    for row in rows:
        if row.closed is None:
            continue
        begun = Occupancy.objects.filter(gpu=row.gpu_id, opened=row.closed, allocation__start=row.start)
        begun = begun.exclude(allocation__booking__ready_at=None)
        ready = begun.values_list("allocation__booking__ready_at", flat=True).first()
        if ready is not None:
            row.ready_seconds = max(0.0, (ready - row.closed).total_seconds())
            row.save(update_fields=["ready_seconds"])


def _documents_change(gpus: Collection[UUID]) -> None:
    Node.objects.filter(gpus__in=list(gpus)).update(generation=F("generation") + 1)


def _place(row: SliceAhead) -> tuple[int, int, str]:
    return row.start, row.size, row.profile
