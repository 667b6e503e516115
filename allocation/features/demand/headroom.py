"""Headroom: the peaks at which a policy keeps GPUs free, and what that gave and cost.

An hour is a peak of a class if by the upper bounds of its forecast as many GPUs as are kept free may be
asked for in it, and fewer than these would be free. The middle of what is asked for in an hour is often
zero, because requests come in bursts: it would foresee no peak. A peak too much costs GPU-hours that are
counted; one that is missed costs a wait. Both bounds are of what is wanted, which headroom does not change.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Count, Max, Sum

from allocation.features.demand.models import DemandForecast, DemandHour, DemandKind, HeadroomHour
from allocation.models import Gpu, PolicyVersion
from allocation.queries.bookings.money.demand_hours import HOUR, RUNS
from allocation.queries.bookings.money.held_use import WHOLE

AHEAD_HOURS = 168
SHOWN = timedelta(weeks=4)
_FLEET = "JOIN allocation_gpu g ON g.id = a.gpu_id JOIN allocation_node n ON n.id = g.node_id AND n.pool = ''"
# Starts at once with which more was in use than work that can wait may take.
_SERVED = f"""
SELECT count(*) FROM allocation_booking b
CROSS JOIN LATERAL (
  SELECT min(lower(a.period)) AS at FROM allocation_allocation a {_FLEET}
  WHERE a.booking_id = b.id AND a.state = ANY(%(runs)s) AND g.gpu_class_id = %(gpu_class)s
) first
WHERE b.tier_id = %(tier)s AND b.duration_seconds <= %(longest)s
  AND b.starts IS NULL AND b.not_before <= b.submitted
  AND b.submitted < %(ends)s AND (b.ended_at IS NULL OR b.ended_at >= %(starts)s)
  AND first.at >= %(starts)s AND first.at < %(ends)s
  AND %(most)s < (
    SELECT sum({WHOLE}) FROM allocation_allocation a {_FLEET}
    WHERE a.state = ANY(%(runs)s) AND g.gpu_class_id = %(gpu_class)s AND a.period @> first.at)
"""  # noqa: S608 (our own text)


def headroom_peaks(kept: Mapping[str, int], now: datetime) -> Iterator[tuple[str, datetime, datetime]]:
    """The peaks of the coming week for so many GPUs by class, joined where they touch, as the newest
    forecast of that time foresaw them."""
    last = DemandForecast.objects.filter(at__lte=now).aggregate(at=Max("at"))["at"]
    rows = DemandForecast.objects.filter(at=last, gpu_class__in=kept)
    high = {(name, kind): bounds for name, kind, bounds in rows.values_list("gpu_class_id", "kind", "high")}
    there = dict(
        Gpu.objects.filter(gpu_class__in=kept, node__pool="")
        .values_list("gpu_class_id")
        .annotate(Count("id"))
    )
    for name, gpus in sorted(kept.items()):
        asked = high.get((name, DemandKind.REQUESTED), [])
        wanted = high.get((name, DemandKind.WANTED), [])
        begun: datetime | None = None
        for number in range(min(AHEAD_HOURS, len(asked), len(wanted)) + 1):
            at = last + number * HOUR
            is_last = number == min(AHEAD_HOURS, len(asked), len(wanted))
            is_peak = not is_last and is_peak_hour(asked[number], wanted[number], there.get(name, 0), gpus)
            if is_peak:
                begun = begun or at
            elif begun is not None:
                if at > now:
                    yield name, begun, at
                begun = None


def is_peak_hour(asked: float, wanted: float, there: int, kept: int) -> bool:
    """Whether an hour with these upper bounds is a peak of a class with so many GPUs."""
    return 0 < kept <= asked and wanted > there - kept


def headroom_store(hour: datetime) -> None:
    """Counts the peaks that are over, and begins to count this hour where it is one."""
    live = PolicyVersion.objects.get(state=PolicyVersion.State.LIVE).document
    kept = {name: gpus for name, gpus in live.get("headroom", {}).items() if gpus}
    for row in HeadroomHour.objects.filter(counted=False, at__lt=hour):
        _count(row, live.get("headroom_for", {}))
    there = dict(Gpu.objects.filter(node__pool="").values_list("gpu_class_id").annotate(Count("id")))
    HeadroomHour.objects.bulk_create(
        (
            HeadroomHour(gpu_class_id=name, at=hour, gpus=kept[name], there=there.get(name, 0))
            for name, starts, ends in (headroom_peaks(kept, hour) if kept else ())
            if starts <= hour < ends
        ),
        ignore_conflicts=True,
    )


def _count(row: HeadroomHour, longest: Mapping[str, int]) -> None:
    past = DemandHour.objects.filter(gpu_class=row.gpu_class_id, at=row.at).first()
    if past is not None:
        row.idle = max(0.0, min(row.gpus, row.there - past.in_use))
        row.waited = min(row.idle, past.wanted - past.in_use)
    facts: dict[str, Any] = {
        "gpu_class": row.gpu_class_id,
        "starts": row.at,
        "ends": row.at + HOUR,
        "most": row.there - row.gpus,
        "runs": RUNS,
    }
    with connection.cursor() as cursor:
        for tier, seconds in longest.items():
            cursor.execute(_SERVED, {**facts, "tier": tier, "longest": seconds})
            row.served += int(cursor.fetchone()[0])
    row.counted = True
    row.save(update_fields=["idle", "waited", "served", "counted"])


@dataclass(frozen=True, slots=True)
class HeadroomUse:
    """What headroom of a class gave and cost in the last four weeks. `gpus` are kept free now."""

    gpus: int
    hours: int
    served: int
    idle: float
    waited: float


def headroom_uses(now: datetime) -> dict[str, HeadroomUse]:
    """By class, the headroom of the live policy, and what it did."""
    live = PolicyVersion.objects.get(state=PolicyVersion.State.LIVE).document
    kept = {name: gpus for name, gpus in live.get("headroom", {}).items() if gpus}
    rows = HeadroomHour.objects.filter(counted=True, at__gte=now - SHOWN).values("gpu_class_id")
    sums = rows.annotate(
        hours=Count("id"), starts=Sum("served"), free=Sum("idle"), short=Sum("waited")
    ).order_by("gpu_class_id")
    found = {name: HeadroomUse(gpus, 0, 0, 0.0, 0.0) for name, gpus in kept.items()}
    for row in sums:
        name = row["gpu_class_id"]
        figures = (row["hours"], row["starts"], row["free"], row["short"])
        found[name] = HeadroomUse(kept.get(name, 0), *figures)
    return found
