"""Two chosen periods side by side, on the pages."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from django.test import Client

from allocation.models import Booking, Gpu
from allocation.rules.states import State
from tests.api.builders import Site, said
from tests.builders_allocation import HOUR, a_booking, an_allocation
from tests.roles import as_owner, as_system
from tests.web.flat import flat

pytestmark = pytest.mark.django_db
PAGE = "/t/helix/insights/compare"
WEEKS = "from=2026-10-12&to=2026-10-18&against_from=2026-10-05&against_to=2026-10-11"


def ran(site: Site, day: date, hours: int) -> None:
    """A run of the researcher that began at noon of a day."""
    starts = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
    with as_system():
        gpu = Gpu.objects.order_by("number")[0]
    booking = a_booking(
        site.project, site.people["researcher"].pk, state=State.ENDED, starts=starts, now=starts, held="0"
    )
    an_allocation(booking, gpu, starts=starts, ends=starts + hours * HOUR, state="ended")


def test_the_page_has_both_periods_and_their_difference(site: Site, client: Client) -> None:
    ran(site, date(2026, 10, 13), 6)
    ran(site, date(2026, 10, 18), 3)
    ran(site, date(2026, 10, 11), 4)
    client.force_login(site.people["admin"])
    page = flat(client.get(f"{PAGE}?{WEEKS}").content.decode())
    row = page[page.index("GPU-hours booked") :][:250]
    assert all(f">{text}<" in row for text in ("9.0", "4.0", "+125 %"))
    assert "12 Oct 2026 – 18 Oct 2026" in page
    assert "the periods have different lengths" not in page
    assert "the periods have different lengths" in flat(
        client.get(f"{PAGE}?{WEEKS.replace('10-05', '10-01')}").content.decode()
    )


def test_cores_of_work_without_a_gpu_count_as_no_gpus(site: Site) -> None:
    """A booking with cores of hosts has none of the GPU-hours, used or not."""
    ran(site, date(2026, 10, 13), 6)
    days = {"from": "2026-10-12", "to": "2026-10-18"}
    before = said(site.admin.get("kpis", by="class", **days))["items"]
    assert sum(Decimal(row["gpu_hours"]) for row in before) == 6
    with as_owner():
        booking = Booking.objects.get()
        booking.ask = {**booking.ask, "host": True}
        booking.save(update_fields=["ask"])
    after = said(site.admin.get("kpis", by="class", **days))["items"]
    assert sum(Decimal(row["gpu_hours"]) for row in after) == 0


@pytest.mark.parametrize(
    "query",
    [
        "from=x",
        "from=2026-10-12&to=2026-10-01",
        "from=0001-01-01",
        "from=0001-01-01&to=0001-01-05",
        "to=0001-01-01",
        "to=0001-01-05",
        "to=9999-12-31",
        "against_from=0001-01-01",
        "against_from=2026-10-01&against_to=0001-01-01",
        "from=9999-12-31&to=9999-12-31",
        "against_from=9999-12-31",
    ],
)
def test_what_is_no_period_is_refused_and_the_usual_one_is_shown(
    site: Site, client: Client, query: str
) -> None:
    client.force_login(site.people["admin"])
    answer = client.get(f"{PAGE}?{query}")
    assert answer.status_code == 422
    last = datetime.now(UTC).date() - timedelta(days=28)
    assert f"{last + timedelta(days=1):%Y}" in answer.content.decode()
    client.force_login(site.people["operator"])
    assert client.get(f"/ops/insights/compare?{query}").status_code == 422


def test_it_is_of_those_that_the_reader_may_see(site: Site, client: Client) -> None:
    ran(site, date(2026, 10, 13), 6)
    client.force_login(site.people["outsider"])
    assert client.get(f"{PAGE}?{WEEKS}").status_code == 404
    assert client.get("/ops/insights/compare").status_code in (403, 404)
    client.force_login(site.people["researcher"])
    page = flat(client.get(f"{PAGE}?{WEEKS}&project=folding").content.decode())
    assert "What else changed" not in page
    assert client.get(f"{PAGE}?{WEEKS}&project=hidden").status_code == 404
    client.force_login(site.people["operator"])
    page = flat(client.get(f"/ops/insights/compare?{WEEKS}").content.decode())
    assert "Free while somebody waited, in GPU-hours" in page


def test_at_first_this_week_is_compared_with_the_one_before(site: Site, client: Client) -> None:
    client.force_login(site.people["admin"])
    page = flat(client.get(PAGE).content.decode())
    today = datetime.now(UTC).date()
    for day in (today - timedelta(days=6), today, today - timedelta(days=13), today - timedelta(days=7)):
        assert f"{day.day} {day:%b %Y}" in page


def test_rest_refuses_days_at_the_ends_of_time(site: Site) -> None:
    for query in ("from=0001-01-01&to=0001-01-05", "against_from=9999-12-30"):
        assert site.admin.get(f"kpi-comparison?{query}").status_code == 422
