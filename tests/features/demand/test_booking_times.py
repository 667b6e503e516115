"""When to book, and what is missing: what both compute from a kept forecast."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.test import Client
from django.utils import timezone

from allocation.features.demand.heat import shortage, waits
from allocation.features.demand.models import DemandForecast, DemandHour
from allocation.models import Gpu
from tests.api.builders import Site, said
from tests.roles import as_system
from tests.web.flat import flat

HOUR = timedelta(hours=1)
AHEAD = 336


def test_a_wait_lasts_until_so_many_gpus_are_expected_free() -> None:
    """Of four GPUs three are wanted, then five, four, one: one GPU waits two hours from the second on."""
    assert waits([3, 5, 4, 1], 4, 1) == [0, 2, 1, 0]
    assert waits([3, 5, 4, 1], 4, 2) == [3, 2, 1, 0]
    assert waits([3, 5, 4, 1], 4, 4) == [None] * 4
    assert shortage([3, 5, 4, 1], 4) == [0, 1, 0, 0]


def forecast(now: datetime) -> tuple[str, int]:
    """A forecast that wants one GPU more than there are in its first 24 hours, and half of them later.
    One past week lacked two in each hour. Returns the class and its GPUs."""
    name = Gpu.objects.order_by("number")[0].gpu_class_id
    gpus = Gpu.objects.filter(gpu_class=name).count()
    middle = [gpus + 1.0] * 24 + [gpus / 2] * (AHEAD - 24)
    high = [each + 1 for each in middle]
    with as_system():
        for kind in ("requested", "in_use", "wanted"):
            DemandForecast.objects.create(
                gpu_class_id=name, kind=kind, at=now, low=[0.0] * AHEAD, middle=middle, high=high, hits={}
            )
        DemandHour.objects.bulk_create(
            DemandHour(gpu_class_id=name, at=now - n * HOUR, requested=0, in_use=gpus, wanted=gpus + 2)
            for n in range(1, 169)
        )
    return name, gpus


@pytest.mark.django_db
def test_the_heat_map_says_wait_price_and_risk(site: Site, client: Client) -> None:
    """One GPU waits until the first day is over; what can't be is refused."""
    now = timezone.now().astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    name, gpus = forecast(now)
    rows = said(site.researcher.get(f"heatmap?class={name}"))["items"]
    assert len(rows) == 168
    assert [row["wait_hours"] for row in rows[:25]] == list(range(24, -1, -1))
    assert rows[30]["free"] == pytest.approx(gpus / 2, abs=0.01)
    assert all(Decimal(row["price"]) > 0 for row in rows)
    assert all(row["pause_risk"] == 0 for row in rows)
    for query in (f"class={name}&count={gpus + 1}", "class=nothing", f"class={name}&tier=nothing"):
        assert site.researcher.get(f"heatmap?{query}").status_code == 422, query
    client.force_login(site.people["researcher"])
    same = flat(client.get(f"/t/{site.tenant.slug}/heatmap?class={name}&show=price").content.decode())
    assert "the same at every hour of this week" in same
    assert "a wait of 24 h" not in same
    page = client.get(f"/t/{site.tenant.slug}/heatmap?class={name}&show=wait")
    assert page.status_code == 200
    assert "a wait of 24 h" in flat(page.content.decode())
    assert "See the quote" in flat(page.content.decode())


@pytest.mark.django_db
def test_operators_read_what_is_missing_and_what_more_would_change(site: Site, client: Client) -> None:
    """24 GPU-hours are missing in the coming week, 336 were in the past one, and one more GPU serves them."""
    now = timezone.now().astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    name, gpus = forecast(now)
    row = next(
        each for each in said(site.operator.get("capacity/report"))["items"] if each["gpu_class"] == name
    )
    assert row["gpus"] == gpus
    past, first, second = row["weeks"]
    assert (past["is_past"], past["p50"], past["peak_p50"]) == (True, 336.0, 2.0)
    assert (first["p50"], first["p90"], first["peak_p90"]) == (24.0, 48.0, 2.0)
    assert second["p50"] == 0.0
    one = row["more"][0]
    assert (one["gpus"], one["p50"], one["p90"]) == (1, 0.0, 24.0)
    assert one["used_percent"] == pytest.approx(100 * 24 / AHEAD)
    assert Decimal(one["break_even"]) == round(Decimal(row["price"]) * Decimal("0.0714"), 2)
    assert site.admin.get("capacity/report").status_code == 403
    client.force_login(site.people["researcher"])
    assert client.get("/ops/capacity").status_code == 404
