"""Figures over time: each is what the raw rows say, and nobody sees those of others."""

import csv
import io
import json
import re
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from uuid import UUID

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from allocation.features.demand.models import DemandHour
from allocation.features.insights.charts import bars_of, heat_of
from allocation.features.insights.figures import Figures, Whose, busy_by_hour, figures_of
from allocation.features.progress.models import Progress
from allocation.models import Allocation, Booking, ChargeSum, Gpu, GpuUse, Pause
from allocation.rules.states import State
from billing.rules import BudgetOwner, BudgetTerms, Period, midnight, month_of
from billing.services import budget_put, hold_place, hold_settle
from tenants.models import Lab, LabLead, Project
from tests.api.builders import Site, said
from tests.builders_allocation import a_booking, an_allocation
from tests.builders_pauses import a_pause
from tests.roles import as_owner, as_system
from tests.web.flat import flat

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)
STEP = timedelta(minutes=5)
RAN = ("active", "releasing", "ended")


def lived(site: Site, seed: int, now: datetime) -> None:
    """Twelve days of runs on whole GPUs and slices with readings and charges, from a seed."""
    draw = Random(seed)  # noqa: S311 (not a secret)
    first = (now - timedelta(days=12)).replace(minute=0, second=0, microsecond=0)
    # Runs of the last days may lie in the month before.
    months = Period(month_of(first.date()).starts, month_of(now.date()).ends)
    with as_system():
        gpus = list(Gpu.objects.order_by("number"))
        owner = BudgetOwner(site.tenant.id, site.hidden.id)
        budget_put(actor_id=None, owner=owner, terms=BudgetTerms(months, Decimal(900)), now=now)
        DemandHour.objects.bulk_create(
            DemandHour(
                gpu_class_id=gpus[0].gpu_class_id,
                at=first + number * HOUR,
                requested=0,
                in_use=2,
                wanted=draw.choice((2, 2.05, 2.5)),
            )
            for number in range(288)
        )
    for number, gpu in enumerate(gpus * 2):
        project = draw.choice((site.project, site.hidden))
        person = site.people[draw.choice(("researcher", "lead"))].pk
        is_second = number >= len(gpus)
        starts = now - timedelta(days=6 if is_second else 12, minutes=draw.randrange(700))
        ends = starts + timedelta(minutes=draw.randrange(20, 3000))
        is_over = not is_second or draw.random() < 0.6
        booking = a_booking(
            project, person, state=State.ENDED if is_over else State.ACTIVE, starts=starts, now=starts
        )
        wait = timedelta(minutes=draw.choice((0, 3, 90)))
        with as_owner():
            Booking.objects.filter(id=booking.id).update(
                submitted=starts - wait - HOUR, not_before=starts - wait, planned_class=gpu.gpu_class_id
            )
        profile, state = draw.choice((None, "1g.10gb", "3g.40gb")), "ended" if is_over else "active"
        until = ends if is_over else now + HOUR
        place = an_allocation(booking, gpu, profile=profile, starts=starts, ends=until, state=state)
        with as_system():
            _readings(draw, place, min(until, now))
            if is_over:
                _charge(draw, booking, ends)


def _charge(draw: Random, booking: Booking, at: datetime) -> None:
    amount = Decimal(draw.randrange(1, 9_000_000)) / 1_000_000
    begins = midnight(month_of(timezone.now().date()).starts)
    hold_place(
        tenant_id=booking.tenant_id,
        project_id=booking.project_id,
        reference=booking.id,
        amount=amount,
        starts=begins,
        ends=begins + HOUR,
        now=at,
    )
    hold_settle(tenant_id=booking.tenant_id, reference=booking.id, amount=amount, now=at)


def _readings(draw: Random, place: Allocation, until: datetime) -> None:
    at = place.period.lower
    while at < until and draw.random() < 0.97:
        at += STEP * draw.randint(1, 30)
        _reading(draw, place, at)


