"""The timeline: who may see what, and bars where the hardware really is."""

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from allocation.models import Booking, BookingArray, Gpu, Node
from allocation.queries.bookings.timelines.rows import Timeline, Window
from allocation.queries.bookings.timelines.timeline import timeline_read
from allocation.rules.states import State
from allocation.services.quotes.free_times import free_times_read
from allocation.web.timeline.elements import ROW, Bar, Row, ViewOptions
from allocation.web.timeline.grid import grid_groups
from allocation.web.timeline.span import ZOOMS, Span, span_read
from allocation.web.timeline.tables import booked_rows, free_rows
from tenants.models import Membership, Role, Tier
from tenants.platform.wall import tenant_tx
from tests.builders import a_member, a_project, a_tenant, a_tenant_admin, a_tier, an_actor
from tests.roles import as_system
from tests.web.flat import flat
from tests.web.fleet_builders import a_booking, a_node, a_place

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 17, 10, tzinfo=UTC)
WINDOW = Window(NOW - timedelta(hours=3), NOW + timedelta(hours=21))
SPAN = Span(ZOOMS["24h"], WINDOW, UTC)
BERLIN = ZoneInfo("Europe/Berlin")


def _read(member: Membership, window: Window = WINDOW) -> Timeline:
    with tenant_tx(member.tenant_id):
        free = free_times_read(is_operator=False, since=window.starts, until=window.ends, now=NOW)
        return timeline_read(actor=an_actor(member), window=window, gpu_class="", now=NOW, free=free.by_gpu)


def _look(free: timedelta | None = None) -> ViewOptions:
    return ViewOptions(SPAN, NOW, "/t/x/", None, free, {"h100": "€4.80"})


def _rows(member: Membership, look: ViewOptions | None = None) -> dict[str, Row]:
    groups = grid_groups(_read(member), look or _look())
    return {row.key: row for group in groups for row in group.rows}


def _bars(member: Membership) -> list[Bar]:
    return [bar for row in _rows(member).values() for bar in row.bars]


def test_a_moment_outside_the_window_is_drawn_at_its_edge() -> None:
    starts = datetime(2026, 3, 1, tzinfo=UTC)
    span = Span(ZOOMS["24h"], Window(starts, starts + timedelta(hours=24)), UTC)
    hours = (-5, 0, 6, 24, 90)
    drawn = [span.percent(starts + timedelta(hours=each)) for each in hours]
    assert drawn == [0, 0, 25, 100, 100]


def test_another_tenants_booking_is_an_anonymous_busy_block() -> None:
    mine, theirs = a_member(a_project()), a_member(a_project(a_tenant()))
    gpu = a_node(now=NOW, gpus=1).gpus.all()[0]
    a_place(a_booking(theirs, now=NOW, name="secret"), gpu)
    (bar,) = _bars(mine)
    assert (bar.title, bar.href, bar.css) == ("busy", "", "bar")
    assert "secret" not in bar.name


def test_a_project_one_has_no_role_in_is_busy_even_in_the_own_tenant() -> None:
    mine = a_member(a_project())
    other = a_member(a_project(mine.tenant))
    gpu = a_node(now=NOW, gpus=1).gpus.all()[0]
    a_place(a_booking(other, now=NOW, name="secret"), gpu)
    assert [bar.title for bar in _bars(mine)] == ["busy"]
    assert [bar.title for bar in _bars(a_tenant_admin(mine.tenant))] == ["secret"]


def test_own_and_project_bookings_are_told_apart_and_open_their_page() -> None:
    project = a_project()
    mine, colleague = a_member(project), a_member(project)
    first, second = a_node(now=NOW, gpus=2).gpus.all()
    own = a_place(a_booking(mine, now=NOW, name="own"), first).booking
    a_place(a_booking(colleague, now=NOW, name="theirs"), second)
    bars = {bar.title: bar for bar in _bars(mine)}
    assert bars["own"].css == "bar mine"
    assert bars["theirs"].css == "bar proj"
    assert bars["own"].href == f"/t/x/bookings/{own.label}"
    assert "own until 15:00, yours, Standard, GPU 0 on gpu-a1-01, today 09:00 – 15:00" in bars["own"].name


