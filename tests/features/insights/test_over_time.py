"""Charts over time: each number is what the rows say, and nobody sees those of others."""

import re
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from allocation.features.insights.figures import Whose, figures_of
from allocation.features.insights.over_time import OverTime, Sums, over_time_card
from allocation.features.insights.services import question_read
from allocation.models import Allocation, Booking, Gpu, GpuUse, Pause
from allocation.queries.bookings.money.demand_hours import waited_hours
from allocation.queries.bookings.money.held_use import held_use_of
from allocation.queries.bookings.money.statements import StatementOf
from allocation.rules.states import State
from billing.rules import UNITS_PER_GPU, Period, midnight
from tenants.models import GpuClass, Project, Quota
from tests.api.builders import Site
from tests.builders_allocation import a_booking, an_allocation, an_ask
from tests.builders_pauses import a_pause
from tests.features.insights.test_insights import RAN, lived, whole
from tests.roles import as_owner, as_system
from tests.web.flat import flat

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


@dataclass(frozen=True)
class Asked:
    """Nine days until now, and the sums of an organisation in them."""

    now: datetime
    days: Period
    sums: OverTime

    def elapsed(self, day: date) -> float:
        """The seconds of a day that have been."""
        return (min(midnight(day + DAY), self.now) - midnight(day)).total_seconds()


def asked(site: Site, now: datetime, *, whose: Whose | None = None) -> Asked:
    days = Period(now.date() - 8 * DAY, now.date() + DAY)
    question = question_read(days.starts, days.ends, "class", "day", ("class",), now)
    return Asked(now, days, OverTime(whose or Whose(site.tenant.id), question, now))


def waited(project: Project, owner: int, since: datetime, until: datetime | None, gpus: int = 1) -> Booking:
    """A booking that asked for GPUs and waited, or that somebody has given up."""
    ask = an_ask(gpus)
    state = State.CANCELLED if until else State.QUEUED
    booking = a_booking(project, owner, state=state, starts=since, now=since, ask=ask, held="0")
    with as_owner():
        Booking.objects.filter(id=booking.id).update(ended_at=until)
    return booking


def busy(site: Site, now: datetime, seed: int = 3) -> None:
    """Runs as in the tests of figures, with waits of all kinds, also of another organisation."""
    lived(site, seed, now)
    owner = site.people["researcher"].pk
    waited(site.project, owner, now - 12 * DAY, now - 5 * DAY - 7 * HOUR, 4)
    waited(site.project, owner, now - 3 * DAY - 2 * HOUR, now - 3 * DAY, 2)
    waited(site.hidden, owner, now - 30 * HOUR, None, 3)
    # Given up before the start that was requested, and one that asks for a later day.
    early = waited(site.project, owner, now - 2 * DAY, now - DAY)
    later = waited(site.project, owner, now - 2 * DAY, None)
    with as_owner():
        Booking.objects.filter(id=early.id).update(not_before=now - HOUR)
        Booking.objects.filter(id=later.id).update(not_before=now + DAY)
    outsider = site.people["outsider"].pk
    waited(site.other_project, outsider, now - 4 * DAY, None, 5)
    with as_system():
        gpu = Gpu.objects.earliest("number")
    theirs = a_booking(
        site.other_project, outsider, state=State.ENDED, starts=now - 20 * DAY, now=now - 20 * DAY
    )
    starts, ends = now - 20 * DAY, now - 13 * DAY
    an_allocation(theirs, gpu, starts=starts, ends=ends, state="ended")


def days_in(found: Sums, part: int) -> dict[tuple[date, str], float]:
    return {key: round(float(values[part]), 6) for key, values in found.items() if values[part]}


def parts(asked: Asked, since: datetime, until: datetime) -> list[tuple[date, float]]:
    """The seconds of a span in each of the days."""
    found = []
    for number in range((asked.days.ends - asked.days.starts).days):
        day = asked.days.starts + number * DAY
        begins, ends = max(since, midnight(day)), min(until, midnight(day + DAY), asked.now)
        if begins < ends:
            found.append((day, (ends - begins).total_seconds()))
    return found


def queue_by_hand(site: Site, each: Asked) -> tuple[dict[Any, float], dict[Any, float]]:
    bookings: dict[Any, float] = defaultdict(float)
    gpus: dict[Any, float] = defaultdict(float)
    for row in Booking.objects.filter(tenant=site.tenant):
        runs = Allocation.objects.filter(booking=row, state__in=RAN)
        first = min((run.period.lower for run in runs), default=None)
        until = first or row.ended_at or each.now
        for day, seconds in parts(each, max(row.submitted, row.not_before), until):
            bookings[day, "h100"] += seconds / each.elapsed(day)
            gpus[day, "h100"] += row.ask["count"] * seconds / each.elapsed(day)
    rounded = [{key: round(value, 6) for key, value in found.items()} for found in (bookings, gpus)]
    return rounded[0], rounded[1]


