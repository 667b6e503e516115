"""Keeping what each hour had and the forecasts that were made, and reading them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
from django.conf import settings
from django.db import transaction
from django.db.models import Count, F, Max, Q

from allocation.features.demand.headroom import headroom_store
from allocation.features.demand.holidays import holidays_between
from allocation.features.demand.model import (
    AHEAD,
    MOST_HOURS,
    Band,
    Floats,
    History,
    level_ahead,
    requests_ahead,
)
from allocation.features.demand.models import DemandForecast, DemandHour, DemandKind
from allocation.models import Gpu
from allocation.points import ClassForecast
from allocation.queries.bookings.money.demand_hours import (
    HOUR,
    booked_hours,
    first_request,
    in_use_hours,
    news_since,
    requested_hours,
    waited_hours,
)

# Hours that are read again: a run can end, or its end be reported, after the hour.
AGAIN = timedelta(hours=48)
# For past hits, the forecasts of every sixth hour are kept for six weeks. Each covers two weeks.
KEEP_EVERY, KEEP = 6, timedelta(weeks=6)
HITS_SINCE = timedelta(weeks=4)
GROUPS = ((1, 6), (7, 24), (25, 72), (73, 167), (168, AHEAD))
BATCH = 2_000
# GPUs that are waited for on average, from which on an hour counts.
WAITED = 0.1


def demand_store(now: datetime) -> int:
    """Keeps the hours until now, and makes the forecasts of this hour once; returns how many."""
    hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    if DemandForecast.objects.filter(at=hour).exists():
        return 0
    capacity = gpus_of_classes()
    with transaction.atomic():
        _hours_store(hour, capacity)
        made = _forecasts_store(hour, capacity)
        headroom_store(hour)
        old = DemandForecast.objects.filter(at__lt=hour)
        kept = Q(at__gte=hour - KEEP, at__hour__in=range(0, 24, KEEP_EVERY))
        old.exclude(kept).delete()
    return made


def waited_for(starts: datetime, ends: datetime) -> list[tuple[str, datetime]]:
    """The hours of a time in which somebody waited for a class for six minutes or more, or several for as
    long together. An hour that is not over is not known yet."""
    rows = DemandHour.objects.filter(at__gt=starts - HOUR, at__lt=ends, wanted__gte=F("in_use") + WAITED)
    return list(rows.values_list("gpu_class_id", "at"))


def gpus_of_classes() -> dict[str, int]:
    """The GPUs of the site of each class that has some; rented ones are of one project alone."""
    rows = (
        Gpu.objects.filter(gpu_class__isnull=False, node__pool="")
        .values_list("gpu_class_id")
        .annotate(Count("id"))
    )
    return dict(rows.order_by("gpu_class_id"))


def _hours_store(until: datetime, classes: Iterable[str]) -> None:
    last = DemandHour.objects.aggregate(at=Max("at"))["at"]
    # Records of other systems can come long after their hours.
    news = news_since(last)
    starts = min(last - AGAIN, news or last) if last else first_request()
    if starts is None:
        return
    starts = max(starts.astimezone(UTC), until - timedelta(hours=MOST_HOURS))
    starts = starts.replace(minute=0, second=0, microsecond=0)
    requested, in_use = requested_hours(starts, until), in_use_hours(starts, until)
    waited = waited_hours(starts, until)
    rows = []
    for name in classes:
        for number in range(int((until - starts) / HOUR)):
            key = name, starts + number * HOUR
            used = in_use.get(key, 0.0)
            rows.append(
                DemandHour(
                    gpu_class_id=name,
                    at=key[1],
                    requested=requested.get(key, 0.0),
                    in_use=used,
                    wanted=used + waited.get(key, 0.0),
                )
            )
    DemandHour.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["gpu_class", "at"],
        update_fields=["requested", "in_use", "wanted"],
        batch_size=BATCH,
    )


def _forecasts_store(hour: datetime, capacity: Mapping[str, int]) -> int:
    ends = hour + AHEAD * HOUR
    booked = booked_hours(hour, ends)
    made = []
    for name, gpus in capacity.items():
        past = hours_of(name, hour)
        for kind in DemandKind.values if past else ():
            history = _history(past, kind, ends)
            if not history.is_enough:
                continue
            band = _forecast(kind, history)
            if kind != DemandKind.REQUESTED:
                taken = np.asarray([booked.get((name, hour + n * HOUR), 0.0) for n in range(AHEAD)])
                most = float(gpus) if kind == DemandKind.IN_USE else float("inf")
                band = band.within(np.minimum(taken, most), most)
            made.append(
                DemandForecast(
                    gpu_class_id=name,
                    kind=kind,
                    at=hour,
                    low=_rounded(band.low),
                    middle=_rounded(band.middle),
                    high=_rounded(band.high),
                    hits=hits_of(name, kind, past, hour),
                )
            )
    DemandForecast.objects.bulk_create(made)
    return len(made)


def hours_of(gpu_class: str, until: datetime) -> list[DemandHour]:
    """The hours of a class that a forecast takes into account, oldest first, without a gap."""
    since = until - timedelta(hours=MOST_HOURS)
    rows = DemandHour.objects.filter(gpu_class=gpu_class, at__gte=since, at__lt=until)
    return list(rows.order_by("at"))


def _history(past: Sequence[DemandHour], kind: str, ends: datetime) -> History:
    """The history of one figure. Hours that were not kept, while the portal stood, are as their
    neighbours."""
    begins, last = past[0].at.astimezone(UTC), past[-1].at
    places = np.asarray([(row.at - begins) / HOUR for row in past])
    values = np.asarray([getattr(row, kind) for row in past])
    full = np.interp(np.arange(int((last - begins) / HOUR) + 1), places, values)
    return History(full, begins, holidays_between(begins.date(), ends.date(), settings.HOLIDAYS))


def _forecast(kind: str, history: History) -> Band:
    return requests_ahead(history) if kind == DemandKind.REQUESTED else level_ahead(history)


def _rounded(values: Floats) -> list[float]:
    return [round(float(each), 3) for each in values]


@dataclass(frozen=True, slots=True)
class Hits:
    """How often the bands of kept forecasts held at some distance, and how far off they were."""

    ahead: str
    held: int
    tested: int
    error: float


def hits_of(gpu_class: str, kind: str, past: Sequence[DemandHour], now: datetime) -> dict[str, list[float]]:
    """The hits of the kept forecasts in the last four weeks, by hours ahead."""
    came = {row.at: getattr(row, kind) for row in past if row.at >= now - HITS_SINCE}
    found: dict[str, list[float]] = {}
    rows = DemandForecast.objects.filter(
        gpu_class=gpu_class, kind=kind, at__gte=now - KEEP, at__lt=now, at__hour__in=range(0, 24, KEEP_EVERY)
    )
    for row in rows:
        for low, high in GROUPS:
            for ahead in range(low, high + 1):
                value = came.get(row.at + (ahead - 1) * HOUR)
                if value is None:
                    continue
                sums = found.setdefault(f"{low}-{high}", [0, 0, 0.0])
                sums[0] += row.low[ahead - 1] - 1e-3 <= value <= row.high[ahead - 1] + 1e-3
                sums[1] += 1
                sums[2] += abs(value - row.middle[ahead - 1])
    return {name: [held, tested, round(off / tested, 4)] for name, (held, tested, off) in found.items()}


def hits_read(forecast: DemandForecast) -> list[Hits]:
    """The hits as they are kept with a forecast, the nearest hours first."""
    names = [f"{low}-{high}" for low, high in GROUPS]
    return [
        Hits(name, int(forecast.hits[name][0]), int(forecast.hits[name][1]), float(forecast.hits[name][2]))
        for name in names
        if name in forecast.hits
    ]


def newest_forecasts(gpu_class: str = "") -> dict[str, dict[str, DemandForecast]]:
    """The newest forecasts by class and kind."""
    last = DemandForecast.objects.aggregate(at=Max("at"))["at"]
    rows = DemandForecast.objects.filter(at=last).select_related("gpu_class")
    if gpu_class:
        rows = rows.filter(gpu_class=gpu_class)
    found: dict[str, dict[str, DemandForecast]] = {}
    for row in rows.order_by("gpu_class__order", "gpu_class", "kind"):
        found.setdefault(row.gpu_class_id, {})[row.kind] = row
    return found


def wanted_forecasts() -> dict[str, ClassForecast]:
    """The middle of what is wanted of each class, and its GPUs now."""
    there = gpus_of_classes()
    return {
        name: ClassForecast(row.at, row.middle, there.get(name, 0))
        for name, kinds in newest_forecasts().items()
        if (row := kinds.get(DemandKind.WANTED)) is not None
    }
