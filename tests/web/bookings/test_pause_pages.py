"""The notice of a pause on pages, its choices, and the receipt afterwards."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.test import Client
from django.utils import timezone

from allocation.models import Booking, Pause
from allocation.rules.states import State
from allocation.web.bookings.page_context import PageContext
from allocation.web.bookings.pausing.notice import notice_of, receipt_of
from allocation.web.bookings.summary import booking_summary
from tenants.models import Membership, Role, Tier
from tenants.platform.wall import tenant_tx
from tests.builders import a_member, a_project, a_tier
from tests.builders_pauses import GRACE, a_pause
from tests.roles import as_system
from tests.web.fleet_builders import a_booking, a_node, a_place

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 17, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


@dataclass
class Noticed:
    """A booking of `member` whose pause was announced three minutes ago."""

    member: Membership
    booking: Booking
    strong: Booking
    pause: Pause

    def client(self) -> Client:
        client = Client()
        client.force_login(self.member.user)
        return client

    def url(self, action: str = "") -> str:
        return f"/t/{self.booking.tenant.slug}/bookings/{self.booking.label}{action}"

    def page(self) -> str:
        return self.client().get(self.url()).content.decode()

    def fresh(self) -> Pause:
        with as_system():
            return Pause.objects.get(id=self.pause.id)


def noticed(*, now: datetime, label: str = "", may_wait: bool = True) -> Noticed:
    member, rival = a_member(a_project()), a_member(a_project())
    booking = a_booking(member, now=now, name="ablation-7", hours=3, held="12")
    strong = a_booking(rival, now=now, name="secret-run", state=State.QUEUED)
    at = now - 3 * MINUTE
    pause = a_pause(
        booking,
        strong,
        now=at,
        ready=at - 30 * MINUTE,
        ends=now + 2 * HOUR,
        label=label,
        may_wait=may_wait,
    )
    a_tier("standard", pausable=True, more_times=1, more_time_seconds=300)
    a_tier("assured", priority=300)
    with as_system():
        booking = Booking.objects.select_related("tenant", "project", "tier", "owner").get(id=booking.id)
    return Noticed(member, booking, strong, pause)


def scene(now: datetime, *pauses: Pause) -> PageContext:
    return PageContext(now, UTC, "/t/x/", {"h100": "H100 80 GB"}, pauses=tuple(pauses))


def test_the_notice_says_who_why_what_is_lost_and_what_happens_by_itself() -> None:
    case = noticed(now=NOW)
    notice = notice_of(case.booking, case.pause, scene(NOW))
    assert (notice.left, notice.left_text, notice.at) == (420, "7:00", "10:07")
    assert (notice.whole, notice.percent) == (600, 70)
    assert notice.who == "A higher-priority booking needs its GPUs."
    assert "started last" in notice.why
    assert "30 min of work has to be redone" in notice.lost
    assert notice.money.startswith("Nothing is charged from 09:57")
    assert "at 10:07 the node ends running programs" in notice.default
    assert [step.name for step in notice.steps] == [
        "Notice",
        "Saving",
        "Pause",
        "Handed over",
        "Resume",
    ]
    assert [step.mark for step in notice.steps] == ["done", "cur", "", "", ""]


def test_a_save_of_minutes_ago_is_what_is_lost_since_then() -> None:
    case = noticed(now=NOW)
    case.booking.saved_at = NOW - 4 * MINUTE
    assert "Last saved 4 min ago" in notice_of(case.booking, case.pause, scene(NOW)).lost


def test_the_own_organisations_claim_is_named() -> None:
    case = noticed(now=NOW, label="BK-77")
    notice = notice_of(case.booking, case.pause, scene(NOW))
    assert notice.who == "BK-77 of your organisation needs its GPUs."


def test_a_silent_node_is_said_once_the_time_is_over() -> None:
    case = noticed(now=NOW)
    silent = ["gpu-a1-01"]
    assert notice_of(case.booking, case.pause, scene(NOW), silent).stuck == ""
    late = notice_of(case.booking, case.pause, scene(NOW + GRACE), silent)
    assert (late.left, late.is_overdue) == (0, True)
    assert "gpu-a1-01 does not respond" in late.stuck


def test_the_page_counts_down_and_offers_every_choice_as_a_form() -> None:
    case = noticed(now=timezone.now())
    page = case.page()
    left = int(page.partition('data-countdown="')[2].partition('"')[0])
    assert 415 <= left <= 420
    assert f"<title>({left // 60}:{left % 60:02}) " in page
    assert 'role="timer"' in page
    for action in ("/saved", "/more-time", "/release"):
        assert f'action="{case.url(action)}"' in page
    assert "5 min more time (1 left)" in page
    assert "Book in Assured, which is never paused" in page
    assert "tier=assured" in page
    assert "preempt" not in page.lower()


def test_nothing_of_the_stronger_claim_of_another_tenant_is_on_the_page() -> None:
    case = noticed(now=timezone.now())
    page = case.page().partition('id="main"')[2]
    assert "ablation-7 pauses at" in page
    for secret in ("secret-run", case.strong.label, case.strong.id.hex, str(case.strong.id)):
        assert secret not in page


def test_a_reader_who_may_not_change_it_sees_the_notice_without_choices() -> None:
    case = noticed(now=timezone.now())
    client = Client()
    client.force_login(a_member(case.booking.project, Role.VIEWER).user)
    page = client.get(case.url()).content.decode()
    assert "ablation-7 pauses at" in page
    assert "/saved" not in page
    assert "/more-time" not in page


def test_saying_that_all_is_saved_works_by_form_and_shows_on_the_page() -> None:
    case = noticed(now=timezone.now())
    response = case.client().post(case.url("/saved"), follow=True)
    page = response.content.decode()
    assert "Confirmed that your work is saved." in page
    assert "Work is saved; ablation-7 is being paused" in page
    assert case.fresh().acknowledged_at is not None
    assert 'action="' + case.url("/more-time") not in page


def test_more_time_works_by_form_and_waits_for_its_answer() -> None:
    case = noticed(now=timezone.now())
    page = case.client().post(case.url("/more-time"), follow=True).content.decode()
    assert "you get an answer in a few seconds" in page
    assert case.fresh().more_asked_at is not None


def test_more_time_that_is_not_to_be_had_says_which_rule() -> None:
    case = noticed(now=timezone.now(), may_wait=False)
    assert "fixed time and can&#x27;t start later" in case.page()
    response = case.client().post(case.url("/more-time"))
    assert response.status_code == 409
    assert "R52" in response.content.decode()


def test_releasing_works_while_it_counts_down() -> None:
    case = noticed(now=timezone.now())
    case.client().post(case.url("/release"))
    with as_system():
        assert Booking.objects.get(id=case.booking.id).state == State.ENDING


@pytest.mark.parametrize("action", ["saved", "more-time"])
def test_a_link_never_answers_a_notice(action: str) -> None:
    case = noticed(now=timezone.now())
    assert case.client().get(case.url(f"/{action}")).status_code == 405


@pytest.mark.parametrize("path", ["", "bookings"])
def test_the_notice_is_on_home_and_in_the_list_for_its_owner_alone(path: str) -> None:
    case = noticed(now=timezone.now())
    url = f"/t/{case.booking.tenant.slug}/{path}"
    page = case.client().get(url).content.decode()
    assert "ablation-7 pauses at" in page
    assert "data-countdown" in page
    other = Client()
    other.force_login(a_member(case.booking.project).user)
    assert "data-countdown" not in other.get(url).content.decode()


def test_the_receipt_and_the_bill_say_what_the_run_cost() -> None:
    case = noticed(now=NOW)
    pause, booking = case.pause, case.booking
    pause.emptied_at, pause.acknowledged_at = NOW, NOW - MINUTE
    pause.lost_seconds = pause.credit_seconds = 600
    pause.credit, pause.charged = Decimal("0.67"), Decimal("1.33")
    pause.remaining_seconds, booking.state = 7200, State.PAUSED
    booking.ready_at = booking.notified_at = None
    booking.settled, booking.hold_amount = Decimal("1.33"), Decimal("9.33")
    receipt = receipt_of(booking, pause, scene(NOW))
    assert receipt.headline == "Paused"
    assert ("Charged for this run", "€1.33") in {(row.name, row.amount) for row in receipt.lines}
    assert receipt.basis.startswith("Rule R46, policy 1, decision ")
    with tenant_tx(booking.tenant_id):
        story = booking_summary(booking, scene(NOW, pause), may_change=True)
    assert story.headline == "Paused until GPUs are free"
    assert [(line.name, line.amount) for line in story.costs] == [
        ("Run 1, 09:27 – 09:57", "€2.00"),
        ("Credit for redone work", "−€0.67"),
        ("Used so far", "€1.33"),
        ("Remaining", "€8.00"),
        ("Held (maximum)", "€9.33"),
    ]
    assert (story.give_back, story.returns) == ("cancel", "€8.00")


def test_while_it_pauses_nothing_more_is_charged() -> None:
    case = noticed(now=NOW)
    with tenant_tx(case.booking.tenant_id):
        costs = booking_summary(case.booking, scene(NOW, case.pause), may_change=True).costs
        later = booking_summary(case.booking, scene(NOW + MINUTE, case.pause), may_change=True).costs
    assert costs[0].amount == later[0].amount == "€2.00"


def test_a_paused_booking_shows_where_it_goes_on_and_not_where_it_was() -> None:
    case = noticed(now=timezone.now())
    node = a_node(now=timezone.now(), gpus=2)
    first, second = node.gpus.order_by("index")
    with as_system():
        Booking.objects.filter(id=case.booking.id).update(planned_starts=NOW, planned_ends=NOW + HOUR)
    case.booking.planned_starts, case.booking.planned_ends = NOW, NOW + HOUR
    row = a_place(case.booking, first)
    with as_system():
        Booking.objects.filter(id=case.booking.id).update(
            state=State.PAUSED,
            planned_places=[{"gpu": str(second.id), "profile": None, "start": 0, "size": 8}],
        )
        Pause.objects.filter(id=case.pause.id).update(
            emptied_at=timezone.now(), acknowledged_at=timezone.now(), remaining_seconds=60
        )
        row.state = "ended"
        row.save(update_fields=["state"])
    page = case.page()
    assert "On gpu-a1-01: GPU 1" in page
    assert Tier.objects.get(slug="standard").pausable
