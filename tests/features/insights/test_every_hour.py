"""The hours of the site's GPUs, computed anew from the rows hour by hour."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.utils import timezone

from allocation.models import Allocation, Booking, Gpu, GpuEvent, Maintenance
from tests.api.builders import Site, said
from tests.features.insights.test_every_figure import DAY, HOUR, RAN, lives, whole_of
from tests.roles import as_system

pytestmark = pytest.mark.django_db


@pytest.mark.turn
def test_capacity_of_the_site_is_that_of_the_rows(site: Site) -> None:
    now = timezone.now().replace(microsecond=0)
    lives(site, 1, now)
    days = (now.date() - 9 * DAY, now.date())
    rows = said(site.operator.get(f"platform-kpis?by=class&from={days[0]}&to={days[1]}"))["items"]
    found = {date.fromisoformat(row["starts"]): row["capacity"] for row in rows if row["name"] == "h100"}
    with as_system():
        expected = _capacity(days, now)
    assert found.keys() == expected.keys()
    for day, (there, out, dark) in expected.items():
        shown = (found[day]["there"], found[day]["out_of_service"], found[day]["dark"])
        assert shown == pytest.approx((there, out, dark), abs=0.001), day
    assert sum(each["dark"] for each in found.values()) > 0


Span = tuple[datetime, datetime]


def _within(spans: Iterable[Span], begin: datetime) -> float:
    """The hours of spans in an hour; times that overlap count once."""
    total, last = 0.0, begin
    for span in sorted(spans):
        since, until = max(span[0], last), min(span[1], begin + HOUR)
        if since < until:
            total, last = total + (until - since) / HOUR, until
    return total


def _capacity(days: tuple[date, date], now: datetime) -> dict[date, tuple[float, float, float]]:
    gpus = [gpu for gpu in Gpu.objects.all() if gpu.gpu_class_id == "h100"]
    outages: dict[Any, list[Span]] = defaultdict(list)
    for gpu in gpus:
        for event in GpuEvent.objects.filter(kind__in=("lost", "hang", "unreachable")):
            if event.gpu_id in (None, gpu.id) and event.node_id == gpu.node_id:
                outages[gpu.id].append((event.at, event.until or now))
        for row in Maintenance.objects.filter(gpu=gpu):
            outages[gpu.id].append((row.starts, min(row.ends, row.ended_at or row.ends)))
    runs = [
        (place.period.lower, min(place.period.upper, now), float(whole_of(place)))
        for place in Allocation.objects.all()
        if place.state in RAN
    ]
    waits = list(_waits())
    found: dict[date, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    at = datetime.combine(days[0], datetime.min.time(), UTC)
    while at < datetime.combine(days[1], datetime.min.time(), UTC):
        out = sum(_within(outages[gpu.id], at) for gpu in gpus)
        in_use = sum(gpus_ * _within([(since, until)], at) for since, until, gpus_ in runs)
        waited = sum(gpus_ * _within([(since, until)], at) for since, until, gpus_ in waits)
        sums = found[at.date()]
        sums[0] += len(gpus)
        sums[1] += out
        sums[2] += min(waited, max(0.0, len(gpus) - in_use - out))
        at += HOUR
    return {day: (sums[0], sums[1], sums[2]) for day, sums in found.items()}


def _waits() -> Iterator[tuple[datetime, datetime, float]]:
    """What each booking waited for: whole GPUs here, each until its first run."""
    for booking in Booking.objects.all():
        places = [each for each in Allocation.objects.filter(booking=booking) if each.state in RAN]
        first = min(each.period.lower for each in places)
        yield max(booking.submitted, booking.not_before), first, float(Decimal(booking.ask["count"]))