@pytest.mark.turn
@pytest.mark.parametrize("seed", [2, 9])
def test_the_queue_is_what_bookings_waited_in_each_day(site: Site, seed: int) -> None:
    now = timezone.now().replace(microsecond=0)
    busy(site, now, seed)
    each = asked(site, now)
    with as_system():
        bookings, gpus = queue_by_hand(site, each)
    cores = waited(site.project, site.people["lead"].pk, now - 2 * DAY, None)
    with as_owner():
        GpuClass.objects.create(slug="cores", label="Cores", kind=GpuClass.Kind.HOST)
        Booking.objects.filter(id=cores.id).update(ask=cores.ask | {"classes": ["cores"]})
    with as_system():
        found = each.sums.queue()
    assert days_in(found, 0) == bookings
    assert days_in(found, 1) == gpus
    assert len(bookings) > 5


@pytest.mark.turn
def test_the_site_s_queue_is_what_demand_counts_as_waited_for(site: Site) -> None:
    now = timezone.now().replace(microsecond=0)
    busy(site, now)
    each = asked(site, now, whose=Whose())
    with as_system():
        found = each.sums.queue()
        hours = waited_hours(each.sums.starts, each.sums.ends)
    by_day: dict[tuple[date, str], float] = defaultdict(float)
    for (name, at), gpus in hours.items():
        by_day[at.astimezone(UTC).date(), name] += gpus * 3600
    assert days_in(found, 1) == {
        key: pytest.approx(gpus / each.elapsed(key[0]), abs=1e-4) for key, gpus in by_day.items()
    }


def test_pauses_and_idle_hours_are_those_of_the_tiles(site: Site) -> None:
    now = timezone.now().replace(microsecond=0)
    busy(site, now)
    owner = site.people["researcher"].pk
    booking = a_booking(site.project, owner, state=State.ACTIVE)
    for_whom = a_booking(site.project, owner, state=State.QUEUED)
    pause = a_pause(booking, for_whom, now=now - HOUR, ready=now - 3 * HOUR, ends=now + 3 * HOUR)
    with as_system():
        emptied = now - timedelta(minutes=50)
        Pause.objects.filter(id=pause.id).update(
            acknowledged_at=now - HOUR, emptied_at=emptied, lost_seconds=5400
        )
    each = asked(site, now)
    with as_system():
        pauses, idle = each.sums.pauses(), each.sums.idle()
        figures = figures_of(Whose(site.tenant.id), each.days, "person", "day", now)
    assert dict(pauses) == {(emptied.date(), "h100"): (Decimal(1), Decimal("1.5"))}
    assert sum(one.pauses for one in figures.values()) == 1
    unused = {
        key: round(float(one.unused_gpu_hours), 6) for key, one in figures.items() if one.unused_gpu_hours
    }
    assert days_in(idle, 0) == unused
    assert len({name for _, name in unused}) == 2


def test_the_price_of_unused_hours_is_that_of_the_bookings_and_of_statements(site: Site) -> None:
    now = timezone.now().replace(microsecond=0)
    busy(site, now)
    each = asked(site, now)
    expected: dict[tuple[date, str], float] = defaultdict(float)
    with as_owner():
        # Their price is that of two GPUs together.
        Booking.objects.filter(project=site.project).update(ask=an_ask(2).to_json())
    with as_system():
        found = each.sums.idle()
        places = {place.id: place for place in Allocation.objects.select_related("booking__owner")}
        for row in GpuUse.objects.filter(tenant=site.tenant, allocation_id__isnull=False):
            day = row.at.astimezone(UTC).date()
            is_unused = row.processes_max == 0 or (row.busy_avg is not None and row.busy_avg < 5)
            if is_unused and row.allocation_id and each.days.starts <= day and row.at < now:
                booking = places[row.allocation_id].booking
                per_gpu = booking.price_per_hour / booking.ask["count"]
                expected[day, booking.owner.username] += float(per_gpu) * row.seconds / 3600
        statement = held_use_of(StatementOf(site.tenant.id, each.days), 0, None)
    assert days_in(found, 1) == {key: round(value, 6) for key, value in expected.items()}
    price = sum((values[1] for values in found.values()), Decimal(0))
    assert abs(price - statement.unused_cost) < Decimal("0.01")
    assert price > 1


