"""The mix of GPUs: the cheapest one is the least of all, and the load is what the rows of bookings say."""

import csv
import io
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from django.test import Client
from django.utils import timezone

from allocation.features.capacity.mix.arithmetic import (
    BURST,
    OWN,
    RESERVED,
    Prices,
    cheapest,
    hours_by_level,
    mix_made,
)
from allocation.features.capacity.mix.chart import mix_chart
from allocation.features.capacity.mix.load import NeverRan, Whose, needed_read
from allocation.features.capacity.mix.questions import mixes_of, question_read
from allocation.models import Booking, Gpu
from allocation.rules.states import State
from tenants.models import Project
from tests.api.builders import Site, said
from tests.builders_allocation import a_booking, an_allocation
from tests.features.capacity.builders import FILE, providers_file
from tests.roles import as_owner, as_system

HOUR = timedelta(hours=1)
PRICES = Prices(Decimal(2), Decimal(3), Decimal(8), "EUR")
RESERVED_FILE = FILE + 'reserved_price = "6"\n'


def load(*gpus: float) -> Any:  # noqa: ANN401 (an array)
    return np.asarray(gpus, dtype=float)


def test_a_gpu_that_is_needed_often_is_own_and_a_peak_bursts() -> None:
    """Of four hours the first GPU is needed in all, the second in two, the third in one."""
    hours = load(1, 3, 2, 1)
    assert hours_by_level(hours) == [4, 2, 1]
    assert (PRICES.break_even(OWN), PRICES.break_even(RESERVED)) == (Decimal("25.0"), Decimal("37.5"))
    assert cheapest(hours, 8, PRICES) == (3, 0)
    # With one own GPU the second is reserved, and the third bursts: 8 is less than 12.
    assert cheapest(hours, 1, PRICES) == (1, 1)
    own, reserved, burst = mix_made("x", hours, 1, 1, PRICES).parts
    assert [own.used, own.paid, own.cost, own.share] == [4, 4, 8, Decimal("57.1")]
    assert [reserved.used, reserved.paid, reserved.cost] == [2, 4, 12]
    assert [burst.gpus, burst.used, burst.paid, burst.cost] == [1, 1, 1, 8]
    assert mix_made("x", hours, 1, 1, PRICES).cost == 28


def test_the_cheapest_mix_is_the_least_of_all() -> None:
    draw = Random(36)  # noqa: S311 (not a secret)
    for _ in range(150):
        hours = load(
            *(draw.choice((0, 0, 1, 2, 2.5, draw.uniform(0, 7))) for _ in range(draw.randint(1, 20)))
        )
        own, reserved, burst = (Decimal(draw.randint(0, 12)) for _ in range(3))
        prices, most = Prices(own, reserved, burst, "EUR"), draw.randint(0, 9)
        found = cheapest(hours, most, prices)
        assert found is not None
        assert found[0] <= most
        costs = [
            mix_made("x", hours, own, reserved, prices).cost
            for own in range(most + 1)
            for reserved in range(9)
        ]
        best = mix_made("x", hours, *found, prices).cost
        assert best is not None
        # Hours are rounded to thousandths in costs.
        assert best <= min(each for each in costs if each is not None) + Decimal("0.1")
        parts = mix_made("x", hours, *found, prices).parts
        assert float(sum(part.used for part in parts)) == pytest.approx(hours.sum(), abs=0.01)


def test_without_a_price_no_mix_is_the_cheapest() -> None:
    prices = Prices(Decimal(2), None, None, "EUR")
    assert cheapest(load(1, 2), 4, prices) is None
    assert prices.break_even(OWN) is None
    assert mix_made("x", load(1, 2), 4, 0, prices).cost == 16
    assert mix_made("x", load(1, 2), 1, 0, prices).cost is None
    assert Prices(Decimal(2), None, Decimal(0), "EUR").break_even(OWN) is None


def midnight(days: int) -> datetime:
    """The begin of the UTC day so many days ago."""
    now = timezone.now().astimezone(UTC)
    return now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=days)


def ran(
    site: Site,
    gpus: Sequence[Gpu],
    starts: datetime,
    hours: float,
    *,
    wait: float = 0,
    who: Project | None = None,
) -> None:
    """A booking that could begin at `starts` and waited for so many hours."""
    project = who or site.project
    person = site.people["outsider" if project == site.other_project else "researcher"].pk
    begins = starts + wait * HOUR
    booking = a_booking(project, person, state=State.ENDED, starts=starts, now=starts)
    for gpu in gpus:
        an_allocation(booking, gpu, starts=begins, ends=begins + hours * HOUR, state="ended")
    with as_owner():
        row = Booking.objects.filter(id=booking.id)
        row.update(submitted=starts - HOUR, not_before=starts, ended_at=begins + hours * HOUR)