def test_what_can_be_paused_is_hatched() -> None:
    mine = a_member(a_project())
    booking = a_booking(mine, now=NOW, tier="spot")
    a_tier("spot", pausable=True)
    with as_system():
        Tier.objects.filter(slug="spot").update(counts_against_guarantee=False)
    a_place(booking, a_node(now=NOW, gpus=1).gpus.all()[0])
    assert "spot" in _bars(mine)[0].css.split()


def test_gpus_booked_together_are_one_bar_over_their_rows() -> None:
    mine = a_member(a_project())
    booking = a_booking(mine, now=NOW)
    for gpu in a_node(now=NOW, gpus=4).gpus.all()[1:4]:
        a_place(booking, gpu)
    rows = _rows(mine)
    (bar,) = rows["gpu-a1-01/1"].bars
    assert bar.height == 3 * 28 - 4
    assert "GPU 1–3" in bar.name
    assert rows["gpu-a1-01/2"].bars == []


def test_a_slice_lies_on_the_memory_slots_that_the_driver_gives_it() -> None:
    mine = a_member(a_project())
    gpu = a_node(now=NOW, gpus=1).gpus.all()[0]
    a_place(a_booking(mine, now=NOW, profile="3g.40gb"), gpu, profile="3g.40gb", start=4)
    rows = _rows(mine)
    assert [row.slot for row in rows.values() if row.kind == "slot"] == list(range(8))
    (bar,) = rows["gpu-a1-01/0/4"].bars
    assert (bar.top, bar.height) == (2, 4 * 20 - 4)
    assert "memory slots 4–7" in bar.name


def test_a_slot_that_no_slice_can_use_beside_the_others_is_hatched_with_the_reason() -> None:
    mine = a_member(a_project())
    gpu = a_node(now=NOW, gpus=1).gpus.all()[0]
    for start in range(7):
        a_place(a_booking(mine, now=NOW, profile="1g.10gb"), gpu, profile="1g.10gb", start=start)
    (bar,) = _rows(mine)["gpu-a1-01/0/7"].bars
    assert bar.css == "bar dead"
    assert "no slice fits here" in bar.name


def test_hardware_out_of_service_says_why_and_counts_as_not_free() -> None:
    mine = a_member(a_project())
    node = a_node(now=NOW, gpus=2)
    with as_system():
        Gpu.objects.filter(node=node, index=1).update(health="lost", health_reason="Xid 79")
    rows = _rows(mine)
    assert rows["gpu-a1-01/1"].bars[0].name == "cannot be booked: Xid 79"
    assert {cell.text for cell in rows["gpu-a1-01/h100"].cells} == {"", "1"}
    with as_system():
        Node.objects.update(state=Node.State.DRAINING, state_reason="new driver")
    assert _rows(mine)["gpu-a1-01/0"].bars[0].name == "cannot be booked: new driver"


def test_free_counts_are_whole_gpus_for_the_whole_column_and_the_past_has_none() -> None:
    mine = a_member(a_project())
    first, _ = a_node(now=NOW, gpus=2).gpus.all()
    booking = a_booking(mine, now=NOW, profile="1g.10gb", hours=1, starts_in=timedelta(hours=1, minutes=30))
    a_place(booking, first, profile="1g.10gb", start=0)
    cells = [cell.text for cell in _rows(mine)["gpu-a1-01/h100"].cells]
    assert cells[:8] == ["", "", "", "2", "1", "1", "2", "2"]


def test_nodes_without_a_long_enough_gap_are_dimmed_by_the_filter() -> None:
    mine = a_member(a_project())
    a_place(a_booking(mine, now=NOW, hours=20), a_node(now=NOW, gpus=1).gpus.all()[0])
    a_node("gpu-a1-02", now=NOW, gpus=1)
    rows = _rows(mine, _look(timedelta(hours=6)))
    assert rows["gpu-a1-01/h100"].dim
    assert not rows["gpu-a1-02/h100"].dim


def test_a_waiting_booking_is_dashed_at_its_expected_start() -> None:
    mine = a_member(a_project())
    a_node(now=NOW, gpus=1)
    a_booking(mine, now=NOW, state=State.QUEUED, name="later", starts_in=timedelta(hours=2))
    row = next(row for row in _rows(mine).values() if row.kind == "wait")
    assert (row.name, row.bars[0].title, row.bars[0].css) == ("later", "12:00", "bar plan")