def test_quota_use_is_of_units_as_quotas_count_them(site: Site) -> None:
    now = timezone.now().replace(microsecond=0)
    busy(site, now)
    each = asked(site, now)
    expected: dict[tuple[date, str], float] = defaultdict(float)
    with as_system():
        mine = Allocation.objects.filter(tenant=site.tenant, state__in=RAN)
        rented = mine.latest("period").booking_id
        Booking.objects.filter(id=rented).update(pool="cloud")
        found = each.sums.quota_use()
        for place in mine.exclude(booking_id=rented):
            for day, seconds in parts(each, place.period.lower, place.period.upper):
                expected[day, "helix/h100"] += place.units * seconds / UNITS_PER_GPU / each.elapsed(day)
        guarantees = each.sums.guarantees()
        site_wide = asked(site, now, whose=Whose()).sums
        assert set(site_wide.guarantees()) == {"helix/h100", "northlab/h100"}
        assert any(whole(place) != place.units / UNITS_PER_GPU for place in Allocation.objects.all())
    assert days_in(found, 0) == {key: round(value, 6) for key, value in expected.items()}
    assert {name: (each.guaranteed, each.limit) for name, each in guarantees.items()} == {
        "helix/h100": (Decimal(4), Decimal(8))
    }


def test_the_parts_of_quota_use_and_the_shares_in_the_table(site: Site) -> None:
    now = timezone.now().replace(minute=0, second=0, microsecond=0)
    owner = site.people["researcher"].pk
    yesterday = midnight(now.date() - DAY)
    with as_system():
        gpus = list(Gpu.objects.order_by("number"))[:6]
    booking = a_booking(site.project, owner, state=State.ENDED, starts=yesterday, now=yesterday)
    for gpu in gpus:
        an_allocation(booking, gpu, starts=yesterday, ends=yesterday + DAY, state="ended")
    with as_system():
        card = card_of(site, "admin", {"weeks": "1"}, now)
        (row,) = card["quotas"]
        day = next(each for each in card["days"] if each.day == yesterday.date())
        project = card_of(site, "admin", {"weeks": "1", "project": "folding"}, now)
        hidden = card_of(site, "admin", {"weeks": "1", "project": "hidden"}, now)
    with as_owner():
        Quota.objects.filter(project=site.project).delete()
    with as_system():
        without = card_of(site, "admin", {"weeks": "1", "project": "folding"}, now)
    assert (day.in_use, day.share) == (6, 100), "4 are guaranteed, and 2 above"
    assert (row.most, row.most_day, row.guaranteed, row.limit) == (6, yesterday.date(), 4, 8)
    chart = next(each for each in card["charts"] if each.slug == "over-quota-use")
    assert any("within the guarantee 4.0, above it 2.0" in bar.text for bar in chart.bars.bars)
    assert (project["quotas"][0].guaranteed, project["quotas"][0].limit) == (2, 4)
    assert hidden == {}
    chart = next(each for each in without["charts"] if each.slug == "over-quota-use")
    assert chart.bars.keys == (("without a quota", "p-4"),)


def card_of(site: Site, who: str, query: dict[str, str], now: datetime) -> Any:  # noqa: ANN401 (of a template)
    """What the charts are drawn from; empty where there are none."""
    found = over_time_card(site.actor(who), query, now)
    return found.card if found else {}


def page(site: Site, who: str, address: str) -> str:
    client = Client()
    client.force_login(site.people[who])
    answer = client.get(address)
    assert answer.status_code == 200, answer.content[:300]
    return flat(answer.content.decode())


def test_the_charts_are_fetched_after_the_page_with_links_to_the_rows(site: Site) -> None:
    now = timezone.now().replace(microsecond=0)
    busy(site, now)
    base = f"/t/{site.tenant.slug}"
    assert "Bookings waiting" not in page(site, "admin", f"{base}/insights")
    shown = page(site, "admin", f"{base}/insights?part=cards")
    for title in (
        "Bookings waiting",
        "GPUs of waiting bookings",
        "Use of the guarantee",
        "Booked and not used, by person",
    ):
        assert title in shown
    assert "No work was paused in these days." in shown
    day = now.date() - DAY
    link = unescape(re.findall(rf'href="([^"]*bookings\?from={day}&amp;to={day})"', shown)[0])
    behind = page(site, "admin", link)
    with as_system():
        open_then = {
            each.label
            for each in Booking.objects.filter(tenant=site.tenant, submitted__lt=midnight(now.date()))
            if each.ended_at is None or each.ended_at > midnight(day)
        }
    assert f"Open {day.day} {day:%b}" in behind
    assert set(re.findall(r"BK-\d+", behind)) == open_then
    operators = page(site, "operator", "/ops/insights?part=cards")
    assert "Quota use by organisation" in operators
    assert "not used, by person" not in operators
    site_link = f"/ops/bookings?tenant=northlab&amp;from={now.date() - 27 * DAY}&amp;to={now.date()}"
    assert site_link in operators
    assert "Climate" in page(site, "operator", unescape(site_link))
    by_project = page(site, "admin", f"{base}/insights?project=folding")
    assert f"{base}/bookings?project=folding&amp;from={day}&amp;to={day}" in by_project