@pytest.fixture
def used(site: Site, settings: Any, tmp_path: Path) -> list[Gpu]:  # noqa: ANN401 (pytest-django's)
    """Five days ago four GPUs ran 1.5 hours after a wait of two, and one GPU of others for an hour."""
    providers_file(settings, tmp_path, RESERVED_FILE)
    with as_system():
        gpus = list(Gpu.objects.order_by("number"))
    ran(site, gpus[:4], midnight(5) + 3 * HOUR, 1.5, wait=2)
    ran(site, gpus[7:], midnight(5) + 4 * HOUR, 1, who=site.other_project)
    return gpus


@pytest.mark.django_db
def test_runs_count_when_they_could_have_begun(site: Site, used: list[Gpu]) -> None:
    now = timezone.now()
    with as_system():
        found = needed_read(Whose("all"), midnight(6), midnight(4), now)
        own = needed_read(Whose("helix", site.tenant.id), midnight(6), midnight(4), now)
        other = needed_read(Whose("p", site.tenant.id, (site.hidden.id,)), midnight(6), midnight(4), now)
    # The first request was an hour before the first start.
    assert found.starts == midnight(5) + 2 * HOUR
    assert (found.hours, found.ends) == (22, midnight(4))
    assert list(found.of("h100")[:5]) == [0, 4, 3, 0, 0]
    assert list(own.of("h100")[:4]) == [0, 4, 2, 0]
    assert found.of("h100").sum() == 7
    assert (other.hours, other.by_class) == (0, {})


@pytest.mark.django_db
def test_what_never_ran_is_said_and_not_counted(site: Site, used: list[Gpu]) -> None:
    starts = midnight(3)
    booking = a_booking(
        site.project, site.people["researcher"].pk, state=State.CANCELLED, starts=starts, now=starts
    )
    with as_owner():
        facts = {"ended_at": starts + HOUR, "planned_class": "h100", "ask": {**booking.ask, "count": 3}}
        Booking.objects.filter(id=booking.id).update(**facts)
    with as_system():
        found = needed_read(Whose("all"), midnight(6), midnight(1), timezone.now())
    assert found.of("h100").sum() == 7
    assert found.never_ran["h100"] == NeverRan(1, Decimal(6))


@pytest.mark.django_db
def test_rest_has_the_mixes_of_the_organisation(site: Site, used: list[Gpu]) -> None:
    days = {"from": f"{midnight(5):%Y-%m-%d}", "to": f"{midnight(4):%Y-%m-%d}"}
    (row,) = said(site.admin.get("capacity/mix", **days, **{"class": "h100"}))["items"]
    assert (row["hours"], row["gpu_hours"], row["peak"]) == (22, "6.000", "4.000")
    assert {name: Decimal(row["prices"][name]) for name in ("own", "reserved", "burst")} == {
        "own": Decimal("4.80"),
        "reserved": Decimal("1.5"),
        "burst": Decimal(3),
    }
    assert (row["break_even_own"], row["break_even_reserved"]) == ("160.0", "50.0")
    assert row["hours_by_gpu"] == [2, 2, 1, 1]
    assert row["burst_wait_seconds"] == 60
    assert [each["name"] for each in row["mixes"]] == ["cheapest", "present"]
    best = {part["kind"]: (part["gpus"], part["share"]) for part in row["mixes"][0]["parts"]}
    assert best == {OWN: (0, "0.0"), RESERVED: (0, "0.0"), BURST: (4, "100.0")}
    assert Decimal(row["mixes"][0]["cost"]) == 18

    tried = {"class": "h100", "own": "2", "reserved": "1", "own_price": "0.1", "reserved_price": "0.2"}
    (row,) = said(site.admin.get("capacity/mix", **days, **tried))["items"]
    mine = row["mixes"][-1]
    assert (mine["name"], [part["used"] for part in mine["parts"]]) == ("tried", ["4.000", "1.000", "1.000"])
    assert Decimal(mine["cost"]) == Decimal("4.4") + Decimal("4.4") + 3