def test_the_promised_place_of_a_strangers_waiting_booking_is_not_free() -> None:
    mine, theirs = a_member(a_project()), a_member(a_project(a_tenant()))
    gpu = a_node(now=NOW, gpus=1).gpus.all()[0]
    booking = a_booking(theirs, now=NOW, state=State.QUEUED, starts_in=timedelta(hours=1))
    place = {"gpu": str(gpu.id), "profile": None, "start": 0, "size": 8}
    with as_system():
        Booking.objects.filter(id=booking.id).update(planned_places=[place])
    rows = _rows(mine)
    assert rows["gpu-a1-01/0"].bars[0].css.startswith("bar plan oth")
    assert [cell.text for cell in rows["gpu-a1-01/h100"].cells][4] == "0"


def test_an_own_waiting_booking_is_drawn_by_name_where_it_should_come_to_lie() -> None:
    mine = a_member(a_project())
    hidden = a_member(a_project(mine.tenant))
    first, second = a_node(now=NOW, gpus=2).gpus.all()
    for member, gpu in ((mine, first), (hidden, second)):
        booking = a_booking(member, now=NOW, state=State.QUEUED, name="later", starts_in=timedelta(hours=1))
        place = {"gpu": str(gpu.id), "profile": None, "start": 0, "size": 8}
        with as_system():
            Booking.objects.filter(id=booking.id).update(planned_places=[place])
    rows = _rows(mine)
    assert [bar.title for bar in rows["gpu-a1-01/0"].bars] == ["later"]
    assert rows["gpu-a1-01/0"].bars[0].css.split()[:2] == ["bar", "plan"]
    assert [bar.title for bar in rows["gpu-a1-01/1"].bars] == ["expected"]


def test_what_runs_ends_on_all_its_gpus_where_a_waiting_booking_is_planned_in_its_place() -> None:
    mine = a_member(a_project())
    first, second = a_node(now=NOW, gpus=2).gpus.all()
    runs = a_booking(mine, now=NOW, tier="spot", name="runs")
    for gpu in (first, second):
        a_place(runs, gpu)
    waits = a_booking(mine, now=NOW, state=State.QUEUED, name="waits", starts_in=timedelta(hours=2))
    (bar,) = _rows(mine)["gpu-a1-01/0"].bars
    assert (bar.ends, "pause" in bar.name) == ((NOW + timedelta(hours=5)).timestamp(), False)
    place = {"gpu": str(second.id), "profile": None, "start": 0, "size": 8}
    with as_system():
        Booking.objects.filter(id=waits.id).update(planned_places=[place])
    (bar,) = _rows(mine)["gpu-a1-01/0"].bars
    assert (bar.title, bar.ends) == ("runs", (NOW + timedelta(hours=2)).timestamp())
    assert "GPU 0–1" in bar.name
    assert bar.name.endswith("a pause is expected at its end")
    assert "pauses about 12:00" in bar.sub


def test_a_booking_given_back_early_ends_where_it_really_ended() -> None:
    mine = a_member(a_project())
    booking = a_booking(mine, now=NOW, starts_in=timedelta(hours=-2), state=State.ENDED)
    with as_system():
        Booking.objects.filter(id=booking.id).update(ended_at=NOW - timedelta(hours=1))
        place = a_place(booking, a_node(now=NOW, gpus=1).gpus.all()[0])
        type(place).objects.filter(id=place.id).update(state="ended")
    (bar,) = _bars(mine)
    assert "over" in bar.css.split()
    assert float(bar.width) == pytest.approx(100 / 24, abs=0.01)


def test_the_list_has_the_same_bookings_and_offers_the_free_time() -> None:
    mine = a_member(a_project())
    first, _ = a_node(now=NOW, gpus=2).gpus.all()
    a_place(a_booking(mine, now=NOW, name="own", hours=4), first)
    timeline, look = _read(mine), _look()
    assert [row.title for row in booked_rows(timeline, look)] == ["own"]
    rows = free_rows(timeline, look)
    assert [(row.count, row.when) for row in rows] == [
        (1, "today 10:05 – tomorrow 07:00"),
        (1, "today 13:00 – tomorrow 07:00"),
    ]
    assert rows[1].book.endswith("1%20h100%20from%202026-11-17%2013%3A00%20to%202026-11-18%2007%3A00")