def _reading(draw: Random, place: Allocation, at: datetime) -> None:
    busy = draw.choice((None, 0.0, 3.0, 55.0, 91.5))
    GpuUse.objects.create(
        gpu_id=place.gpu_id,
        tenant_id=place.tenant_id,
        allocation_id=place.id,
        slot=None if place.profile is None else place.start,
        at=at,
        seconds=300,
        measured=0 if busy is None else draw.choice((150, 300)),
        busy_avg=busy,
        processes_max=draw.choice((None, 0, 1)),
        energy_mj=draw.choice((None, 0, 9_000_000)),
    )


def whole(place: Allocation) -> Decimal:
    return Decimal(place.share) / 1000 if place.share else Decimal(place.size) / 8


Table = dict[tuple[date, str], Figures]


def by_hand(days: Period, now: datetime) -> Table:
    """The figures by project and day, from the rows one by one."""
    found: Table = defaultdict(Figures)
    places = list(Allocation.objects.filter(state__in=RAN).select_related("booking__project", "gpu"))
    for place in places:
        _hours_by_hand(found, place, days, now)
    _waits_by_hand(found, places, days, now)
    _use_by_hand(found, {each.id: each for each in places}, days, now)
    for charge in ChargeSum.objects.select_related("account__budget__project"):
        project = charge.account.budget.project
        if project is not None and days.starts <= charge.day < days.ends:
            each = found[charge.day, project.slug]
            each.spend = (each.spend or Decimal(0)) + charge.exact
    return dict(found)


def _hours_by_hand(found: Table, place: Allocation, days: Period, now: datetime) -> None:
    at = days.starts
    while at < days.ends:
        since = max(midnight(at), place.period.lower)
        until = min(midnight(at + timedelta(days=1)), place.period.upper, now)
        if since < until:
            hours = Decimal(str((until - since).total_seconds())) / 3600
            each = found[at, place.booking.project.slug]
            each.gpu_hours += hours * whole(place)
            each.price += hours * place.booking.price_per_hour / place.booking.ask["count"]
        at += timedelta(days=1)


def _waits_by_hand(found: Table, places: list[Allocation], days: Period, now: datetime) -> None:
    first: dict[UUID, Allocation] = {}
    for place in sorted(places, key=lambda each: each.period.lower):
        first.setdefault(place.booking_id, place)
    for place in first.values():
        day = place.period.lower.astimezone(UTC).date()
        if days.starts <= day < days.ends and place.period.lower < now:
            begun = max(place.booking.submitted, place.booking.not_before)
            wait = max(0.0, (place.period.lower - begun).total_seconds())
            found[day, place.booking.project.slug].waits.append(wait)


def _use_by_hand(found: Table, places: dict[UUID, Allocation], days: Period, now: datetime) -> None:
    waited = {
        (row.gpu_class_id, row.at.astimezone(UTC))
        for row in DemandHour.objects.all()
        if row.wanted - row.in_use >= 0.1
    }
    for row in GpuUse.objects.filter(allocation_id__isnull=False, at__lt=now):
        day = row.at.astimezone(UTC).date()
        if row.allocation_id is None or not days.starts <= day < days.ends:
            continue
        place = places[row.allocation_id]
        each, part = found[day, place.booking.project.slug], whole(place) / 3600
        each.measured_gpu_hours += row.seconds * part
        if row.processes_max == 0 or (row.busy_avg is not None and row.busy_avg < 5):
            each.unused_gpu_hours += row.seconds * part
            hour = row.at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
            if (place.gpu.gpu_class_id, hour) in waited:
                each.dark_gpu_hours += row.seconds * part
        if row.busy_avg is not None:
            each.rated += row.measured * part
            each.busy += row.measured * part * Decimal(row.busy_avg)
        if row.energy_mj is not None:
            each.energy_gpu_hours += row.seconds * part
            each.kwh += Decimal(row.energy_mj) / 3_600_000_000


def shown_of(figures: Figures) -> tuple[object, ...]:
    """All that is shown of them."""
    sums = (
        figures.gpu_hours,
        figures.price,
        figures.measured_gpu_hours,
        figures.unused_gpu_hours,
        figures.dark_gpu_hours,
        figures.kwh,
        figures.energy_gpu_hours,
        figures.rated,
        figures.busy,
        figures.spend or Decimal(0),
    )
    # Tenths of eighths of seconds: of these all sums are whole numbers, so none is on an edge of rounding.
    numbers = tuple(round(each * 3600 * 80) for each in sums)
    return (*numbers, tuple(sorted(round(each) for each in figures.waits)))


