"""Where the hours of a class went, and what its readings say of its work."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.test import Client
from django.utils import timezone

from allocation.features.host_use.models import HostUse
from allocation.features.insights.figures import Figures, Whose, figures_of
from allocation.features.insights.readings import peak_tflops
from allocation.models import Booking, Gpu, GpuEvent, GpuModel, GpuUse, Maintenance
from allocation.rules.states import State
from billing.rules import Period
from tests.api.builders import Site, said
from tests.builders_allocation import a_booking, an_allocation
from tests.roles import as_owner, as_system

HOUR = timedelta(hours=1)


def test_peaks_are_those_of_the_product() -> None:
    """A longer name goes before a shorter one; what is not known has none."""
    assert peak_tflops("NVIDIA H100 80GB HBM3") == 989
    assert peak_tflops("NVIDIA H100 PCIe") == 756
    assert peak_tflops("NVIDIA L40S") == 362
    assert peak_tflops("NVIDIA L4") == 121
    assert peak_tflops("NVIDIA A100-SXM4-80GB") == 312
    assert peak_tflops("NVIDIA GeForce GTX 1080") is None


def yesterday() -> datetime:
    """Its begin in UTC."""
    return timezone.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(
        days=1
    )


def of_class(starts: datetime) -> Figures:
    """The figures of H100 on a day, for the site."""
    days = Period(starts.date(), starts.date() + timedelta(days=1))
    with as_owner():
        return figures_of(Whose(), days, "class", "day", timezone.now())[days.starts, "h100"]


@pytest.mark.django_db
def test_hours_are_booked_dark_idle_or_out_of_service(site: Site) -> None:
    """Two GPUs run from 2 to 5. Four wait from 3 to 6. A node of eight is unreachable from 4:30 to 5:30,
    and one GPU of it is under maintenance from 5 to 7."""
    starts, person = yesterday(), site.people["researcher"].pk
    gpus = list(Gpu.objects.order_by("number"))
    run = a_booking(site.project, person, state=State.ENDED, starts=starts, now=starts)
    for gpu in gpus[:2]:
        an_allocation(run, gpu, starts=starts + 2 * HOUR, ends=starts + 5 * HOUR, state="ended")
    waited = a_booking(site.project, person, state=State.CANCELLED, starts=starts, now=starts)
    with as_owner():
        Booking.objects.filter(id=run.id).update(submitted=starts + 2 * HOUR, not_before=starts + 2 * HOUR)
        Booking.objects.filter(id=waited.id).update(
            submitted=starts + 3 * HOUR,
            not_before=starts + 3 * HOUR,
            ended_at=starts + 6 * HOUR,
            planned_class="h100",
            ask={**waited.ask, "count": 4},
        )
        GpuEvent.objects.create(
            node=gpus[0].node,
            kind="unreachable",
            at=starts + 4.5 * HOUR,
            until=starts + 5.5 * HOUR,
            sentence="x",
        )
        Maintenance.objects.create(
            gpu=gpus[7],
            starts=starts + 5 * HOUR,
            ends=starts + 9 * HOUR,
            ended_at=starts + 7 * HOUR,
            drain_by=starts + 5 * HOUR,
            reason="fan",
            created=starts,
            created_by_id=person,
        )
    hours = of_class(starts).capacity
    assert hours is not None
    assert hours.there == 8 * 24
    assert hours.out_of_service == pytest.approx(8 + 1.5)
    # At 3 to 4 six are free and four waited for; at 4 to 5 two are; at 5 to 6 three and a half are.
    assert hours.dark == pytest.approx(4 + 2 + 3.5)
    (row,) = [
        each
        for each in said(site.operator.get(f"platform-kpis?by=class&from={starts:%Y-%m-%d}"))["items"]
        if each["capacity"] and each["starts"] == f"{starts:%Y-%m-%d}"
    ]
    assert row["capacity"]["dark"] == pytest.approx(9.5)
    client = Client()
    client.force_login(site.people["operator"])
    page = client.get("/ops/insights?by=class").content.decode()
    assert "Idle while work waited" in page
    assert "Idle while work waited" not in client.get("/ops/insights?by=tenant").content.decode()


@pytest.mark.django_db
def test_readings_say_what_limits_the_work(site: Site) -> None:
    """Five minutes at half of the tensor cores, and five without that reading, which count as nothing."""
    starts = yesterday()
    gpu = Gpu.objects.order_by("number")[0]
    booking = a_booking(
        site.project, site.people["researcher"].pk, state=State.ENDED, starts=starts, now=starts
    )
    place = an_allocation(booking, gpu, starts=starts, ends=starts + HOUR, state="ended")
    assert GpuModel.objects.get(slug=gpu.model_id).product_name == "NVIDIA H100 80GB HBM3"
    with as_system():
        for number, tensor in enumerate((50.0, None)):
            GpuUse.objects.create(
                gpu=gpu,
                tenant_id=place.tenant_id,
                allocation_id=place.id,
                at=starts + number * timedelta(minutes=5),
                seconds=300,
                measured=300,
                busy_avg=90.0,
                tensor_avg=tensor,
                bandwidth_avg=30.0,
                pcie_kb=1_000_000,
                nvlink_kb=None,
                energy_mj=150_000_000,
            )
    found = of_class(starts)
    assert (found.tensor, found.bandwidth) == (Decimal("50.0"), Decimal("30.0"))
    # 494.5 TFLOPS at 500 W, and 1.024 GB each second.
    assert found.tflops_per_watt == Decimal("0.989")
    assert found.link_bytes_per_kiloflop == Decimal("0.002")
    rows = said(site.admin.get(f"kpis?by=class&from={starts:%Y-%m-%d}"))["items"]
    assert next(row["tflops_per_watt"] for row in rows if row["name"] == "h100") == "0.989"
    assert "capacity" not in rows[0]
    with as_system():
        # It exchanged 1.024 GB each second with other nodes, too.
        HostUse.objects.create(
            tenant_id=place.tenant_id,
            booking=booking,
            node_id=gpu.node_id,
            at=starts + HOUR,
            seconds=3_600,
            cpu_seconds=0,
            core_seconds=0,
            cores=0,
            spare=0,
            cpu=0,
            network_seconds=1_024,
            received_mb=800_000,
            sent_mb=200_000,
        )
    assert of_class(starts).link_bytes_per_kiloflop == Decimal("0.004")
