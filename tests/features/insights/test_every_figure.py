"""Every figure of the page and of REST, computed anew from the rows one by one.

`of_rows` knows no statement of the product: it walks through all rows in Python. A figure that REST has
and that is not computed here fails.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from math import ceil
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone
from pytest_django import Settings

from allocation.features.demand.models import DemandHour
from allocation.features.host_use.models import HostUse
from allocation.features.insights.page import COLUMNS
from allocation.features.insights.rest import SiteKpiOut
from allocation.features.progress.models import Progress
from allocation.models import (
    Allocation,
    Booking,
    BookingEvent,
    ChargeSum,
    Gpu,
    GpuEvent,
    GpuUse,
    Maintenance,
    Pause,
    Zone,
)
from allocation.rules.states import State
from tests.api.builders import Site, said
from tests.builders_allocation import a_booking
from tests.builders_pauses import a_pause
from tests.features.insights.test_insights import lived
from tests.roles import as_owner, as_system

pytestmark = pytest.mark.django_db
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
RAN = ("active", "releasing", "ended")
PEAK = 989
"""TFLOPS of an H100 by its data sheet, dense FP16."""
GRAMS = 400
ZONE_GRAMS = [100 + 10 * hour for hour in range(24)]
# Of rates and shares REST has fewer digits than the sums.
ROUNDED = {
    "utilisation": 0.06,
    "bandwidth": 0.06,
    "tensor": 0.06,
    "sm": 0.06,
    "price_per_busy_gpu_hour": 0.006,
    "wait_p50_seconds": 0.51,
    "wait_p95_seconds": 0.51,
}
Noun = Callable[[Allocation | None, Booking], str]


def lives(site: Site, seed: int, now: datetime) -> None:
    """Twelve days as other tests have them, with all that cards, hosts and programs can report."""
    draw = Random(seed)  # noqa: S311 (not a secret)
    lived(site, seed, now)
    gpus = list(Gpu.objects.order_by("number"))
    with as_owner():
        zone = Zone.objects.create(
            slug="north", name="North", time_zone="Europe/Berlin", grams=ZONE_GRAMS, created=now
        )
        if draw.random() < 0.5:
            rack = gpus[0].node.rack
            rack.zone = zone
            rack.save()
        for row in GpuUse.objects.all():
            row.sm_avg = draw.choice((None, 5.0, 72.0))
            row.tensor_avg = draw.choice((None, 0.0, 40.5))
            row.bandwidth_avg = draw.choice((None, 12.0, 80.0))
            row.pcie_kb, row.nvlink_kb = draw.choice((None, 4_000)), draw.choice((None, 900_000))
            row.save()
        bookings = list(Booking.objects.order_by("number"))
    # One in ten is work on cores of hosts, whose readings count for no GPU.
    with as_owner():
        for booking in bookings[::10]:
            Booking.objects.filter(id=booking.id).update(ask={**booking.ask, "host": True})
    for booking in bookings:
        _bookings(draw, booking, now)
    _outages(draw, gpus, site.people["operator"].pk, now)


def _bookings(draw: Random, booking: Booking, now: datetime) -> None:
    with as_owner():
        places = list(Allocation.objects.filter(booking=booking).select_related("gpu"))
    first, last = min(each.period.lower for each in places), max(each.period.upper for each in places)
    last, planned = min(last, now), first - draw.choice((0, 30, 90)) * timedelta(minutes=1)
    latest = draw.choice((None, planned, first))
    with as_owner():
        Booking.objects.filter(id=booking.id).update(
            ready_at=first + timedelta(seconds=20),
            ended_at=last if last < now else None,
            first_planned_start=draw.choice((None, planned)),
            first_planned_at=draw.choice((first - 2 * HOUR, planned)),
            planned_starts=first,
            planned_ends=max(last, first),
            announced_from=latest,
            announced_until=latest,
        )
        if draw.random() < 0.3:
            BookingEvent.objects.create(
                tenant_id=booking.tenant_id,
                booking=booking,
                at=first - draw.choice((-1, 1)) * HOUR,
                kind="delayed",
                state="queued",
                sentence="x",
            )
        anchor = draw.choice((timedelta(seconds=10), timedelta(minutes=20)))
        Progress.objects.create(
            booking=booking,
            tenant_id=booking.tenant_id,
            step=600,
            unit=draw.choice(("step", "epoch")),
            metrics={},
            at=last,
            anchor_at=last - anchor,
            anchor_step=draw.choice((300, 600)),
            mark_at=last,
            mark_step=600,
        )
        HostUse.objects.create(
            tenant_id=booking.tenant_id,
            booking=booking,
            node_id=places[0].gpu.node_id,
            at=last,
            seconds=3_600,
            cpu_seconds=0,
            core_seconds=0,
            cores=0,
            spare=0,
            cpu=0,
            network_seconds=draw.choice((0, 1_024)),
            received_mb=800_000,
            sent_mb=200_000,
        )


def _outages(draw: Random, gpus: list[Gpu], operator: int, now: datetime) -> None:
    """Outages that overlap, of the node, of a GPU and by maintenance."""
    begin = now.replace(minute=0, second=0, microsecond=0) - 5 * DAY
    with as_owner():
        for gpu, hours in ((None, 2.5), (gpus[1], 30), (gpus[1], 7)):
            at = begin + draw.randrange(60) * timedelta(minutes=30)
            GpuEvent.objects.create(
                node=gpus[0].node,
                gpu=gpu,
                kind="lost" if gpu else "unreachable",
                at=at,
                until=at + hours * HOUR if draw.random() < 0.8 else None,
                sentence="x",
            )
        Maintenance.objects.create(
            gpu=gpus[7],
            starts=begin,
            ends=begin + 9 * HOUR,
            ended_at=begin + draw.choice((3, 9)) * HOUR,
            drain_by=begin,
            reason="fan",
            created=begin,
            created_by_id=operator,
        )


@dataclass
class Sums:
    """The sums of a noun and a day, as fractions."""

    sums: dict[str, Fraction] = field(default_factory=lambda: defaultdict(Fraction))
    waits: list[float] = field(default_factory=list)
    units: dict[str, list[Fraction]] = field(default_factory=lambda: defaultdict(lambda: [Fraction(0)] * 3))
    has_spend: bool = False

    def shown(self) -> dict[str, Any]:
        """As REST has them, with all digits."""
        of = self.sums
        busy = _share(of["busy"], of["rated"])
        return {
            **{
                name: of[name]
                for name in ("gpu_hours", "measured_gpu_hours", "unused_gpu_hours", "dark_gpu_hours")
            },
            **{name: of[name] for name in ("core_hours", "kwh", "energy_gpu_hours", "lost_hours")},
            **{name: int(of[name]) for name in ("pauses", "starts_announced", "starts_kept")},
            "utilisation": busy,
            "co2_kg": of["co2"] if of["kwh_with_grams"] else None,
            "bandwidth": _share(of["bandwidth"], of["with_bandwidth"]),
            "tensor": _share(of["tensor"], of["with_tensor"]),
            "sm": _share(of["sm"], of["with_sm"]),
            "tflops_per_watt": _share(of["tflop_with_energy"], of["joules"]),
            "link_bytes_per_kiloflop": _share(of["link_bytes"], of["tflop"] * 10**9),
            "began": len(self.waits),
            "wait_p50_seconds": _rank(self.waits, 0.5),
            "wait_p95_seconds": _rank(self.waits, 0.95),
            "spend": of["spend"] if self.has_spend else None,
            "price_per_busy_gpu_hour": of["price"] / (of["gpu_hours"] * busy / 100)
            if busy and of["price"] and of["rated"] * 2 >= of["gpu_hours"]
            else None,
            "units": [
                {"unit": unit, "cost": _share(spend, units), "units": units, "runs": runs}
                for unit, (spend, units, runs) in sorted(self.units.items())
            ],
        }


def _share(part: Fraction, whole: Fraction) -> Fraction | None:
    return part / whole if whole else None


def _rank(waits: list[float], part: float) -> float | None:
    return sorted(waits)[max(0, ceil(part * len(waits)) - 1)] if waits else None


Table = dict[tuple[date, str], Sums]


def of_rows(noun: Noun, days: tuple[date, date], now: datetime) -> Table:
    """The figures of all organisations that the reader may see, from the rows."""
    found: Table = defaultdict(Sums)
    places = list(Allocation.objects.select_related("booking__project", "booking__owner", "gpu__node__rack"))
    places = [place for place in places if place.state in RAN]
    for place in places:
        for day, seconds in _by_day(place.period.lower, min(place.period.upper, now)):
            of = found[day, noun(place, place.booking)].sums
            if place.booking.ask.get("host"):
                of["core_hours"] += seconds / 3600
                continue
            of["gpu_hours"] += seconds / 3600 * whole_of(place)
            of["price"] += (
                seconds / 3600 * Fraction(place.booking.price_per_hour) / place.booking.ask["count"]
            )
    _readings(found, noun, {place.id: place for place in places})
    _bookings_of_rows(found, noun, places, now)
    for pause in Pause.objects.exclude(emptied_at=None).select_related("booking__project", "booking__owner"):
        assert pause.emptied_at is not None
        of = found[_day(pause.emptied_at), noun(None, pause.booking)].sums
        of["pauses"] += 1
        of["lost_hours"] += Fraction(pause.lost_seconds or 0, 3600)
    return {key: each for key, each in found.items() if days[0] <= key[0] < days[1]}


def whole_of(place: Allocation) -> Fraction:
    return Fraction(place.share, 1000) if place.share else Fraction(place.size, 8)


def _day(moment: datetime) -> date:
    return moment.astimezone(UTC).date()


def _by_day(since: datetime, until: datetime) -> Iterator[tuple[date, Fraction]]:
    while since < until:
        midnight = datetime.combine(_day(since), datetime.min.time(), UTC) + DAY
        end = min(until, midnight)
        yield _day(since), Fraction((end - since) / timedelta(microseconds=1)) / 10**6
        since = end


def _networks(places: Collection[Allocation]) -> dict[tuple[Any, Any], Fraction]:
    """KiB a second for each GPU, by booking and node."""
    networks = {}
    for row in HostUse.objects.filter(network_seconds__gt=0):
        gpus = {
            place.gpu_id
            for place in places
            if (place.booking_id, place.gpu.node_id) == (row.booking_id, row.node_id)
        }
        total = Fraction(row.received_mb or 0) + Fraction(row.sent_mb or 0)
        networks[row.booking_id, row.node_id] = total * 1024 / Fraction(row.network_seconds) / len(gpus)
    return networks


def _readings(found: Table, noun: Noun, places: dict[Any, Allocation]) -> None:
    waited = {
        (row.gpu_class_id, row.at) for row in DemandHour.objects.all() if row.wanted - row.in_use >= 0.1
    }
    networks = _networks(places.values())
    for use in GpuUse.objects.exclude(allocation_id=None):
        assert use.allocation_id is not None
        place = places[use.allocation_id]
        if place.booking.ask.get("host"):
            continue
        of, whole = found[_day(use.at), noun(place, place.booking)].sums, whole_of(place)
        hours = use.seconds * whole / 3600
        of["measured_gpu_hours"] += hours
        if use.processes_max == 0 or (use.busy_avg is not None and use.busy_avg < 5):
            of["unused_gpu_hours"] += hours
            begin = use.at.replace(minute=0, second=0, microsecond=0)
            of["dark_gpu_hours"] += hours if (place.gpu.gpu_class_id, begin) in waited else 0
        if use.busy_avg is not None:
            of["rated"] += use.measured * whole / 3600
            of["busy"] += use.measured * whole / 3600 * Fraction(use.busy_avg)
        for name, value in (
            ("bandwidth", use.bandwidth_avg),
            ("tensor", use.tensor_avg),
            ("sm", use.sm_avg),
        ):
            if value is not None:
                of[f"with_{name}"] += hours
                of[name] += hours * Fraction(value)
        _energy(of, place, use, hours)
        _tensor(of, use, whole, networks.get((place.booking_id, place.gpu.node_id), Fraction(0)))


def _tensor(of: dict[str, Fraction], use: GpuUse, whole: Fraction, network: Fraction) -> None:
    """What tensor cores did at most, and the bytes and joules of the same readings."""
    if use.tensor_avg is None:
        return
    tflop = use.seconds * whole * PEAK * Fraction(use.tensor_avg) / 100
    of["tflop"] += tflop
    of["link_bytes"] += use.seconds * ((use.pcie_kb or 0) + (use.nvlink_kb or 0) + network) * 1024
    if use.energy_mj:
        of["tflop_with_energy"] += tflop
        of["joules"] += Fraction(use.energy_mj, 1000)


def _energy(of: dict[str, Fraction], place: Allocation, use: GpuUse, hours: Fraction) -> None:
    if use.energy_mj is None:
        return
    kwh = Fraction(use.energy_mj, 3_600_000_000)
    of["energy_gpu_hours"] += hours
    of["kwh"] += kwh
    of["kwh_with_grams"] += kwh
    zone = place.gpu.node.rack.zone
    grams = GRAMS if zone is None else zone.grams[use.at.astimezone(ZoneInfo(zone.time_zone)).hour]
    of["co2"] += kwh * grams / 1000


def _bookings_of_rows(found: Table, noun: Noun, places: Iterable[Allocation], now: datetime) -> None:
    delays: dict[Any, list[datetime]] = defaultdict(list)
    for event in BookingEvent.objects.filter(kind="delayed"):
        delays[event.booking_id].append(event.at)
    first: dict[Any, datetime] = {}
    for place in places:
        first[place.booking_id] = min(place.period.lower, first.get(place.booking_id, place.period.lower))
    for booking in Booking.objects.filter(id__in=first).select_related("project", "owner"):
        began = first[booking.id]
        if began >= now:
            continue
        each = found[_day(began), noun(None, booking)]
        due = max(booking.submitted, booking.not_before)
        each.waits.append(max(0.0, (began - due).total_seconds()))
        planned, at = booking.first_planned_start, booking.first_planned_at
        if planned is not None and at is not None and planned > at:
            latest = booking.announced_until or planned
            is_late = began > latest + timedelta(minutes=1)
            each.sums["starts_announced"] += 1
            each.sums["starts_kept"] += not is_late and all(delay > began for delay in delays[booking.id])
    for row in Progress.objects.select_related("booking__project", "booking__owner"):
        length, ready = row.at - row.anchor_at, row.booking.ready_at
        if ready is None or length < timedelta(seconds=20) or row.at <= ready or row.at >= now:
            continue
        hours = Fraction((row.at - ready) / timedelta(microseconds=1)) / 10**6 / 3600
        rate = max(Fraction(0), Fraction(row.step) - Fraction(row.anchor_step)) / Fraction(
            length.total_seconds()
        )
        unit = found[_day(row.at), noun(None, row.booking)].units
        spend, units, runs = unit[row.unit]
        unit[row.unit] = [
            spend + hours * Fraction(row.booking.price_per_hour),
            units + hours * 3600 * rate,
            runs + 1,
        ]


NOUNS: dict[str, Noun] = {
    "class": lambda place, booking: place.gpu.gpu_class_id or "" if place else booking.planned_class,
    "project": lambda _, booking: booking.project.slug,
    "person": lambda _, booking: booking.owner.username,
    "tier": lambda _, booking: booking.tier_id,
}


def same(shown: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """The figures that differ by more than their last digit."""
    wrong = []
    for name, value in expected.items():
        if isinstance(value, list):
            pairs = list(zip(shown[name], value, strict=True))
            if [each["unit"] for each, _ in pairs] != [each["unit"] for _, each in pairs]:
                wrong.append(name)
            wrong += [
                f"units.{each}" for one, other in pairs for each in same(_numbers(one), _numbers(other))
            ]
        elif (shown[name] is None) != (value is None):
            wrong.append(f"{name}: {shown[name]} is not {value}")
        elif value is not None:
            slack = max(ROUNDED.get(name, 0.000501), 1e-6 * abs(float(value)))
            if abs(float(shown[name]) - float(value)) > slack:
                wrong.append(f"{name}: {shown[name]} is not {float(value)}")
    return wrong


def _numbers(unit: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in unit.items() if name != "unit"}


@pytest.mark.turn
@pytest.mark.parametrize("seed", range(3))
def test_every_figure_in_rest_is_that_of_the_rows(site: Site, seed: int, settings: Settings) -> None:
    settings.CARBON_GRAMS_PER_KWH = GRAMS
    now = timezone.now().replace(microsecond=0)
    lives(site, seed, now)
    _pause(site, now)
    # Days that are over, so that no run grows between the two.
    days = (now.date() - 9 * DAY, now.date())
    for by, noun in NOUNS.items():
        with as_system():
            expected = of_rows(noun, days, now)
            _charges(expected, by, days)
        rows = said(site.admin.get(f"kpis?by={by}&from={days[0]}&to={days[1]}"))["items"]
        found = {(date.fromisoformat(row["starts"]), row["name"]): row for row in rows}
        assert found.keys() == expected.keys()
        wrong = {key: same(found[key], expected[key].shown()) for key in found}
        assert {key: each for key, each in wrong.items() if each} == {}
        assert {*rows[0]} == {"starts", "name", *Sums().shown()}


def _pause(site: Site, now: datetime) -> None:
    owner = site.people["researcher"].pk
    paused = a_booking(site.project, owner, state=State.ACTIVE, starts=now - 60 * HOUR, now=now - 60 * HOUR)
    for_whom = a_booking(site.project, owner, state=State.QUEUED)
    pause = a_pause(paused, for_whom, now=now - 40 * HOUR, ready=now - 60 * HOUR, ends=now)
    with as_system():
        Pause.objects.filter(id=pause.id).update(
            acknowledged_at=now - 40 * HOUR, emptied_at=now - 30 * HOUR, lost_seconds=5_401
        )


def _charges(found: Table, by: str, days: tuple[date, date]) -> None:
    for charge in ChargeSum.objects.select_related("account__budget__project", "owner"):
        project = charge.account.budget.project
        if project is None or not days[0] <= charge.day < days[1]:
            continue
        names = {
            "class": charge.gpu_class,
            "project": project.slug,
            "person": charge.owner.username if charge.owner else "",
            "tier": charge.tier,
        }
        each = found.setdefault((charge.day, str(names[by] or "")), Sums())
        each.sums["spend"] += Fraction(charge.exact)
        each.has_spend = True


def test_the_site_has_no_figure_that_is_computed_nowhere_else() -> None:
    """All columns of the page's file, and those of the site, are figures of the test above; what
    operators see more is `capacity`."""
    known = {"starts", "name", *Sums().shown()}
    assert {*SiteKpiOut().get_fields()} == known | {"capacity"}
    assert {*COLUMNS} == known