@pytest.mark.parametrize("seed", range(4))
def test_every_figure_is_that_of_the_raw_rows(site: Site, seed: int) -> None:
    now = timezone.now().replace(microsecond=0)
    lived(site, seed, now)
    days = Period(now.date() - timedelta(days=9), now.date() + timedelta(days=1))
    with as_system():
        found = figures_of(Whose(site.tenant.id), days, "project", "day", now)
        expected = by_hand(days, now)
    assert {key: shown_of(each) for key, each in found.items() if shown_of(each) != shown_of(Figures())} == {
        key: shown_of(each) for key, each in expected.items()
    }
    assert sum(each.began for each in found.values()) > 3


def test_steps_and_nouns_only_divide_the_same_sums(site: Site) -> None:
    now = timezone.now().replace(microsecond=0)
    lived(site, 7, now)
    days = Period(now.date() - timedelta(days=20), now.date() + timedelta(days=1))

    def sums(by: str, step: str) -> tuple[object, ...]:
        total = Figures()
        for each in figures_of(Whose(site.tenant.id), days, by, step, now).values():
            total.add(each)
        return shown_of(total)

    with as_system():
        one = sums("project", "day")
        for by in ("class", "person", "tier"):
            assert {sums(by, step) for step in ("week", "month", "all")} == {one}
        heat = busy_by_hour(Whose(site.tenant.id), days, now)
        by_hand_hours = sum(each.gpu_hours for each in by_hand(days, now).values())
    hours = sum(value for row in heat for value in row if value is not None)
    assert 0 < hours < float(by_hand_hours)


def test_pauses_count_when_the_gpus_are_empty(site: Site) -> None:
    now = timezone.now().replace(microsecond=0)
    owner = site.people["researcher"].pk
    booking = a_booking(site.project, owner, state=State.ACTIVE)
    for_whom = a_booking(site.project, owner, state=State.QUEUED)
    pause = a_pause(booking, for_whom, now=now - HOUR, ready=now - 3 * HOUR, ends=now + 3 * HOUR)
    with as_system():
        Pause.objects.filter(id=pause.id).update(
            acknowledged_at=now - HOUR, emptied_at=now - timedelta(minutes=50), lost_seconds=5400
        )
    today = (now - timedelta(minutes=50)).date()
    days = Period(today - timedelta(days=2), today + timedelta(days=1))
    with as_system():
        found = figures_of(Whose(site.tenant.id), days, "project", "day", now)
    assert {key: (each.pauses, each.lost_hours) for key, each in found.items() if each.pauses} == {
        (today, site.project.slug): (1, Decimal("1.5"))
    }


def test_rest_has_the_figures_and_only_of_what_the_caller_may_see(site: Site) -> None:
    now = timezone.now().replace(microsecond=0)
    lived(site, 3, now)
    rows = said(site.admin.get("kpis?by=project&step=month"))["items"]
    assert {row["name"] for row in rows} == {site.project.slug, site.hidden.slug}
    own = said(site.researcher.get(f"kpis?project={site.project.slug}&by=person"))["items"]
    assert {row["name"] for row in own} <= {each.username for each in site.people.values()}
    assert site.researcher.get(f"kpis?project={site.hidden.slug}").status_code == 422
    # Without a project, a researcher gets the first of their own and not the organisation.
    mine = said(site.researcher.get("kpis?by=project&step=month"))["items"]
    assert {row["name"] for row in mine} == {site.project.slug}
    assert said(site.outsider.get("kpis?by=project"))["items"] == []
    assert site.researcher.get("platform-kpis").status_code == 403
    site_rows = said(site.operator.get("platform-kpis?by=tenant&step=month"))["items"]
    spend = sum(Decimal(row["spend"]) for row in rows if row["spend"])
    assert sum(Decimal(row["spend"]) for row in site_rows if row["spend"]) == spend
    assert next(row["name"] for row in site_rows if row["spend"]) == site.tenant.slug


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("by=tenant", "by"),
        ("step=hour", "step"),
        ("from=2026-11-02&to=2026-11-02", "from"),
        ("from=2026-01-01&to=2026-11-02", "from"),
        ("from=2024-01-01&to=2026-11-02&step=month", "from"),
        ("to=9999-12-31&from=9999-12-01", "from"),
    ],
)
def test_what_can_not_be_read_is_refused_with_its_parameter(site: Site, query: str, param: str) -> None:
    answer = site.admin.get(f"kpis?{query}")
    assert (answer.status_code, json.loads(answer.content)["param"]) == (422, param)


