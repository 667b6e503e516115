"""Maintenance, failed GPUs and their history on the pages of operators and tenants."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.test import Client
from django.utils import timezone

from allocation.models import Gpu, GpuEvent, Maintenance, Node
from allocation.services.operate.maintenance.plan import Moved, Preview
from tests.builders import a_member, a_project, an_operator
from tests.builders_allocation import a_policy
from tests.roles import as_system
from tests.web.fleet_builders import a_booking, a_node, a_place

pytestmark = pytest.mark.django_db
NODE = "gpu-a1-01"


def _page(client: Client, url: str, status: int = 200) -> str:
    answer = client.get(url)
    assert answer.status_code == status, answer.content.decode()[:500]
    return answer.content.decode()


@pytest.fixture
def operator(client: Client) -> Client:
    """A browser in which an operator is signed in, and a node of two GPUs."""
    client.force_login(an_operator())
    a_policy()
    a_node(now=timezone.now())
    return client


def typed(moment: datetime) -> str:
    """As the operator's browser sends it: in the operator's zone."""
    return f"{moment.astimezone(ZoneInfo('Europe/Berlin')):%Y-%m-%dT%H:%M}"


def a_form(act: str = "look", **changed: str) -> Mapping[str, str]:
    starts = timezone.now() + timedelta(hours=2)
    return {
        "act": act,
        "where": f"node:{NODE}",
        "starts": typed(starts),
        "ends": typed(starts + timedelta(hours=3)),
        "reason": "New fans",
        **changed,
    }


@pytest.mark.parametrize(
    ("page", "above"),
    [("setup", "fleet"), ("install", "fleet"), ("speeds", "speeds")],
)
def test_a_page_without_a_link_of_its_own_lights_up_the_one_above(
    operator: Client, page: str, above: str
) -> None:
    assert f'<a href="/ops/{above}" aria-current="page">' in _page(operator, f"/ops/{page}")


@pytest.mark.turn
def test_what_repeats_is_one_line_with_the_next_date_and_is_called_off_whole(
    operator: Client,
) -> None:
    last = timezone.now() + timedelta(days=22)
    weekly = {"often": "weekly", "last_day": f"{last:%Y-%m-%d}"}
    looked = operator.post("/ops/maintenance", a_form(**weekly)).content.decode()
    assert "start would move" in looked
    saved = operator.post("/ops/maintenance", a_form("save", **weekly), follow=True)
    page = saved.content.decode()
    assert Maintenance.objects.count() == 4
    assert (page.count("New fans"), "every week until" in page) == (1, True)
    assert "3 more dates" in page
    first = Maintenance.objects.earliest("starts")
    operator.post(f"/ops/maintenance/{first.id}/end", {"following": "1", "sure": "1"})
    assert not Maintenance.objects.filter(ended_at=None).exists()


def test_maintenance_repeats_on_days_of_the_month_and_says_which_it_did_not_understand(
    operator: Client,
) -> None:
    last = timezone.now() + timedelta(days=92)
    monthly = {"often": "days", "days": "2nd tue", "last_day": f"{last:%Y-%m-%d}"}
    saved = operator.post("/ops/maintenance", a_form("save", **monthly), follow=True)
    assert "every month on the 2nd Tue until" in saved.content.decode()
    berlin = ZoneInfo("Europe/Berlin")
    dates = [each.starts.astimezone(berlin) for each in Maintenance.objects.all()]
    assert dates
    assert {(each.weekday(), (each.day - 1) // 7) for each in dates} == {(1, 1)}
    wrong = operator.post("/ops/maintenance", a_form("save", **(monthly | {"days": "x"})))
    assert wrong.status_code == 422
    assert 'id="m-days-note"' in wrong.content.decode()
    assert "Use days of the month" in wrong.content.decode()


def test_what_repeats_needs_a_last_day(operator: Client) -> None:
    answer = operator.post("/ops/maintenance", a_form("save", often="daily"))
    assert answer.status_code == 422
    assert "Enter the last day" in answer.content.decode()
    assert not Maintenance.objects.exists()


@pytest.mark.turn
def test_an_operator_looks_first_then_plans_then_calls_off(operator: Client) -> None:
    assert "No maintenance in the last" in _page(operator, "/ops/maintenance")
    looked = operator.post("/ops/maintenance", a_form())
    assert "start would move" in looked.content.decode()
    assert not Maintenance.objects.exists()
    saved = operator.post("/ops/maintenance", a_form("save"), follow=True).content.decode()
    assert f"Maintenance of {NODE} planned." in saved
    (maintenance,) = Maintenance.objects.all()
    assert "Cancel" in saved
    asked = operator.post(f"/ops/maintenance/{maintenance.id}/end").content.decode()
    assert "Cancel maintenance, return 2 GPUs" in asked
    assert Maintenance.objects.get().ended_at is None
    operator.post(f"/ops/maintenance/{maintenance.id}/end", {"sure": "1"})
    assert "Cancelled" in _page(operator, "/ops/maintenance")


@pytest.mark.turn
def test_an_operator_changes_the_window_after_a_look(operator: Client) -> None:
    operator.post("/ops/maintenance", a_form("save"))
    row = Maintenance.objects.get()
    address = f"/ops/maintenance/{row.id}"
    assert address in _page(operator, "/ops/maintenance")
    assert typed(row.starts) in _page(operator, address)
    later = {"ends": typed(row.ends + timedelta(hours=3)), "starts": typed(row.starts)}
    looked = operator.post(address, {"act": "look", "reason": "Fans", **later})
    assert "Change maintenance" in looked.content.decode()
    assert Maintenance.objects.get().ends == row.ends
    saved = operator.post(address, {"act": "save", "reason": "Fans", **later})
    assert (saved.status_code, saved["Location"]) == (302, "/ops/maintenance")
    now = Maintenance.objects.get()
    assert (now.ends - row.ends, now.starts, now.reason) == (timedelta(hours=3), row.starts, "Fans")
    bad = operator.post(address, {"act": "look", "reason": "Fans", **later, "ends": later["starts"]})
    assert bad.status_code == 422


def a_second_half_past_two() -> datetime:
    """02:30 in Berlin for the second time in the night of the next change to winter time."""
    times = (datetime(timezone.now().year + later, 10, 31, 1, 30, 20, tzinfo=UTC) for later in (0, 1))
    sundays = (each - timedelta(days=(each.weekday() + 1) % 7) for each in times)
    return next(each for each in sundays if each > timezone.now())


def test_a_window_in_the_hour_that_a_clock_change_repeats_stays_when_its_form_is_saved(
    operator: Client,
) -> None:
    operator.post("/ops/maintenance", a_form("save"))
    second = a_second_half_past_two()
    with as_system():
        Maintenance.objects.update(starts=second, drain_by=second, ends=second + timedelta(hours=3))
    row = Maintenance.objects.get()
    shown = {name: typed(getattr(row, name)) for name in ("starts", "ends", "drain_by")}
    assert shown["starts"].endswith("T02:30")
    saved = operator.post(f"/ops/maintenance/{row.id}", {**shown, "act": "save", "reason": "Fans"})
    assert saved.status_code == 302, saved.content.decode()
    now = Maintenance.objects.get()
    assert (now.starts, now.drain_by, now.ends, now.reason) == (second, second, row.ends, "Fans")


def test_a_time_that_comes_twice_is_the_first_one_and_the_preview_says_so(operator: Client) -> None:
    second = a_second_half_past_two().replace(second=0)
    form = a_form(starts=typed(second), ends=typed(second + timedelta(hours=3)))
    page = operator.post("/ops/maintenance", form).content.decode()
    assert "Clocks show 02:30 twice that night: the first one, CEST, is meant." in page
    assert operator.post("/ops/maintenance", {**form, "act": "save"}).status_code == 302
    row = Maintenance.objects.get()
    assert (row.starts, row.ends) == (second - timedelta(hours=1), second + timedelta(hours=3))
    moved = {"ends": typed(second), "starts": typed(second - timedelta(hours=4)), "reason": "Fans"}
    page = operator.post(f"/ops/maintenance/{row.id}", {**moved, "act": "look"}).content.decode()
    assert "02:30 twice that night: the first one" in page


def test_a_time_that_a_clock_change_skips_is_refused(operator: Client) -> None:
    year = timezone.now().year + 1
    day = max(date(year, 3, each) for each in range(25, 32) if date(year, 3, each).isoweekday() == 7)
    form = a_form(starts=f"{day}T02:30", ends=f"{day}T09:00")
    answer = operator.post("/ops/maintenance", form)
    assert answer.status_code == 422
    assert "02:30 does not exist in Europe/Berlin" in answer.content.decode()


def test_a_preview_names_who_would_be_broken_off(operator: Client) -> None:
    now = timezone.now()
    node = Node.objects.get(name=NODE)
    booking = a_booking(a_member(a_project()), now=now, hours=6)
    a_place(booking, node.gpus.all()[0])
    page = operator.post("/ops/maintenance", a_form()).content.decode()
    assert "1 running booking would be interrupted" in page
    assert booking.label in page


@pytest.mark.turn
def test_what_is_lost_is_planned_only_when_as_much_was_agreed_to(operator: Client) -> None:
    now = timezone.now()
    node = Node.objects.get(name=NODE)
    for gpu in node.gpus.all()[:2]:
        a_place(a_booking(a_member(a_project()), now=now, hours=6), gpu)
    looked = operator.post("/ops/maintenance", a_form()).content.decode()
    assert "Plan maintenance, interrupt 2" in looked
    for accepted in ("", "1", "many", "\u0662"):
        page = operator.post("/ops/maintenance", a_form("save", accepted=accepted)).content.decode()
        assert "more bookings are affected than you confirmed" in page
        assert not Maintenance.objects.exists()
    operator.post("/ops/maintenance", a_form("save", accepted="2"))
    assert Maintenance.objects.count() == 1


def test_the_button_tells_moved_starts_from_lost_ones(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = timezone.now()
    moved = Moved("BK-1", "helix", window, window + timedelta(hours=1))
    lost = Moved("BK-2", "helix", window, None)
    preview = Preview(moved=(moved, lost, lost, lost), running=())
    monkeypatch.setattr("allocation.web.fleet.maintenance.maintenance_preview", lambda **_: preview)
    page = operator.post("/ops/maintenance", a_form()).content.decode()
    assert "Plan maintenance, move 1 start, cancel 3" in page
    assert "Cancel 3 bookings" in page


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"ends": "2026-01-01T00:00"}, "The end must be after the start."),
        ({"starts": "soon"}, "aria-invalid"),
        ({"gpu": "60"}, "There is no such GPU"),
        ({"where": "node:nope"}, "There is no such node"),
        ({"reason": ""}, "aria-invalid"),
    ],
)
def test_a_form_that_makes_no_sense_comes_back_with_the_reason(
    operator: Client, changed: dict[str, str], words: str
) -> None:
    answer = operator.post("/ops/maintenance", a_form("save", **changed))
    assert answer.status_code == 422
    assert words in answer.content.decode()
    assert not Maintenance.objects.exists()


def test_maintenance_is_drawn_on_the_timeline_and_named_on_the_node(operator: Client) -> None:
    operator.post("/ops/maintenance", a_form("save"))
    member = a_member(a_project())
    client = Client()
    client.force_login(member.user)
    timeline = _page(client, f"/t/{member.tenant.slug}/timeline")
    assert "Maintenance: New fans" in timeline
    assert "bar maint" in timeline
    assert "New fans" in _page(client, f"/t/{member.tenant.slug}/fleet/{NODE}")
    assert "/ops/maintenance" not in _page(client, f"/t/{member.tenant.slug}/fleet")


def test_a_broken_gpu_is_returned_with_a_note_and_its_history_says_so(operator: Client) -> None:
    node = Node.objects.get(name=NODE)
    gpu = node.gpus.all()[0]
    with as_system():
        Gpu.objects.filter(id=gpu.id).update(
            health="draining", health_reason="Xid 95: a memory error", needs_operator=True
        )
        GpuEvent.objects.create(
            node=node, gpu=gpu, kind="unbooked", at=timezone.now(), sentence="1 process: eve."
        )
    page = _page(operator, f"/ops/fleet/{NODE}")
    assert "1 process: eve." in page
    assert "Unbooked use, now" in page
    assert "Return to service" in page
    empty = operator.post(f"/ops/fleet/{NODE}/0/return", {"note": " "})
    assert empty.status_code == 422
    done = operator.post(f"/ops/fleet/{NODE}/0/return", {"note": "reset"}, follow=True)
    assert "returned it to service: reset. It was out: Xid 95" in done.content.decode()


def test_a_tenant_reads_no_history_of_hardware(operator: Client) -> None:
    member = a_member(a_project())
    client = Client()
    client.force_login(member.user)
    page = _page(client, f"/t/{member.tenant.slug}/fleet/{NODE}")
    assert "Hardware history" not in page
    assert "switched off" not in page


def test_an_operator_drains_with_a_deadline_and_says_that_a_node_is_off(operator: Client) -> None:
    assert "is powered off" not in _page(operator, f"/ops/fleet/{NODE}")
    by = timezone.now() + timedelta(hours=1)
    operator.post(f"/ops/fleet/{NODE}/drain", {"reason": "Fans", "by": typed(by), "sure": "1"})
    node = Node.objects.get(name=NODE)
    assert node.drain_by is not None
    assert abs(node.drain_by - by) < timedelta(minutes=1)
    assert "is powered off" in _page(operator, f"/ops/fleet/{NODE}")
    off = {"note": "Unplugged", "sure": "1"}
    done = operator.post(f"/ops/fleet/{NODE}/fence", off, follow=True)
    assert "0 allocations on gpu-a1-01 now count as empty." in done.content.decode()


@pytest.mark.parametrize("path", ["maintenance", f"fleet/{NODE}/fence", f"fleet/{NODE}/0/return"])
def test_nobody_else_does_any_of_it(operator: Client, path: str) -> None:
    member = a_member(a_project())
    client = Client()
    client.force_login(member.user)
    assert client.post(f"/ops/{path}", a_form("save", note="off")).status_code == 404
    assert not Maintenance.objects.exists()