def test_a_week_of_twelve_links_to_its_days(site: Site) -> None:
    now = timezone.now().replace(microsecond=0)
    busy(site, now)
    shown = page(site, "admin", f"/t/{site.tenant.slug}/insights?part=cards&weeks=12")
    monday = now.date() - DAY * now.weekday() - 7 * DAY
    assert f"from={monday}&amp;to={monday + 6 * DAY}" in shown


def test_nobody_sees_figures_that_the_page_does_not_show_them(site: Site) -> None:
    now = timezone.now().replace(microsecond=0)
    busy(site, now)
    waited(site.hidden, site.people["admin"].pk, now - 6 * DAY, None, 7)
    with as_system():
        mine = card_of(site, "researcher", {}, now)
        every = card_of(site, "admin", {}, now)
        of_project = card_of(site, "admin", {"project": "folding"}, now)
    assert mine["days"] == of_project["days"] != every["days"]
    assert mine["people"] == of_project["people"]
    base = f"/t/{site.tenant.slug}"
    client = Client()
    client.force_login(site.people["researcher"])
    assert client.get(f"{base}/insights?part=cards&project=hidden").status_code in (403, 404, 422)
    client.force_login(site.people["outsider"])
    assert client.get(f"{base}/insights?part=cards").status_code == 404
    theirs = page(site, "outsider", "/t/northlab/insights?part=cards")
    assert "Researcher" not in theirs
    assert "helix" not in theirs.lower()


def test_an_organisation_without_work_has_no_charts(site: Site) -> None:
    now = timezone.now()
    with as_system():
        assert card_of(site, "admin", {}, now) == {}
    shown = page(site, "admin", f"/t/{site.tenant.slug}/insights?part=cards")
    assert "Bookings waiting" not in shown


def test_the_statements_do_not_grow_with_the_bookings(site: Site) -> None:
    now = timezone.now().replace(microsecond=0)
    busy(site, now)

    def count() -> int:
        with (
            as_system(),
            CaptureQueriesContext(
                connection,
            ) as found,
        ):
            card_of(site, "admin", {}, now)
        return len(found)

    before = count()
    for number in range(8):
        waited(site.project, site.people["lead"].pk, now - number * DAY, None)
    assert count() == before


@pytest.mark.parametrize(
    "days",
    [
        "from=2026-11-09&to=2026-11-02",
        "from=x&to=2026-11-02",
        "from=2026-11-02",
        "from=0001-01-01&to=9999-12-31",
    ],
)
def test_days_that_are_none_filter_nothing(site: Site, days: str) -> None:
    now = timezone.now()
    waited(site.project, site.people["lead"].pk, now - DAY, None)
    assert "1 booking" in page(site, "admin", f"/t/{site.tenant.slug}/bookings?{days}")
    assert "Open 2 Nov" not in page(site, "operator", f"/ops/bookings?{days}")


def test_operators_see_all_states_of_days_without_an_organisation(site: Site) -> None:
    now = timezone.now().replace(microsecond=0)
    over = waited(site.project, site.people["lead"].pk, now - 5 * DAY, now - 3 * DAY)
    still = waited(site.other_project, site.people["outsider"].pk, now - 2 * DAY, None)
    day = (now - 4 * DAY).date()
    days = f"from={day}&to={day}"
    labels = (over.label, still.label)

    def listed(query: str) -> list[bool]:
        shown = page(site, "operator", f"/ops/bookings?{query}")
        return [label in shown for label in labels]

    assert listed(days) == [True, False]
    assert listed(f"state=over&{days}") == [True, False]
    assert listed(f"state=open&{days}") == [False, False]
    assert listed(f"from={day}&to={now.date()}") == [True, True]
    assert listed("") == [False, True]
    assert listed("state=over") == [False, False], "without days or an organisation the past is not read"
    assert over.label in page(site, "admin", f"/t/{site.tenant.slug}/bookings.csv?{days}")