def test_heads_of_a_lab_see_their_lab_and_no_other(site: Site) -> None:
    lived(site, 5, timezone.now().replace(microsecond=0))
    with as_owner():
        lab = Lab.objects.create(tenant=site.tenant, slug="physics", name="Physics")
        Project.objects.filter(id=site.hidden.id).update(lab=lab)
        LabLead.objects.create(tenant=site.tenant, lab=lab, user=site.people["researcher"])
    rows = said(site.researcher.get("kpis?project=lab:physics&by=project&step=month"))["items"]
    assert {row["name"] for row in rows} == {site.hidden.slug}
    assert site.lead.get("kpis?project=lab:physics").status_code in (403, 422)
    assert site.researcher.get("kpis?project=lab:chemistry").status_code in (403, 422)


def test_the_page_the_csv_and_rest_say_the_same(site: Site) -> None:
    lived(site, 11, timezone.now().replace(microsecond=0))
    client = Client()
    client.force_login(site.people["admin"])
    page = client.get(f"/t/{site.tenant.slug}/insights?by=project")
    rows = said(site.admin.get("kpis?by=project"))["items"]
    hours = sum(Decimal(row["gpu_hours"]) for row in rows)
    shown = re.search(r"<dt>GPU-hours</dt><dd class=\"v\">([\d.,]+)", page.content.decode())
    assert shown is not None
    # Runs of now have become longer between the two.
    assert abs(Decimal(shown[1].replace(",", "")) - hours) < Decimal("0.2")
    lines = list(
        csv.DictReader(
            io.StringIO(client.get(f"/t/{site.tenant.slug}/insights.csv?by=project").content.decode())
        )
    )
    assert [(line["starts"], line["name"]) for line in lines] == [
        (row["starts"], row["name"]) for row in rows
    ]
    operator = Client()
    operator.force_login(site.people["operator"])
    for address in ("/ops/insights", "/ops/insights?by=tenant&weeks=12", "/ops/insights.csv"):
        assert operator.get(address).status_code == 200
    assert client.get("/ops/insights").status_code == 404


def test_an_organisation_without_runs_has_a_page_that_says_so(site: Site) -> None:
    client = Client()
    client.force_login(site.people["outsider"])
    page = client.get(f"/t/{site.other_project.tenant.slug}/insights")
    assert "Nothing ran in this time." in flat(page.content.decode())


def test_a_head_of_a_lab_reads_a_month_on_one_page(site: Site, settings: Settings) -> None:
    """What the lab got for its money, and what to change in its workloads alone."""
    settings.CARBON_GRAMS_PER_KWH = 400
    with as_owner():
        lab = Lab.objects.create(tenant=site.tenant, slug="physics", name="Physics")
        Project.objects.filter(id=site.project.id).update(lab=lab)
        LabLead.objects.create(tenant=site.tenant, lab=lab, user=site.people["viewer"])
    starts = datetime(2026, 10, 12, 12, tzinfo=UTC)
    for project in (site.project, site.hidden):
        for number in range(3):
            ran_idle(site, project, starts + number * timedelta(days=7), f"sweep-of-{project.slug}")
    client = Client()
    client.force_login(site.people["viewer"])
    page = "/t/helix/insights?month=2026-10&project=lab:physics"
    words = flat(client.get(page).content.decode())
    assert "Physics · 1 Oct – 31 Oct 2026" in words
    # Three runs of two hours, 1.2 kWh each, and 3,600 steps in the hour until the last report.
    assert "6.0 GPU-hours booked" in words
    assert "of 6.0 GPU-hours, 1.4 kg of CO₂" in words
    for cell in (
        f">sweep-of-{site.project.slug}<",
        ">step<",
        ">10,800<",
        ">€14.40<",
        ">€1.33 for 1,000 steps<",
    ):
        assert cell in words
    assert '<a class="btn" href="#insight-cards">What to change</a>' in words
    words = flat(client.get(f"{page}&part=cards").content.decode())
    assert "those that cost most in October 2026 first" in words
    assert f"sweep-of-{site.project.slug}" in words
    assert f"sweep-of-{site.hidden.slug}" not in words
    line, *_ = csv.DictReader(
        io.StringIO(client.get(page.replace("insights", "insights.csv") + "&by=project").content.decode())
    )
    assert (line["name"], line["gpu_hours"], line["co2_kg"]) == (site.project.slug, "2.000", "0.480")
    assert "sweep" not in flat(client.get(page.replace("2026-10", "2026-09")).content.decode())
    assert client.get(page.replace("2026-10", "October")).status_code == 422


