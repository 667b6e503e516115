"""Kept hours and forecasts: what they are computed from, who reads them, and their past hits."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from allocation.features.demand import page as demand_page
from allocation.features.demand.models import DemandForecast, DemandHour
from allocation.features.demand.services import demand_store, newest_forecasts
from allocation.models import Booking, Gpu
from allocation.queries.fleet.metrics import metrics_of
from allocation.rules.states import State
from tenants.models import GpuClass
from tenants.platform.wall import operator_tx
from tests.api.builders import Site, said
from tests.builders_allocation import a_booking, an_allocation
from tests.roles import as_owner, as_system
from tests.web.flat import flat
from wire.exposition import exposition

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)
KINDS = ("requested", "in_use", "wanted")


def hour_of(now: datetime) -> datetime:
    """The full hour before an instant."""
    return now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def ran(
    site: Site, number: int, starts: datetime, hours: float, *, waited: float = 0, profile: str = ""
) -> None:
    """A run on a GPU, requested `waited` hours before its start and one more before that."""
    gpu = Gpu.objects.order_by("number")[number]
    booking = a_booking(
        site.project, site.people["researcher"].pk, state=State.ENDED, starts=starts, now=starts
    )
    ends = starts + hours * HOUR
    with as_owner():
        Booking.objects.filter(id=booking.id).update(
            submitted=starts - (waited + 1) * HOUR,
            not_before=starts - waited * HOUR,
            planned_class=gpu.gpu_class_id,
            ended_at=ends,
        )
    an_allocation(booking, gpu, profile=profile or None, starts=starts, ends=ends, state="ended")


def stored(now: datetime) -> int:
    """Runs the task's work as workers do."""
    with as_system():
        return demand_store(now)


def test_hours_are_those_of_runs_requests_and_waits(site: Site) -> None:
    """A run from 0:30 to 2:15 that waited for an hour and a half, and a slice of three eighths."""
    now = hour_of(timezone.now())
    first = now - 6 * HOUR
    ran(site, 0, first + 0.5 * HOUR, 1.75, waited=1.5)
    ran(site, 1, first, 2, profile="3g.40gb")
    stored(now)
    name = Gpu.objects.order_by("number")[0].gpu_class_id
    rows = {(row.at - first) / HOUR: row for row in DemandHour.objects.filter(gpu_class=name)}
    in_use = [rows[number].in_use for number in range(3)]
    assert in_use == pytest.approx([0.5 + 0.5, 1.0 + 0.5, 0.25])
    assert rows[-1].wanted == pytest.approx(1.0)
    assert rows[0].wanted == pytest.approx(in_use[0] + 0.5)
    assert rows[-2].requested == 1.0
    assert rows[-1].requested == 1.0


@pytest.mark.turn
def test_a_forecast_is_made_once_an_hour_and_kept(site: Site) -> None:
    """The same hour makes nothing, the next one does; of old ones every sixth hour stays."""
    now = hour_of(timezone.now()).replace(hour=5)
    for day in range(5):
        ran(site, 0, now - timedelta(days=day + 1), 8)
    made = stored(now)
    assert made == len(KINDS) * DemandForecast.objects.values("gpu_class").distinct().count()
    assert stored(now + timedelta(minutes=59)) == 0
    assert stored(now + HOUR) == made
    assert stored(now + 2 * HOUR) == made
    assert {row.at for row in DemandForecast.objects.all()} == {now + HOUR, now + 2 * HOUR}
    assert len(DemandForecast.objects.all()[0].middle) == 336


@pytest.mark.turn
def test_past_hits_are_those_of_kept_forecasts(site: Site) -> None:
    """A forecast of zero is compared with what came: nothing in its band where a run was."""
    now = hour_of(timezone.now()).replace(hour=0)
    for day in range(1, 6):
        ran(site, 0, now - timedelta(days=day), 23)
    name = Gpu.objects.order_by("number")[0].gpu_class_id
    zero = [0.0] * 336
    with as_system():
        DemandForecast.objects.create(
            gpu_class_id=name, kind="in_use", at=now - 24 * HOUR, low=zero, middle=zero, high=zero, hits={}
        )
    stored(now)
    hits = newest_forecasts(name)[name]["in_use"].hits
    assert hits["1-6"] == [0, 6, 1.0]
    assert hits["7-24"] == [1, 18, pytest.approx(17 / 18, abs=1e-3)]
    with operator_tx():
        text = exposition(metrics_of(now))
    labels = f'{{gpu_class="{name}",hours_ahead="1-6",kind="in_use"}}'
    assert re.search(rf"^gpu_portal_demand_error_gpus{re.escape(labels)} 1(\.0)?$", text, re.MULTILINE), text


def test_what_is_booked_is_the_least_that_is_expected(site: Site) -> None:
    """A planned run of tomorrow is in the band from below; no more than the class has is in use."""
    now = hour_of(timezone.now())
    for day in range(4):
        ran(site, 0, now - timedelta(days=day + 1), 1)
    gpu = Gpu.objects.order_by("number")[0]
    booking = a_booking(
        site.project, site.people["researcher"].pk, state=State.SCHEDULED, starts=now + 24 * HOUR, now=now
    )
    an_allocation(booking, gpu, starts=now + 24 * HOUR, ends=now + 26 * HOUR, state="planned")
    stored(now)
    row = newest_forecasts(gpu.gpu_class_id)[gpu.gpu_class_id]["in_use"]
    assert row.low[24] >= 1.0
    assert row.low[25] >= 1.0
    assert row.low[30] < 1.0
    assert max(row.high) <= Gpu.objects.filter(gpu_class=gpu.gpu_class).count()


@pytest.mark.turn
def test_rest_and_pages_show_it_without_names(site: Site, client: Client) -> None:
    """A member reads the bands of a class; an unknown class is missing; figures have the card."""
    now = hour_of(timezone.now())
    for day in range(4):
        ran(site, 0, now - timedelta(days=day + 1), 5)
    stored(now)
    name = Gpu.objects.order_by("number")[0].gpu_class_id
    found = said(site.researcher.get(f"forecasts/demand?class={name}"))["items"]
    assert [row["kind"] for row in found] == sorted(KINDS)
    hour = found[0]["hours"][0]
    assert hour["low"] <= hour["middle"] <= hour["high"]
    assert site.researcher.get("forecasts/demand?class=nothing").status_code == 422
    client.force_login(site.people["researcher"])
    page = flat(
        client.get(f"/t/{site.tenant.slug}/insights?part=cards&class={name}&weeks=1").content.decode()
    )
    assert "Expected demand" in page
    assert "GPUs in use" in page
    assert "waited for" not in page


@pytest.mark.turn
def test_the_card_begins_with_gpus_and_not_with_cores(
    site: Site, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A class with 99 cores is no larger than one with eight GPUs."""
    now = hour_of(timezone.now())
    for day in range(4):
        ran(site, 0, now - timedelta(days=day + 1), 5)
    stored(now)
    gpus = Gpu.objects.order_by("number")[0].gpu_class
    with as_owner():
        cores = GpuClass.objects.create(slug="cpu", label="CPU cores", kind="host", order=9)
        for row in DemandForecast.objects.filter(gpu_class=gpus):
            row.pk, row.gpu_class = None, cores
            row.save()
    monkeypatch.setattr(demand_page, "gpus_of_classes", lambda: {"cpu": 99, gpus.slug: 8})
    client.force_login(site.people["researcher"])
    page = flat(client.get(f"/t/{site.tenant.slug}/insights?part=cards").content.decode())
    assert f"Expected demand: {gpus.label}" in page
