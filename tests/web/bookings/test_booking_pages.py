"""Pages of bookings: state first, why it waits, what it costs, and what its owner can do."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.test import Client
from django.utils import timezone

from allocation.api.bookings.why import why
from allocation.models import Booking, Node
from allocation.rules.states import State
from allocation.web.bookings.page_context import PageContext
from allocation.web.bookings.summary import BookingSummary, booking_summary
from allocation.web.parts.times import length_words, window_words
from billing.rules import Period
from billing.services import budget_set, hold_place
from tenants.models import Membership, Role
from tenants.platform.wall import tenant_tx
from tests.builders import a_member, a_project, a_tenant, a_user
from tests.roles import as_system
from tests.web.flat import flat
from tests.web.fleet_builders import a_booking, a_node, a_place

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 17, 10, tzinfo=UTC)
SCENE = PageContext(NOW, UTC, "/t/x/", {"h100": "H100 80 GB"})


def _client(member: Membership) -> Client:
    client = Client()
    client.force_login(member.user)
    return client


def _url(booking: Booking, action: str = "") -> str:
    return f"/t/{booking.tenant.slug}/bookings/{booking.label}{action}"


def _change(booking: Booking, **values: object) -> Booking:
    with as_system():
        Booking.objects.filter(id=booking.id).update(**values)
        found = Booking.objects.select_related("tenant", "project", "tier", "owner")
        return found.get(id=booking.id)


def _story(booking: Booking, *, may_change: bool = True, scene: PageContext = SCENE) -> BookingSummary:
    return booking_summary(booking, scene, may_change=may_change)


def _held(booking: Booking) -> Booking:
    """The booking with its money really held in a budget."""
    with as_system():
        now = booking.not_before
        # One budget pays all days, also in the last hours of a month.
        period = Period(now.date(), (now + timedelta(days=31)).date())
        budget_set(actor_id=None, project=booking.project, period=period, amount=Decimal(1000), now=now)
        hold_place(
            tenant_id=booking.tenant_id,
            project_id=booking.project_id,
            reference=booking.id,
            amount=booking.hold_amount,
            starts=booking.not_before,
            ends=booking.not_before + timedelta(seconds=booking.duration_seconds),
            now=now,
        )
    return booking


@pytest.mark.parametrize("state", list(State))
def test_every_state_has_a_headline_and_a_pill_in_words(state: State) -> None:
    member = a_member(a_project())
    booking = a_booking(member, now=timezone.now(), state=state)
    page = flat(_client(member).get(_url(booking)).content.decode())
    headline = page.partition('<h1 class="headline">')[2].partition("</h1>")[0]
    assert len(headline) > 3
    pill = page.partition('<div class="row"><span class="pill ')[2].partition("</span>")[0]
    assert "#i-log" not in pill, "a state without its own word is shown with the log's icon"
    assert pill.rpartition(">")[2].strip()


def test_a_running_booking_says_until_when_and_names_the_money_that_release_returns() -> None:
    member = a_member(a_project())
    booking = _change(a_booking(member, now=NOW, hours=6, held="24"), ready_at=NOW - timedelta(hours=1))
    story = _story(booking, scene=replace(SCENE, ends=(NOW + timedelta(hours=6),)))
    assert story.headline == "Running until today 15:00"
    assert (story.give_back, story.returns) == ("release", "€20.00")
    assert [(line.name, line.amount) for line in story.costs][:2] == [
        ("Used so far", "€4.00"),
        ("Remaining", "€20.00"),
    ]
    assert story.extend[0].words == "1 h more, until today 16:00, for €4.00"


def test_a_reader_without_the_right_gets_no_buttons() -> None:
    booking = a_booking(a_member(a_project()), now=NOW)
    story = _story(booking, may_change=False)
    assert (story.give_back, story.extend, story.can_check_in) == ("", (), False)
    viewer = a_member(booking.project, Role.VIEWER)
    page = _client(viewer).get(_url(booking)).content.decode()
    assert "/release" not in page
    assert "/cancel" not in page


def test_a_waiting_booking_shows_six_checks_with_what_blocks_first() -> None:
    booking = a_booking(a_member(a_project()), now=NOW, state=State.QUEUED)
    reason: dict[str, object] = {
        "rule": "R6",
        "code": "line",
        "check": "line",
        "sentence": "2 bookings ahead of you take the room first.",
        "numbers": {},
        "frees_at": "2026-11-17T14:30:00+00:00",
    }
    story = _story(_change(booking, reasons=[reason]))
    assert [check.name for check in story.checks] == [
        "Queue",
        "GPUs free together",
        "Quota",
        "Budget",
        "Policy",
        "Hardware",
    ]
    assert [check.blocks for check in story.checks] == [True, False, False, False, False, False]
    assert story.checks[0].frees == "today 14:30"
    assert story.headline == "Expected today 09:00"
    # A pause frees them earlier than the end of what runs.
    sooner = _change(booking, planned_starts=NOW + timedelta(hours=2), planned_ends=NOW + timedelta(hours=8))
    assert _story(sooner).checks[0].frees == "today 12:00"


def test_a_refused_booking_offers_what_would_work_as_one_click() -> None:
    booking = a_booking(a_member(a_project()), now=NOW, state=State.REFUSED)
    alternative = {
        "gpu_class": "h100",
        "profile": "3g.40gb",
        "count": 1,
        "starts": "2026-11-17T12:00:00+00:00",
        "ends": "2026-11-17T18:00:00+00:00",
    }
    story = _story(
        _change(
            booking,
            reasons=[{"check": "together", "sentence": "The window is taken.", "frees_at": None}],
            alternatives=[alternative],
            charged=0,
        )
    )
    assert story.detail == "The window is taken."
    (card,) = story.sooner
    assert (card.when, card.what) == ("today 12:00", "3g.40gb slice of H100 80 GB, 6 h")
    assert "3g.40gb%20h100%20from%202026-11-17%2012%3A00%20to%2018%3A00" in card.href


@pytest.mark.turn
def test_foreign_hidden_and_missing_bookings_answer_the_same() -> None:
    member = a_member(a_project())
    foreign = a_booking(a_member(a_project(a_tenant())), now=NOW)
    hidden = a_booking(a_member(a_project(member.tenant)), now=NOW)
    client = _client(member)
    base = f"/t/{member.tenant.slug}/bookings/"
    found = {
        (response.status_code, response.content.partition(b"<main")[2])
        for response in (client.get(base + label) for label in (foreign.label, hidden.label, "BK-999999"))
    }
    assert len(found) == 1
    assert found.pop()[0] == 404


def test_cancelling_before_the_start_frees_the_money_and_says_how_much() -> None:
    member = a_member(a_project())
    now = timezone.now()
    booking = _held(a_booking(member, now=now, state=State.QUEUED, starts_in=timedelta(hours=1), held="24"))
    response = _client(member).post(_url(booking, "/cancel"), follow=True)
    assert "€24.00 is no longer held" in response.content.decode()
    assert _change(booking).state == State.CANCELLED


def test_releasing_a_booking_that_has_not_started_stays_on_its_page_with_the_reason() -> None:
    member = a_member(a_project())
    booking = a_booking(member, now=timezone.now(), state=State.QUEUED)
    response = _client(member).post(_url(booking, "/release"))
    assert response.status_code == 409
    assert "has not started" in response.content.decode()


def test_a_colleague_who_does_not_lead_cannot_cancel() -> None:
    booking = a_booking(a_member(a_project()), now=timezone.now(), state=State.QUEUED)
    colleague = a_member(booking.project)
    assert _client(colleague).post(_url(booking, "/cancel")).status_code == 403
    assert _change(booking).state == State.QUEUED


@pytest.mark.parametrize(
    ("action", "status"), [("cancel", 200), ("release", 200), ("extend", 405), ("check-in", 405)]
)
def test_a_link_never_changes_anything(action: str, status: int) -> None:
    member = a_member(a_project())
    booking = a_booking(member, now=timezone.now())
    assert _client(member).get(_url(booking, f"/{action}")).status_code == status
    assert _change(booking).state == State.ACTIVE


@pytest.mark.parametrize(
    "seconds",
    ["", "-3600", "1e9", "٣٦٠٠", "9" * 40, "000000100999999999999", "00000010099999999999999999999"],
)
def test_an_extension_by_nonsense_is_refused_beside_the_booking(seconds: str) -> None:
    member = a_member(a_project())
    booking = a_booking(member, now=timezone.now())
    response = _client(member).post(_url(booking, "/extend"), {"seconds": seconds})
    assert response.status_code == 409
    assert _change(booking).extension_until is None


def test_checking_in_is_remembered() -> None:
    member = a_member(a_project())
    booking = a_booking(member, now=timezone.now())
    response = _client(member).post(_url(booking, "/check-in"), follow=True)
    assert "Checked in." in response.content.decode()
    assert _change(booking).checked_in_at is not None


def test_the_place_and_the_command_to_use_it_are_shown_while_it_runs() -> None:
    member = a_member(a_project())
    booking = a_booking(member, now=timezone.now(), profile="2g.20gb")
    gpu = a_node(now=timezone.now(), gpus=2).gpus.all()[1]
    a_place(booking, gpu, profile="2g.20gb", start=2)
    page = _client(member).get(_url(booking)).content.decode()
    folder = f"{member.tenant.slug}.{booking.label}"
    assert f"source /var/lib/gpu-agent/bookings/{folder}/env" in page
    assert "GPU 1: 2g.20gb, memory slots" in page
    assert page.partition("geo8")[2].count('class="own"') == 2


@pytest.mark.parametrize(
    ("limits", "words"), [("counted", "counted, not enforced."), ("enforced", ": enforced.")]
)
def test_host_cores_and_memory_are_said_to_be_kept_to_or_not(limits: str, words: str) -> None:
    member = a_member(a_project())
    booking = a_booking(member, now=timezone.now())
    node = a_node(now=timezone.now())
    a_place(booking, node.gpus.all()[0])
    with as_system():
        booking.ask = {**booking.ask, "cores": 16, "memory": 64}
        booking.save(update_fields=["ask"])
        Node.objects.filter(id=node.id).update(host_limits=limits)
    page = _client(member).get(_url(booking)).content.decode()
    assert "16 host cores and 64 GiB of memory per GPU" in page
    assert words in page


def test_the_list_filters_by_state_and_project_and_keeps_to_its_pages() -> None:
    member = a_member(a_project())
    for number in range(27):
        a_booking(member, now=NOW, name=f"run-{number}", state=State.ACTIVE)
    a_booking(member, now=NOW, name="old", state=State.ENDED)
    client = _client(member)
    base = f"/t/{member.tenant.slug}/bookings"
    first = client.get(base).content.decode()
    assert "28 bookings" in first
    assert first.count('data-label="Tier"') == 25
    after = first.partition('href="?after=')[2].partition('"')[0]
    assert client.get(f"{base}?after={after}").content.decode().count('data-label="Tier"') == 3
    over = client.get(f"{base}?state=over").content.decode()
    assert ">old<" in flat(over)
    assert "run-3" not in over
    assert "No bookings match this filter" in client.get(f"{base}?project=other").content.decode()


def test_a_page_of_bookings_is_escaped() -> None:
    member = a_member(a_project())
    booking = a_booking(member, now=timezone.now(), name="<script>alert(1)</script>")
    client = _client(member)
    for url in (_url(booking), f"/t/{member.tenant.slug}/bookings", f"/t/{member.tenant.slug}/"):
        page = client.get(url).content.decode()
        assert "<script>alert" not in page
        assert "&lt;script&gt;alert" in page


def test_home_shows_what_runs_what_waits_and_what_money_is_left() -> None:
    member = a_member(a_project(name="Protein folding"), user=a_user(first_name="Mara"))
    now = timezone.now()
    _held(a_booking(member, now=now, name="runs", held="24"))
    a_booking(member, now=now, name="waits", state=State.QUEUED, starts_in=timedelta(hours=2))
    page = _client(member).get(f"/t/{member.tenant.slug}/").content.decode()
    assert "What do you need, Mara?" in page
    assert "runs" in page
    assert "waits" in page
    assert "€976.00" in page


def test_home_without_anything_says_how_to_begin() -> None:
    member = a_member(a_project())
    page = _client(member).get(f"/t/{member.tenant.slug}/").content.decode()
    assert "No bookings" in page
    assert "has no budget for today" in page


def test_times_name_the_day_unless_it_is_today() -> None:
    start = datetime(2026, 11, 17, 22, tzinfo=UTC)
    assert window_words(start, start + timedelta(hours=6), UTC, NOW) == ("today 22:00 – tomorrow 04:00")
    later = datetime(2027, 1, 2, 9, tzinfo=UTC)
    assert window_words(later, later + timedelta(hours=1), UTC, NOW) == ("Sat 2 Jan 2027 09:00 – 10:00")
    assert [length_words(s) for s in (30, 2700, 5400, 21600, 187_200)] == [
        "30 s",
        "45 min",
        "1 h 30 min",
        "6 h",
        "2 d 4 h",
    ]


def test_a_waiting_booking_says_its_range_or_that_there_is_none_yet() -> None:
    member = a_member(a_project())
    booking = a_booking(member, now=timezone.now(), state=State.QUEUED, starts_in=timedelta(hours=3))
    page = _client(member).get(_url(booking)).content.decode()
    assert "assumed until 20 bookings in this tier have had a planned start" in page


@pytest.mark.parametrize("starts", ["", "-1", "soon", "9" * 40])
def test_a_change_to_nonsense_is_refused_beside_the_booking(starts: str) -> None:
    member = a_member(a_project())
    booking = a_booking(member, now=timezone.now(), state=State.QUEUED, starts_in=timedelta(hours=3))
    sent = {"tier": "standard", "request": "1 h100 1h", "starts": starts}
    response = _client(member).post(_url(booking, "/earlier"), sent)
    assert response.status_code == 409
    assert _change(booking).state == State.QUEUED


def test_what_waits_for_hardware_says_so_and_no_start_that_nothing_proves() -> None:
    booking = a_booking(a_member(a_project()), now=NOW, state=State.QUEUED)
    sentence = "4 of 4 h100 are out of service, so no start can be planned."
    reason: dict[str, object] = {
        "rule": "R80",
        "code": "none_in_service",
        "check": "hardware",
        "sentence": sentence,
        "numbers": {},
        "frees_at": None,
    }
    story = _story(_change(booking, reasons=[reason], planned_starts=NOW + timedelta(days=28)))
    assert story.headline == "Waiting for GPUs to return to service"
    assert story.detail == sentence
    assert story.window.startswith("from ")
    assert story.checks[0].name == "Hardware"
    assert story.checks[1].sentences == ("No start can be planned, so this was not checked.",)


@pytest.mark.parametrize(
    ("state", "headline"),
    [
        (State.PAUSED, "Paused until GPUs are free"),
        (State.QUEUED, "Waiting: no start can be planned yet"),
    ],
)
def test_a_start_that_nothing_proves_is_not_promised(state: State, headline: str) -> None:
    """A paused window keeps its last second as a start while there is no room: that is none."""
    booking = a_booking(a_member(a_project()), now=NOW, state=state)
    reasons: list[dict[str, object]] = [
        {
            "rule": "R22",
            "code": "no_room_in_horizon",
            "check": "together",
            "sentence": "There is no room for it as far ahead as bookings are planned.",
            "numbers": {},
            "frees_at": None,
        }
    ]
    end = NOW + timedelta(hours=3)
    booking = _change(booking, reasons=reasons, planned_starts=end - timedelta(seconds=1), planned_ends=end)
    story = _story(booking)
    assert story.headline == headline
    assert story.window.startswith("not planned yet" if state == State.PAUSED else "from ")
    with tenant_tx(booking.tenant_id):
        said = why(Booking.objects.get(id=booking.id), NOW)
    assert said["expected_start"] is None


def test_the_check_that_holds_longest_comes_first() -> None:
    booking = a_booking(a_member(a_project()), now=NOW, state=State.QUEUED)
    day, hour = NOW + timedelta(days=1), NOW + timedelta(hours=1)
    reasons = [
        {
            "rule": rule,
            "code": code,
            "check": check,
            "sentence": code,
            "numbers": {},
            "frees_at": frees.isoformat(),
        }
        for rule, code, check, frees in (
            ("R43", "gpu_hours", "quota", day),
            ("R5", "gpus_busy", "together", hour),
        )
    ]
    story = _story(_change(booking, reasons=reasons, planned_starts=day))
    assert [(check.name, check.blocks) for check in story.checks[:3]] == [
        ("Quota", True),
        ("GPUs free together", True),
        ("Queue", False),
    ]


def test_what_would_have_worked_is_shown_only_while_it_does() -> None:
    booking = a_booking(a_member(a_project()), now=NOW, state=State.REFUSED)
    way = {"gpu_class": "h100", "profile": None, "count": 1, "share": None}
    alternatives = [
        way | {"starts": starts.isoformat(), "ends": (starts + timedelta(hours=1)).isoformat()}
        for starts in (NOW - timedelta(hours=1), NOW + timedelta(hours=1))
    ]
    story = _story(_change(booking, alternatives=alternatives))
    assert [card.when for card in story.sooner] == ["today 11:00"]


def test_a_booking_that_lost_its_gpus_says_what_it_ran_and_what_is_left() -> None:
    booking = a_booking(a_member(a_project()), now=NOW, state=State.QUEUED, hours=2)
    booking = _change(booking, replacement_count=1, used_seconds=1800)
    story = _story(booking)
    assert story.detail.startswith("It lost its GPUs after 30 min and waits for others; 2 h are")


def test_without_a_place_a_page_says_why_there_is_none() -> None:
    member = a_member(a_project())
    for state, planned, words in (
        (State.CANCELLED, NOW, "It gave up its place before it started."),
        (State.AWAITING_APPROVAL, None, "None before the approval."),
        (State.REFUSED, None, "It was never placed."),
    ):
        booking = _change(a_booking(member, now=NOW, state=state), first_planned_start=planned)
        assert words in _client(member).get(_url(booking)).content.decode()


def test_a_paused_booking_is_first_at_home_and_shows_what_is_still_held() -> None:
    member, now = a_member(a_project()), timezone.now()
    for number in range(6):
        a_booking(member, now=now, name=f"other-{number}", starts_in=timedelta(hours=-2))
    booking = a_booking(member, now=now, state=State.PAUSED, name="paused-one", held="24")
    reason = {"code": "no_room_in_horizon", "check": "together", "rule": "R3", "sentence": "Full."}
    booking = _change(booking, settled=Decimal(9), reasons=[reason])
    home = flat(_client(member).get(f"/t/{member.tenant.slug}/").content.decode())
    # The strip of the own week comes before the list.
    listed = home.partition('id="own-week"')[2].partition("</ol>")[2]
    assert 0 < listed.index("paused-one") < listed.index("other-")
    assert "€15.00" in home
    story = _story(booking)
    assert story.window == "not planned yet, 6 h requested"
    assert [each.sentences for each in story.checks if each.name == "Budget"] == [
        ("€15.00 is held for this booking.",)
    ]


def test_a_booking_names_the_class_that_it_got_and_before_that_its_alternatives() -> None:
    booking = a_booking(a_member(a_project()), now=NOW, state=State.ACTIVE)
    booking = _change(booking, ask={**booking.ask, "classes": ["h100", "a100"]})
    for state, words in (
        (State.ACTIVE, "1 × H100 80 GB"),
        (State.QUEUED, "1 × H100 80 GB or a100"),
    ):
        booking.state = state
        assert _story(booking).what == words