def ran_idle(site: Site, project: Project, starts: datetime, name: str) -> None:
    """A run of two hours with one step a second, of which half an hour was used."""
    booking = a_booking(
        project, site.people["researcher"].pk, state=State.ENDED, starts=starts, now=starts, held="0"
    )
    with as_system():
        gpu = Gpu.objects.order_by("number")[0]
    place = an_allocation(booking, gpu, starts=starts, ends=starts + 2 * HOUR, state="ended")
    with as_owner():
        Booking.objects.filter(id=booking.id).update(
            name=name, planned_class=gpu.gpu_class_id, ready_at=starts, ended_at=starts + 2 * HOUR
        )
        Progress.objects.create(
            booking=booking,
            tenant_id=booking.tenant_id,
            step=7_200,
            unit="step",
            metrics={},
            at=starts + HOUR,
            anchor_at=starts + HOUR - 20 * STEP,
            anchor_step=1_200,
            mark_at=starts + HOUR,
            mark_step=7_200,
        )
        for number in range(24):
            GpuUse.objects.create(
                gpu=gpu,
                tenant_id=place.tenant_id,
                allocation_id=place.id,
                at=starts + number * STEP,
                seconds=300,
                measured=300,
                busy_avg=90.0 if number < 6 else 0.0,
                processes_max=1,
                energy_mj=180_000_000,
            )


def test_what_is_said_of_the_sums() -> None:
    none = Figures()
    assert (none.utilisation, none.coverage, none.wait_p50_seconds, none.is_enough) == (
        None,
        None,
        None,
        False,
    )
    some = Figures(
        gpu_hours=Decimal(40),
        measured_gpu_hours=Decimal(30),
        rated=Decimal(20),
        busy=Decimal(20 * 25),
        waits=[60.0 * number for number in range(1, 21)],
        price=Decimal(30),
    )
    assert (some.utilisation, some.coverage) == (Decimal(25), Decimal(75))
    assert some.is_enough
    assert (some.began, some.wait_p50_seconds, some.wait_p95_seconds) == (20, 600, 1140)
    # A quarter of 40 GPU-hours was busy, for 30.
    assert some.price_per_busy_gpu_hour == 3
    less = replace(some, rated=Decimal("19.9"), measured_gpu_hours=Decimal("1.9"))
    assert (less.price_per_busy_gpu_hour, less.is_enough) == (None, False), "less than half was measured"


def test_bars_reach_the_top_at_a_round_number_and_say_their_parts() -> None:
    keys = (("used", "a"), ("idle", "b"))
    chart = bars_of(keys, [(date(2026, 11, 2), (Decimal(30), Decimal(7)))], "GPU-hours")
    assert [mark.text for mark in chart.grid] == ["0", "10", "20", "30", "40"]
    (bar,) = chart.bars
    assert bar.text == "2 Nov: used 30.0, idle 7.0 GPU-hours"
    assert [float(part.height) for part in bar.parts] == [129.0, 30.1]
    assert bars_of(keys, [], "GPU-hours").bars == ()


def test_an_hour_that_has_not_been_has_no_shade() -> None:
    week = heat_of([[None, 0.0, 4.0], *[[None] * 3] * 6])
    assert [cell.css for cell in week[0][1]] == ["", "q0", "q5"]
    assert week[0][1][2].text == "Mon 02:00: 4.0 GPUs"