def test_hours_are_the_readers_on_the_night_when_clocks_go_back() -> None:
    now = datetime(2026, 10, 24, 22, tzinfo=UTC)
    span = span_read(key="24h", since="2026-10-25T00:00", zone=BERLIN, now=now)
    labels = [clock for _, clock in span.ticks()]
    assert labels == ["00:00", "03:00", "06:00", "09:00", "12:00", "15:00", "18:00", "21:00"]
    # Three o'clock is four hours after midnight in that night.
    assert span.ticks()[1][0] == pytest.approx(100 * 4 / 24)
    assert span.window.length == timedelta(hours=24)


@pytest.mark.parametrize("since", ["", "yesterday", "9999-99-99", "0001-01-01T00:00"])
def test_an_address_that_makes_no_sense_shows_today(since: str) -> None:
    span = span_read(key="5y", since=since, zone=BERLIN, now=NOW)
    assert (span.zoom.key, span.window.starts) == ("24h", NOW - timedelta(hours=3))


def _page(member: Membership, query: str = "") -> bytes:
    client = Client()
    client.force_login(member.user)
    response = client.get(f"/t/{member.tenant.slug}/timeline{query}")
    assert response.status_code == 200
    return response.content


@pytest.mark.turn
def test_the_page_of_28_gpus_and_a_day_is_small_and_asks_a_fixed_number_of_questions() -> None:
    now = timezone.now()
    mine = a_member(a_project())
    a_page_of_one = a_node("gpu-b1-01", now=now, gpus=1)
    a_place(a_booking(mine, now=now), a_page_of_one.gpus.all()[0])
    _page(mine)
    with CaptureQueriesContext(connection) as few:
        _page(mine)
    for number in range(4):
        node = a_node(f"gpu-a1-{number:02}", now=now, gpus=7)
        for gpu in node.gpus.all():
            for hours in (0, 6, 12):
                starts_in = timedelta(hours=hours)
                a_place(a_booking(mine, now=now, name="x" * 40, starts_in=starts_in), gpu)
    _page(mine)  # New nodes are new reference data.
    with CaptureQueriesContext(connection) as many:
        content = _page(mine)
    assert content.count(b'class="bar mine') == 4 * 7 * 3 + 1
    assert len(content) < 88_000
    assert len(many) == len(few)


def test_the_grid_alone_is_what_a_live_page_fetches() -> None:
    mine = a_member(a_project())
    a_node(now=timezone.now(), gpus=1)
    fragment = flat(_page(mine, "?part=grid&span=6h").decode())
    assert fragment.startswith('<div class="tl-live" id="timeline-grid"')
    assert "span=6h" in fragment
    assert "part=grid" in fragment
    assert "<html" not in fragment
    page = flat(_page(mine, "?span=6h").decode())
    clocks = [re.findall(r'class="clk[^>]*>([\d:]+)<', each) for each in (page, fragment)]
    assert clocks[0] == clocks[1]
    assert len(clocks[0]) >= 4, "the page names the hours, too"


def test_rows_are_a_tree_with_levels_and_only_parents_open() -> None:
    mine = a_member(a_project(), Role.VIEWER)
    a_node(now=timezone.now(), gpus=1)
    page = _page(mine).decode()
    assert 'role="treegrid"' in page
    assert page.partition('role="treegrid"')[2].partition("<aside")[0].count("aria-expanded") == 1


def test_a_fleet_without_gpus_says_what_happens_next() -> None:
    assert b"No GPUs here yet" in _page(a_member(a_project()))


@pytest.mark.parametrize("sliced", [0, 1, 3])
def test_a_gang_is_one_bar_over_a_gpu_that_is_drawn_sliced(sliced: int) -> None:
    mine = a_member(a_project())
    gpus = list(a_node(now=NOW, gpus=4).gpus.order_by("index"))
    gang = a_booking(mine, now=NOW, name="gang")
    for gpu in gpus:
        a_place(gang, gpu)
    later = a_booking(mine, now=NOW, name="slice", profile="3g.40gb", starts_in=timedelta(hours=9))
    a_place(later, gpus[sliced], profile="3g.40gb", start=0)
    rows = _rows(mine)
    (bar,) = (bar for row in rows.values() for bar in row.bars if bar.title == "gang")
    assert bar.sub.startswith("4 GPUs")
    assert "GPU 0–3 on gpu-a1-01" in bar.name
    assert bar.height == 4 * ROW - 4