@pytest.mark.django_db
def test_leads_get_their_projects_operators_the_site_and_others_nothing(site: Site, used: list[Gpu]) -> None:
    ran(site, used[4:6], midnight(2), 2, who=site.hidden)

    def hours(answer: Any) -> list[str]:  # noqa: ANN401 (JSON)
        return [each["gpu_hours"] for each in said(answer)["items"]]

    assert hours(site.admin.get("capacity/mix")) == ["10.000"]
    assert hours(site.lead.get("capacity/mix")) == ["6.000"]
    assert hours(site.lead.get("capacity/mix", project=site.project.slug)) == ["6.000"]
    assert hours(site.admin.get("capacity/mix", project=site.hidden.slug)) == ["4.000"]
    assert hours(site.operator.get("platform-mix")) == ["11.000"]
    assert site.lead.get("capacity/mix", project=site.hidden.slug).status_code == 404
    for who in (site.researcher, site.viewer):
        assert said(who.get("capacity/mix"))["code"] == "not_allowed"
        assert said(who.get("capacity/mix", project=site.project.slug))["code"] == "not_allowed"
    assert site.admin.get("platform-mix").status_code == 403
    assert site.outsider.get("capacity/mix", project=site.project.slug).status_code in {403, 404}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"from": "2026-02-01", "to": "2026-01-01"}, "from"),
        ({"from": "2020-01-01", "to": "2026-01-01"}, "from"),
        ({"class": "none"}, "class"),
        ({"own": "3"}, "class"),
        ({"class": "h100", "own": "-1"}, "own"),
        ({"class": "h100", "own": "1e9"}, "own"),
        ({"class": "h100", "own_price": "many"}, "own_price"),
        ({"other": "1"}, "other"),
    ],
)
def test_bad_parameters_are_refused_at_the_field(
    site: Site, used: list[Gpu], query: dict[str, str], param: str
) -> None:
    answer = site.admin.get("capacity/mix", **query)
    assert 400 <= answer.status_code < 500
    assert said(answer)["param"] == param


@pytest.mark.django_db
def test_pages_draw_the_hours_and_try_a_mix(site: Site, used: list[Gpu]) -> None:
    client = Client()
    client.force_login(site.people["admin"])
    at = f"/t/{site.tenant.slug}/capacity/mix"
    page = client.get(at).content.decode()
    assert "What mixes cost" in page
    assert page.count("<polygon") == 1
    tried = {"class": "h100", "own": "2", "reserved": "1"}
    page = client.get(at, tried).content.decode()
    assert page.count("<polygon") == 3
    assert "Yours" in page
    page = client.get(at, tried | {"own": "x"}).content.decode()
    assert 'id="mix-own-note"' in page
    rows = list(csv.DictReader(io.StringIO(client.get(f"{at}.csv", tried).content.decode())))
    assert [(each["mix"], each["kind"]) for each in rows[-3:]] == [
        ("tried", kind) for kind in (OWN, RESERVED, BURST)
    ]
    assert [each["gpus"] for each in rows[-3:]] == ["2", "1", "1"]
    client.force_login(site.people["viewer"])
    assert client.get(at).status_code == 403
    client.force_login(site.people["operator"])
    assert "bookings of all organisations" in client.get("/ops/mix").content.decode()
    assert client.get("/ops/mix.csv").status_code == 200


@pytest.mark.django_db
def test_without_a_run_the_page_says_so(site: Site, settings: Any) -> None:  # noqa: ANN401 (pytest-django's)
    settings.PROVIDERS_FILE = ""
    client = Client()
    client.force_login(site.people["admin"])
    at = f"/t/{site.tenant.slug}/capacity/mix"
    queries: list[dict[str, str]] = [{}, {"class": "h100"}, {"class": "h100", "own": "1"}]
    for query in queries:
        assert "Nothing ran in this time" in client.get(at, query).content.decode()
    assert said(site.admin.get("capacity/mix"))["items"] == []


@pytest.mark.django_db
def test_the_chart_has_as_many_points_as_fit(site: Site, used: list[Gpu]) -> None:
    """A quarter of a year is drawn in some hundred steps, and the areas add up to the load."""
    with as_system():
        (row,) = mixes_of(Whose("all"), question_read({}, timezone.now()), timezone.now())
    drawn = mix_chart(row, mix_made("x", row.load, 1, 1, row.prices))
    assert [area.kind for area in drawn.areas] == [OWN, RESERVED, BURST]
    assert all(0 < len(area.points.split()) <= 4 * 330 for area in drawn.areas)
    rows = dict(drawn.rows)
    assert list(rows[0]) == [1, 1, 2]
    assert list(rows[100]) == [0, 0, 0]
