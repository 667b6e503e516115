"""The month by day and class, and the days of one GPU."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.test import Client

from allocation.models import Booking, Node
from allocation.queries.bookings.timelines.rows import Timeline
from allocation.queries.bookings.timelines.timeline import timeline_read
from allocation.rules.states import State
from allocation.services.quotes.free_times import free_times_read
from allocation.web.timeline.calendar import (
    ClassDay,
    Day,
    gpu_days,
    gpu_span,
    local_days,
    month_span,
    month_weeks,
    moved,
)
from allocation.web.timeline.elements import ViewOptions
from allocation.web.timeline.span import Span
from tenants.models import Membership
from tenants.platform.wall import tenant_tx
from tests.builders import a_member, a_project, a_tenant, an_actor
from tests.roles import as_system
from tests.web.fleet_builders import a_booking, a_node, a_place

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 17, 10, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


def _read(member: Membership, span: Span) -> Timeline:
    window = span.window
    with tenant_tx(member.tenant_id):
        free = free_times_read(is_operator=False, since=window.starts, until=window.ends, now=NOW)
        return timeline_read(actor=an_actor(member), window=window, gpu_class="", now=NOW, free=free.by_gpu)


def _booked(member: Membership, starts: datetime, hours: float, name: str = "") -> Booking:
    scheduled = State.SCHEDULED
    return a_booking(member, now=NOW, state=scheduled, name=name, hours=hours, starts_in=starts - NOW)


def _look(span: Span) -> ViewOptions:
    return ViewOptions(span, NOW, "/t/x/", None, None, {})


def _link(**values: str) -> str:
    return "&".join(f"{key.rstrip('_')}={value}" for key, value in values.items() if value)


def _days(member: Membership, since: str = "") -> dict[str, Day]:
    span = month_span(since, UTC, NOW)
    weeks = month_weeks(_read(member, span), _look(span), _link)
    return {day.name: day for week in weeks for day in week}


def test_a_day_counts_the_gpus_that_are_free_for_all_of_it_and_colours_the_rest() -> None:
    mine = a_member(a_project())
    first, second = a_node(now=NOW, gpus=2).gpus.all()
    day = datetime(2026, 11, 20, tzinfo=UTC)
    for gpu, hours in ((first, 24), (second, 12)):
        a_place(_booked(mine, day, hours), gpu)
    days = _days(mine)
    (there,), (after,) = days["Fri 20 Nov"].classes, days["Sat 21 Nov"].classes
    assert (there.free, there.css, after.free, after.css) == ("0", "f1", "2", "f3")
    assert "0 of 2 free for the whole of Fri 20 Nov, 25% of the GPU time is free" in there.words
    assert "from=2026-11-20T00:00" in there.url
    assert "class=" in there.url
    assert (days["Fri 20 Nov"].own, days["Sat 21 Nov"].own) == (2, 0)


def test_a_day_names_the_classes_with_bookings_and_sums_up_those_that_are_free() -> None:
    def a_class(label: str, *, is_free: bool) -> ClassDay:
        return ClassDay(label, "f3", "2", f"{label} 2 of 2", "", is_free)

    free, taken = a_class("L40S", is_free=True), a_class("H100", is_free=False)
    day = replace(_days(a_member(a_project()))["Fri 20 Nov"], classes=(taken, free))
    assert (day.taken, day.rest) == ((taken,), "others free")
    assert (replace(day, classes=(free, free)).taken, replace(day, classes=(free, free)).rest) == (
        (),
        "all free",
    )
    assert (replace(day, classes=(free,)).taken, replace(day, classes=(free,)).rest) == ((free,), "")


def test_days_that_are_over_say_nothing_and_today_counts_from_now_on() -> None:
    mine = a_member(a_project())
    gpu = a_node(now=NOW, gpus=1).gpus.all()[0]
    a_place(_booked(mine, NOW + timedelta(days=1), 6), gpu)
    days = _days(mine)
    assert days["Mon 16 Nov"].is_over
    assert days["Mon 16 Nov"].classes == ()
    assert days["Today"].is_today
    assert [each.free for each in days["Today"].classes] == ["1"]


def test_the_bookings_of_another_tenant_take_room_and_are_not_counted_as_own() -> None:
    mine, theirs = a_member(a_project()), a_member(a_project(a_tenant()))
    gpu = a_node(now=NOW, gpus=1).gpus.all()[0]
    day = datetime(2026, 11, 20, tzinfo=UTC)
    a_place(_booked(theirs, day, 24, "secret"), gpu)
    there = _days(mine)["Fri 20 Nov"]
    assert there.own == 0
    assert [each.free for each in there.classes] == ["0"]
    assert "secret" not in repr(there)


def test_what_is_rented_for_a_plan_is_not_free_for_others() -> None:
    mine = a_member(a_project())
    a_node(now=NOW, gpus=1)
    rented = a_node("rented-01", now=NOW, gpus=2)
    with as_system():
        Node.objects.filter(name=rented.name).update(pool="plan-x")
    (there,) = _days(mine)["Fri 20 Nov"].classes
    assert there.words.startswith("H100 1 of 1 free for the whole of Fri 20 Nov")
    span = month_span("", UTC, NOW)
    with tenant_tx(mine.tenant_id):
        free = free_times_read(is_operator=False, since=NOW, until=span.window.ends, now=NOW)
    assert not {gpu.id for gpu in rented.gpus.all()} & free.by_gpu.keys()


def test_five_weeks_begin_on_the_monday_of_the_day() -> None:
    span = month_span("2027-02-03", UTC, NOW)
    weeks = month_weeks(Timeline((), (), ()), _look(span), _link)
    assert [week[0].number for week in weeks] == ["1 Feb", "8", "15", "22", "1 Mar"]
    assert [week[6].number for week in weeks] == ["7", "14", "21", "28", "7"]
    assert moved(span, -1) == datetime(2026, 12, 28, tzinfo=UTC)
    assert moved(span, 1) == span.window.ends == datetime(2027, 3, 8, tzinfo=UTC)


@pytest.mark.parametrize(("month", "date", "hours"), [("2026-10-05", 25, 25), ("2027-03-01", 28, 23)])
def test_a_day_of_a_clock_change_has_its_own_length(month: str, date: int, hours: int) -> None:
    days = {at: window.length for at, window in local_days(month_span(month, BERLIN, NOW))}
    assert len(days) == 35
    others = {length for at, length in days.items() if at.day != date}
    assert (sorted(set(days.values()) - others), others) == ([timedelta(hours=hours)], {timedelta(hours=24)})


def test_the_days_of_a_gpu_show_each_booking_on_its_days() -> None:
    mine = a_member(a_project())
    first, second = a_node(now=NOW, gpus=2).gpus.all()
    starts = datetime(2026, 11, 18, 18, tzinfo=UTC)
    a_place(_booked(mine, starts, 12, "night"), first)
    a_place(_booked(mine, starts, 2, "neighbour"), second)
    span = gpu_span("", UTC, NOW)
    found = gpu_days(_read(mine, span), _look(span), "gpu-a1-01/0")
    assert found is not None
    names = [(row.name, [(bar.title, bar.left, bar.width) for bar in row.bars]) for row in found[2]]
    assert len(names) == 14
    assert names[0] == ("Today", [])
    assert names[1] == ("Tomorrow", [("night", "75", "25")])
    assert names[2] == ("Thu 19 Nov", [("night", "0", "25")])
    assert gpu_days(_read(mine, span), _look(span), "gpu-a1-01/9") is None


@pytest.mark.turn
def test_the_pages_lead_from_the_grid_to_the_days_of_a_gpu_and_to_the_month(client: Client) -> None:
    mine = a_member(a_project())
    a_node(now=NOW, gpus=2)
    client.force_login(mine.user)
    base = f"/t/{mine.tenant.slug}/timeline"
    grid = client.get(base).content.decode()
    assert 'href="?view=gpu&amp;gpu=gpu-a1-01/0"' in grid
    assert f"{base}?view=month" in grid
    month = client.get(base, {"view": "month", "from": "2031-02-01T00:00"}).content.decode()
    assert "27 Jan – 2 Mar" in month
    assert "from=2030-12-23T00:00" in month
    assert "from=2031-03-03T00:00" in month
    days = client.get(base, {"view": "gpu", "gpu": "gpu-a1-01/0"}).content.decode()
    assert "gpu-a1-01, GPU 0" in days
    assert "No such GPU here" in client.get(base, {"view": "gpu", "gpu": "x/0"}).content.decode()


def test_the_panel_stays_folded_away(client: Client) -> None:
    mine = a_member(a_project())
    client.force_login(mine.user)
    address = f"/t/{mine.tenant.slug}/timeline"
    assert 'class="work"' in client.get(address).content.decode()
    client.cookies["panel"] = "folded"
    assert 'class="work folded"' in client.get(address).content.decode()