def test_a_gang_that_lies_apart_says_how_many_of_how_many() -> None:
    mine = a_member(a_project())
    gpus = list(a_node(now=NOW, gpus=4).gpus.order_by("index"))
    gang = a_booking(mine, now=NOW, name="gang")
    for index in (0, 1, 3):
        a_place(gang, gpus[index])
    bars = [bar for bar in _bars(mine) if bar.title == "gang"]
    assert [bar.sub.partition(" ·")[0] for bar in bars] == ["2 of 3 GPUs", "1 of 3 GPUs"]
    assert "3 GPUs" in bars[0].name


def _fortnight(member: Membership, open_nodes: frozenset[str] | None = None) -> dict[str, Row]:
    span = span_read(key="2w", since="", zone=BERLIN, now=NOW)
    look = ViewOptions(span, NOW, "/t/x/", open_nodes, None, {})
    timeline = _read(member, span.window)
    return {row.key: row for group in grid_groups(timeline, look) for row in group.rows}


@pytest.mark.turn
def test_slot_rows_are_open_while_there_are_slices_and_one_bar_stands_for_later_ones() -> None:
    mine = a_member(a_project())
    first, second = a_node(now=NOW, gpus=2).gpus.all()
    a_place(a_booking(mine, now=NOW, profile="1g.10gb"), first, profile="1g.10gb", start=0)
    for start in (0, 1):
        later = a_booking(mine, now=NOW, profile="1g.10gb", hours=60, starts_in=timedelta(days=3))
        a_place(later, second, profile="1g.10gb", start=start)
    assert all(row.hidden for row in _fortnight(mine).values() if row.kind != "node"), "closed from 3 days up"
    rows = _fortnight(mine, frozenset({"gpu-a1-01"}))
    assert [rows[f"gpu-a1-01/{gpu}"].is_open for gpu in (0, 1)] == [True, False]
    assert not rows["gpu-a1-01/0/0"].hidden
    assert rows["gpu-a1-01/1/0"].hidden
    (bar,) = rows["gpu-a1-01/1"].bars
    assert (bar.title, bar.css.split(), bar.height) == ("2 slices", ["bar", "mine", "sum"], 24)
    with as_system():
        places = [{"gpu": str(second.id), "profile": "1g.10gb", "start": 5, "size": 1}] * 2
        waiting = a_booking(mine, now=NOW, state=State.QUEUED, hours=60, starts_in=timedelta(days=8))
        Booking.objects.filter(id=waiting.id).update(planned_places=places)
    planned = _fortnight(mine)["gpu-a1-01/1"].bars[-1]
    assert (planned.title, planned.css.split()) == ("2 slices", ["bar", "plan", "sum"])
    assert planned.name.endswith("expected")
    assert not _fortnight(mine, frozenset({"gpu-a1-01", "gpu-a1-01/1"}))["gpu-a1-01/1/0"].hidden
    assert _fortnight(mine, frozenset({"gpu-a1-01", "gpu-a1-01/0-"}))["gpu-a1-01/0/0"].hidden


def test_a_gang_is_one_bar_over_the_open_slot_rows_of_a_gpu_between() -> None:
    mine = a_member(a_project())
    gpus = a_node(now=NOW, gpus=3).gpus.all()
    a_place(a_booking(mine, now=NOW, profile="1g.10gb"), gpus[1], profile="1g.10gb", start=0)
    gang = a_booking(mine, now=NOW, hours=60, starts_in=timedelta(days=2))
    for gpu in gpus:
        a_place(gang, gpu)
    rows = _fortnight(mine)
    (bar,) = rows["gpu-a1-01/0"].bars
    assert (bar.gpus, bar.height) == (3, 3 * 28 + 8 * 20 - 4)
    assert "GPU 0–2" in bar.name


def test_short_bookings_side_by_side_are_one_bar_with_their_number_and_a_closer_look() -> None:
    project = a_project()
    mine, colleague = a_member(project), a_member(project)
    first, second = a_node(now=NOW, gpus=2).gpus.all()
    for number, member in enumerate((mine, colleague, mine)):
        starts_in = timedelta(days=2, minutes=40 * number)
        a_place(a_booking(member, now=NOW, hours=0.5, starts_in=starts_in), first)
    for gpu in (first, second):
        a_place(a_booking(mine, now=NOW, hours=60, starts_in=timedelta(days=5)), gpu)
    bars = _fortnight(mine)["gpu-a1-01/0"].bars
    assert len(bars) == 2
    many = next(bar for bar in bars if bar.count > 1)
    assert (many.count, many.title, many.css) == (3, "3", "bar many proj thin")
    assert many.name == ("3 bookings, 2 yours, GPU 0 on gpu-a1-01, Thu 19 Nov 11:00 – 12:50")
    assert many.href == "/t/x/timeline?from=2026-11-19T11:00&span=3d"


