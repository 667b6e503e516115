"""Two chosen periods side by side, on the pages."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from django.test import Client

from allocation.features.insights.compared import compared
from allocation.features.insights.figures import Figures
from allocation.models import Booking, Gpu
from allocation.rules.states import State
from billing.rules import Period
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
    row = page[page.rindex("GPU-hours booked") :]
    row = row[: row.index("</tr>")]
    assert all(f">{text}<" in row for text in ("9.0", "4.0", "+125 %"))
    assert "width:44.4%" in row
    assert "9.0 GPU-hours were booked, +125 % against the 4.0 of 5 – 11 Oct 2026" in page
    assert "Only 1 booking began in 5 – 11 Oct 2026" in page
    assert "The periods have different lengths" not in page
    assert "The periods have different lengths" in flat(
        client.get(f"{PAGE}?{WEEKS.replace('10-05', '10-01')}").content.decode()
    )


@pytest.mark.parametrize(
    ("one", "other", "said_of_it"),
    [("9", "4", "+125 %"), ("12", "4", "3.0 times"), ("1", "4", "−75 %"), ("4.01", "4", "no change")],
)
def test_a_change_is_said_as_people_say_it(one: str, other: str, said_of_it: str) -> None:
    """A multiple where a percentage has four digits, and nothing where the shown numbers are equal."""
    days = (Period(date(2026, 10, 12), date(2026, 10, 19)), Period(date(2026, 10, 5), date(2026, 10, 12)))
    hours = (Figures(gpu_hours=Decimal(one)), Figures(gpu_hours=Decimal(other)))
    assert compared(*hours, days, "").groups[0][1][0].difference == said_of_it


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
    assert sum(Decimal(row["core_hours"]) for row in before) == 0
    assert sum(Decimal(row["core_hours"]) for row in after) == 6


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
    assert "GPU-hours free while somebody waited" in page


def test_at_first_this_week_is_compared_with_the_one_before(site: Site, client: Client) -> None:
    client.force_login(site.people["admin"])
    page = flat(client.get(PAGE).content.decode())
    today = datetime.now(UTC).date()
    for day in (today - timedelta(days=6), today, today - timedelta(days=13), today - timedelta(days=7)):
        assert f'value="{day}"' in page


def test_rest_refuses_days_at_the_ends_of_time(site: Site) -> None:
    for query in ("from=0001-01-01&to=0001-01-05", "against_from=9999-12-30"):
        assert site.admin.get(f"kpi-comparison?{query}").status_code == 422
