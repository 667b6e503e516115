"""What telemetry says about held time that was not used."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from allocation.models import Gpu, GpuUse, Rack, Zone
from allocation.queries.bookings.money.held_use import held_use_of, watts_of
from allocation.queries.bookings.money.statements import StatementOf
from billing.rules import month_of
from tests.builders import a_project
from tests.builders_allocation import NOW, a_booking, a_lab, an_allocation
from tests.roles import as_owner, as_system

pytestmark = pytest.mark.django_db


def test_unused_time_and_energy_of_a_month() -> None:
    """Five minutes each: used and measured, idle without energy, without a process."""
    lab = a_lab("helix", gpus=1)
    with as_system():
        gpu = Gpu.objects.get()
    booking = a_booking(lab.project, lab.actor.user_id, state="active")
    place = an_allocation(booking, gpu, state="active")
    rows = [(80.0, 1, 180_000_000), (4.9, 1, None), (None, 0, None), (None, None, 0)]
    with as_system():
        for number, (busy, processes, energy) in enumerate(rows):
            GpuUse.objects.create(
                gpu_id=place.gpu_id,
                tenant_id=place.tenant_id,
                allocation_id=place.id,
                slot=None,
                at=NOW + number * timedelta(minutes=5),
                seconds=300,
                measured=300,
                busy_avg=busy,
                processes_max=processes,
                energy_mj=energy,
            )
        count, price = booking.ask["count"], booking.price_per_hour
        part = Decimal(place.size) / 8
        of = StatementOf(place.tenant_id, month_of(NOW.date()))
        use = held_use_of(of, 400, NOW + timedelta(hours=1))
        none = held_use_of(replace(of, project=a_project(booking.tenant)), 0, NOW)
    step = part / 12
    assert (use.hours, use.unused_hours) == (_thousandths(4 * step), _thousandths(2 * step))
    assert abs(use.unused_cost - 2 * price / count / 12) < Decimal("0.00001")
    assert use.measured_kwh == Decimal("0.050")
    watts = watts_of(booking.planned_class)
    assert use.assumed_kwh == _thousandths(2 * step * watts / 1000)
    assert use.co2_kg is not None
    assert abs(use.co2_kg - use.kwh * 400 / 1000) < Decimal("0.001")
    assert (none.held_hours, none.hours, none.co2_kg) == (Decimal(0), Decimal(0), None)
    assert use.energy_cost is None
    # Nodes have sent readings of 20 minutes; the portal's own record has an hour.
    assert use.held_hours == part.quantize(Decimal("0.001"))
    assert use.coverage == "0.3 of 1.0 held GPU-hours were measured"


def test_energy_in_a_zone_has_the_price_and_the_grams_of_its_hour() -> None:
    lab = a_lab("helix", gpus=1)
    here = NOW.astimezone(ZoneInfo("Asia/Tokyo")).hour
    with as_system():
        gpu = Gpu.objects.get()
    with as_owner():
        Zone.objects.create(
            slug="tokyo",
            name="Tokyo",
            time_zone="Asia/Tokyo",
            price=[Decimal("0.5") if hour == here else Decimal(9) for hour in range(24)],
            grams=[20 if hour == here else 900 for hour in range(24)],
            created=NOW,
        )
        Rack.objects.update(zone="tokyo")
    booking = a_booking(lab.project, lab.actor.user_id, state="active")
    place = an_allocation(booking, gpu, state="active")
    with as_system():
        GpuUse.objects.create(
            gpu_id=place.gpu_id,
            tenant_id=place.tenant_id,
            allocation_id=place.id,
            slot=None,
            at=NOW,
            seconds=300,
            measured=300,
            busy_avg=80.0,
            processes_max=1,
            energy_mj=7_200_000_000,
        )
        use = held_use_of(StatementOf(place.tenant_id, month_of(NOW.date())), 400, NOW + timedelta(hours=1))
    assert (use.kwh, use.co2_kg, use.energy_cost) == (Decimal(2), Decimal("0.040"), Decimal(1))


def _thousandths(value: Decimal) -> Decimal:
    return value.quantize(Decimal("0.001"))