def test_a_short_gang_beside_another_short_booking_is_drawn_row_by_row() -> None:
    mine = a_member(a_project())
    first, second = a_node(now=NOW, gpus=2).gpus.all()
    gang = a_booking(mine, now=NOW, hours=0.5, starts_in=timedelta(days=2))
    a_place(gang, first)
    a_place(gang, second)
    alone = a_booking(mine, now=NOW, hours=0.5, starts_in=timedelta(days=2, hours=1))
    a_place(alone, second)
    rows = _fortnight(mine)
    assert [bar.count for bar in rows["gpu-a1-01/0"].bars] == [1]
    assert [bar.count for bar in rows["gpu-a1-01/1"].bars] == [2]
    assert rows["gpu-a1-01/0"].bars[0].height == 24


def test_the_names_of_14_days_have_room_and_no_midnight_is_a_clock() -> None:
    span = span_read(key="2w", since="2026-11-17T00:00", zone=BERLIN, now=NOW)
    days = span.days()
    assert [(weekday, date) for _, weekday, date in days[:2]] == [("Tue", "17"), ("Wed", "18")]
    assert len(days) == 14
    assert span.clocks(NOW) == []
    assert span.words == "17 Nov – 30 Nov"


@pytest.mark.turn
def test_the_portal_opens_no_more_rows_than_fit_a_look() -> None:
    mine = a_member(a_project())
    for number in range(9):
        node = a_node(f"gpu-a1-{number:02}", now=NOW, gpus=8)
        a_place(a_booking(mine, now=NOW), node.gpus.all()[0])
    rows = _rows(mine).values()
    assert [row.kind for row in rows if not row.hidden].count("gpu") == 48
    assert all(row.hidden for row in _fortnight(mine).values() if row.kind == "gpu")


@pytest.mark.turn
def test_the_elements_of_an_array_are_one_bar_with_a_count() -> None:
    """They follow each other on a GPU; those that wait are one row."""
    mine = a_member(a_project())
    array = _array(mine, 60)
    gpu = a_node(now=NOW, gpus=1).gpus.all()[0]
    hours = [-3, 1, 2, 3, 6]
    states = [State.ENDED, *[State.SCHEDULED] * 4]
    for index, (hour, state) in enumerate(zip(hours, states, strict=True), start=1):
        starts = timedelta(hours=hour)
        a_place(_element(array, mine, index, state=state, starts_in=starts), gpu)
    for index in range(6, 40):
        _element(array, mine, index, state=State.QUEUED, starts_in=timedelta(hours=index))
    rows = _rows(mine)
    bars = rows[f"{gpu.node.name}/0"].bars
    assert [bar.title for bar in bars] == ["sweep", "3 × sweep", "sweep"]
    many = next(bar for bar in bars if bar.title == "3 × sweep")
    assert many.href.endswith(f"/arrays/{array.label}")
    assert (many.ends - many.starts, many.move) == (3 * 3600, "")
    (waiting,) = (row for row in rows.values() if row.kind == "wait")
    assert (waiting.name, waiting.bars[0].href) == ("34 × sweep", f"/t/x/arrays/{array.label}")


def _array(member: Membership, count: int) -> BookingArray:
    assert member.project is not None
    with as_system():
        return BookingArray.objects.create(
            tenant=member.tenant,
            number=900,
            project=member.project,
            owner=member.user,
            terms={},
            submitted=NOW,
            count=count,
            parallel=count,
            next_index=count,
        )


def _element(
    array: BookingArray, member: Membership, index: int, *, state: str, starts_in: timedelta
) -> Booking:
    """An element of an hour."""
    booking = a_booking(member, now=NOW, name="sweep", hours=1, state=state, starts_in=starts_in)
    rows = Booking.objects.filter(id=booking.id)
    with as_system():
        rows.update(array=array, array_index=index, number=array.number)
        return rows.select_related("tier", "project", "owner", "tenant").get()
